//! The directory of runs in a repository: `.forge`, which git ignores.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    TaskContext,
    events::EventRecord,
    ids::{self, DEFAULT_TENANT},
    ports::{Artifacts, RunArtifacts},
};
use helve_engine::FileEvents;
use helve_store::FileArtifacts;
use serde::{Deserialize, Serialize};

use super::executor::integration_branch;

/// The file that says whose a run is.
const OWNER: &str = "run.json";

/// One run of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id: a UUID. Runs that were made before runs had UUIDs have their name here.
    pub id: String,
    /// Its name for people, such as `plan-1`. No two runs of a repository have the same.
    pub label: String,
}

/// Who a run belongs to, in `runs/ID/run.json`.
#[derive(Debug, Deserialize, Serialize)]
struct Owner {
    id: String,
    label: String,
    tenant: String,
    user: String,
}

/// The directory of all runs in a repository, for one user of one tenant.
///
/// `artifacts/ID` and `runs/ID` belong to one run. `artifacts/LABEL` and `runs/LABEL` are links to them: the first
/// one also reserves the label, because only one process can create it.
#[derive(Clone)]
pub struct ForgeDir {
    repo: PathBuf,
    artifacts: FileArtifacts,
    tenant: String,
    user: String,
}

impl ForgeDir {
    /// The directory of a repository's runs; it is made if it is not there.
    pub fn open(repo: &Path, tenant: &str, user: &str) -> io::Result<Self> {
        let repo = fs::canonicalize(repo)?;
        let artifacts = FileArtifacts::at(&repo.join(".forge"));
        let home = Self { repo, artifacts, tenant: tenant.to_owned(), user: user.to_owned() };
        for folder in ["artifacts", "runs", "worktrees"] {
            fs::create_dir_all(home.path().join(folder))?;
        }
        let ignore = home.path().join(".gitignore");
        if !ignore.exists() {
            fs::write(ignore, "*\n")?;
        }
        Ok(home)
    }

    /// Makes a run with this label. `AlreadyExists`: a run of the repository has it, perhaps of another user.
    pub fn create(&self, label: &str) -> io::Result<Run> {
        if ids::is_id(label) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a label must not have the form of an id"));
        }
        let run = Run { id: ids::new_id(), label: label.to_owned() };
        let [record, artifacts] = ["runs", "artifacts"].map(|it| self.path().join(it).join(&run.id));
        let owner = Owner {
            id: run.id.clone(),
            label: run.label.clone(),
            tenant: self.tenant.clone(),
            user: self.user.clone(),
        };
        fs::create_dir(&record)?;
        fs::create_dir(&artifacts)?;
        fs::write(record.join(OWNER), serde_json::to_vec(&owner)?)?;
        // The last step: until then nobody sees the run.
        if let Err(error) = symlink(&run.id, self.path().join("artifacts").join(label)) {
            _ = fs::remove_dir_all(record);
            _ = fs::remove_dir(artifacts);
            return Err(error);
        }
        _ = symlink(&run.id, self.path().join("runs").join(label));
        Ok(run)
    }

    /// Makes a run with the first free label of `plan-1`, `plan-2`, …
    pub fn create_next(&self) -> io::Result<Run> {
        for number in 1_u32.. {
            let label = format!("plan-{number}");
            if self.has_branch(&label) {
                continue;
            }
            match self.create(&label) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        Err(io::Error::other("every label is taken"))
    }

    /// Whether a branch of an earlier run with this label is left. What git stores in another way is found when the run
    /// begins.
    fn has_branch(&self, label: &str) -> bool {
        let (git, name) = (self.repo.join(".git"), format!("refs/heads/{}", integration_branch(label)));
        let packed = fs::read_to_string(git.join("packed-refs")).unwrap_or_default();
        git.join(&name).exists() || packed.lines().any(|line| line.ends_with(&format!(" {name}")))
    }

    /// Records that the run owns its branch, before the branch exists. `false`: it was recorded before.
    pub(super) fn claim_branch(&self, run: &Run) -> io::Result<bool> {
        let mark = self.path().join("runs").join(&run.id).join("branch");
        match fs::File::create_new(mark) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes that note back.
    pub(super) fn release_branch(&self, run: &Run) {
        _ = fs::remove_file(self.path().join("runs").join(&run.id).join("branch"));
    }

    /// The repository.
    pub fn repo(&self) -> &Path {
        &self.repo
    }

    /// The directory itself.
    pub fn path(&self) -> PathBuf {
        self.repo.join(".forge")
    }

    /// The artifacts of all runs.
    pub fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::new(self.artifacts.clone())
    }

    /// The record of a run.
    pub fn event_file(&self, run: &Run) -> io::Result<PathBuf> {
        let folder = self.path().join("runs").join(&run.id);
        fs::create_dir_all(&folder)?;
        Ok(folder.join("events.ndjson"))
    }

    /// The id and the number of a run's last event.
    pub fn last_event(&self, run: &Run) -> Option<(String, u64)> {
        self.recent_events(run, 1).pop().map(|it| (it.id, it.seq))
    }

    /// The last events of a run in order, at most so many. A record that cannot be read has none.
    pub fn recent_events(&self, run: &Run, limit: usize) -> Vec<EventRecord> {
        let file = self.path().join("runs").join(&run.id).join("events.ndjson");
        FileEvents::new(file).tail_now(&run.id, limit).unwrap_or_default()
    }

    /// The work tree of one attempt at a task.
    pub fn clone_dir(&self, run: &Run, task: &str, attempt: u32) -> PathBuf {
        self.path().join("worktrees").join(format!("{}.{task}.{attempt}", run.id))
    }

    /// Removes every work tree of a run.
    pub(super) fn remove_clones(&self, run: &Run) {
        let ours = format!("{}.", run.id);
        for entry in fs::read_dir(self.path().join("worktrees")).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&ours) {
                _ = super::desk::remove_dir_if_exists(&entry.path());
            }
        }
    }

    /// The runs that there are, by label.
    pub fn runs(&self) -> Vec<Run> {
        let entries = fs::read_dir(self.path().join("artifacts")).into_iter().flatten().flatten();
        let mut runs: Vec<_> = entries.filter_map(|it| self.run_labelled(it.file_name().into_string().ok()?)).collect();
        runs.sort_by(|one, other| one.label.cmp(&other.label));
        runs
    }

    /// The run that has this label, if it belongs to this user.
    fn run_labelled(&self, label: String) -> Option<Run> {
        if ids::is_id(&label) {
            return None;
        }
        let path = self.path().join("artifacts").join(&label);
        let Ok(target) = fs::read_link(&path) else {
            // A run from before runs had owners belongs to everybody who uses the default tenant.
            let is_known = path.is_dir() && self.tenant == DEFAULT_TENANT;
            return is_known.then(|| Run { id: label.clone(), label });
        };
        let id = target.to_str().filter(|it| ids::is_id(it))?.to_owned();
        let owner = fs::read(self.path().join("runs").join(&id).join(OWNER)).ok()?;
        let owner: Owner = serde_json::from_slice(&owner).ok()?;
        let is_own = owner.id == id && owner.tenant == self.tenant && owner.user == self.user;
        is_own.then_some(Run { id, label })
    }

    /// What somebody does in a run. It begins without the lease of the run.
    pub fn task_context(&self, run: &Run, base: &str) -> TaskContext {
        TaskContext {
            run: run.id.clone(),
            label: run.label.clone(),
            task: None,
            attempt: 1,
            branch: None,
            base: base.to_owned(),
            artifacts: RunArtifacts::new(self.artifacts(), &run.id),
        }
    }
}
