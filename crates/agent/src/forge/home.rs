//! Where runs live in a repository: `.forge`, which git does not see.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    Errand,
    events::EventRecord,
    ports::{Artifacts, RunArtifacts},
};
use helve_engine::FileEvents;
use helve_store::FileArtifacts;

/// The folder of all runs in a repository.
#[derive(Clone)]
pub struct Home {
    repo: PathBuf,
    artifacts: FileArtifacts,
}

impl Home {
    /// The folder of a repository's runs; it is made if it is not there.
    pub fn of(repo: &Path) -> io::Result<Self> {
        let repo = fs::canonicalize(repo)?;
        let home = Self { artifacts: FileArtifacts::at(&repo.join(".forge")), repo };
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

    /// The artifacts of all runs.
    pub fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::new(self.artifacts.clone())
    }

    /// The record of a run.
    pub fn events(&self, run: &str) -> io::Result<PathBuf> {
        let folder = self.dir().join("runs").join(run);
        fs::create_dir_all(&folder)?;
        Ok(folder.join("events.ndjson"))
    }

    /// The id and the number of a run's last event.
    pub fn last_event(&self, run: &str) -> Option<(String, u64)> {
        self.recent_events(run, 1).pop().map(|it| (it.id, it.seq))
    }

    /// The last events of a run in order, at most so many. A record that cannot be read has none.
    pub fn recent_events(&self, run: &str, limit: usize) -> Vec<EventRecord> {
        let file = self.dir().join("runs").join(run).join("events.ndjson");
        FileEvents::new(file).tail_now(run, limit).unwrap_or_default()
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

    /// The runs that there are, by name. None where they cannot be read.
    pub fn runs(&self) -> Vec<String> {
        self.artifacts.runs_now().unwrap_or_default()
    }

    /// What somebody does in a run. It begins without the lease of the run.
    pub fn errand(&self, run: &str, base: &str) -> Errand {
        Errand {
            run: run.to_owned(),
            task: None,
            attempt: 1,
            branch: None,
            base: base.to_owned(),
            artifacts: RunArtifacts::new(self.artifacts(), run),
        }
    }
}
