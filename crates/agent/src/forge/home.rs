//! Where runs live in a repository: `.forge`, which git does not see.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use helve_contract::{Access, Errand, PathRules, Reading, Root, Workspace};

/// How much of a record's end is looked at.
const TAIL: u64 = 256 << 10;

/// The folder of all runs in a repository.
#[derive(Clone, Debug)]
pub struct Home {
    repo: PathBuf,
}

impl Home {
    /// The folder of a repository's runs; it is made if it is not there.
    pub fn of(repo: &Path) -> io::Result<Self> {
        let home = Self { repo: fs::canonicalize(repo)? };
        for folder in ["artifacts", "runs", "worktrees"] {
            fs::create_dir_all(home.dir().join(folder))?;
        }
        let ignore = home.dir().join(".gitignore");
        if !ignore.exists() {
            fs::write(ignore, "*\n")?;
        }
        Ok(home)
    }

    /// The repository.
    pub fn repo(&self) -> &Path {
        &self.repo
    }

    /// The folder itself.
    pub fn dir(&self) -> PathBuf {
        self.repo.join(".forge")
    }

    /// Where the artifacts of all runs are.
    pub fn artifacts(&self) -> PathBuf {
        self.dir().join("artifacts")
    }

    /// The record of a run.
    pub fn events(&self, run: &str) -> io::Result<PathBuf> {
        let folder = self.dir().join("runs").join(run);
        fs::create_dir_all(&folder)?;
        Ok(folder.join("events.ndjson"))
    }

    /// The id and the number of a run's last event.
    pub fn last_event(&self, run: &str) -> Option<(String, u64)> {
        let mut file = fs::File::open(self.dir().join("runs").join(run).join("events.ndjson")).ok()?;
        let from = file.metadata().ok()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail).ok()?;
        // The last line may be half written, the first one half read: neither is JSON.
        tail.rsplit(|it| *it == b'\n').find_map(|line| {
            let event: serde_json::Value = serde_json::from_slice(line).ok()?;
            Some((event["eventId"].as_str()?.to_owned(), event["seq"].as_u64()?))
        })
    }

    /// The work tree of one attempt at a task.
    pub fn desk(&self, run: &str, task: &str, attempt: u32) -> PathBuf {
        self.dir().join("worktrees").join(format!("{run}.{task}.{attempt}"))
    }

    /// Removes every work tree of a run.
    pub(super) fn clear_desks(&self, run: &str) {
        let ours = format!("{run}.");
        for entry in fs::read_dir(self.dir().join("worktrees")).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&ours) {
                _ = super::desk::clear(&entry.path());
            }
        }
    }

    /// The runs that there are, by name.
    pub fn runs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.artifacts()).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|it| it.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// What somebody does in a run.
    pub fn errand(&self, run: &str, base: &str) -> Errand {
        Errand {
            run: run.to_owned(),
            task: None,
            attempt: 1,
            branch: None,
            base: base.to_owned(),
            artifacts: Workspace::new([Root::writable(self.artifacts())], PathRules::default(), Reading::Relative),
        }
    }

    /// Whether a path is in the artifacts: a check for those who show them.
    pub fn holds(&self, run: &str, inside: &str) -> bool {
        let errand = self.errand(run, "");
        errand.artifacts.at(&self.artifacts(), format!("{run}/{inside}"), Access::Read).is_ok()
    }
}
