//! Access to the artifacts of a run: `artifacts/<run>/…`. Every write compares versions; readers never see a partial
//! artifact.

use std::collections::BTreeSet;

use helve_contract::{
    Call, Error, Result, TaskContext,
    events::ForgeRunStatus,
    jiff::Timestamp,
    ports::{Artifact, ExpectedVersion},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    dag::{Dag, Overlay, dag_error},
    status::DagStatus,
};

/// How often a conflicting change is retried.
const MAX_RETRIES: usize = 50;

/// The artifacts of one run, as one call accesses them.
pub struct CallArtifacts<'a> {
    call: &'a Call,
    task_context: &'a TaskContext,
}

impl<'a> CallArtifacts<'a> {
    /// The artifacts of the call's run.
    pub fn for_call(call: &'a Call) -> Result<Self> {
        let errand = call.task_context()?;
        check_file_name("run", &errand.run)?;
        Ok(Self { call, task_context: errand })
    }

    /// The run.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.task_context.run
    }

    /// The display name of the run.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.task_context.label
    }

    /// The task of the calling agent.
    pub fn task_id(&self) -> Result<&str> {
        self.task_context.task.as_deref().ok_or_else(|| Error::failed("this agent works on no task"))
    }

    /// A path as agents know it: `artifacts/<run>/…`.
    #[must_use]
    pub fn display_path(&self, inside: &str) -> String {
        format!("artifacts/{}/{inside}", self.task_context.run)
    }

    /// An artifact with its version; `None` if it does not exist.
    pub async fn artifact(&self, inside: &str) -> Result<Option<Artifact>> {
        self.task_context.artifacts.read(inside).await
    }

    /// The bytes of an artifact; `None` if it does not exist.
    pub async fn read_bytes(&self, inside: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.artifact(inside).await?.map(|it| it.body))
    }

    /// The text of an artifact; the error lists what exists.
    pub async fn read_text(&self, inside: &str) -> Result<String> {
        self.versioned_text(inside).await.map(|(text, _)| text)
    }

    /// Like `read_text`, with the version that a write must expect.
    pub async fn versioned_text(&self, inside: &str) -> Result<(String, ExpectedVersion)> {
        if let Some(Artifact { body, version }) = self.artifact(inside).await? {
            return Ok((String::from_utf8_lossy(&body).into_owned(), ExpectedVersion::Is(version)));
        }
        let folder = inside.rsplit_once('/').map_or("", |(folder, _)| folder);
        let near = self.list_names(folder).await?;
        let near =
            if near.is_empty() { "nothing is there yet".into() } else { format!("there are {}", near.join(", ")) };
        Err(Error::failed(format!("{} does not exist; {near}", self.display_path(inside))))
    }

    /// A record; `None` if it does not exist.
    pub async fn read_record<T: DeserializeOwned>(&self, inside: &str) -> Result<Option<T>> {
        let Some(bytes) = self.read_bytes(inside).await? else { return Ok(None) };
        let record = serde_json::from_slice(&bytes);
        record.map(Some).map_err(|error| Error::failed(format!("{} is damaged: {error}", self.display_path(inside))))
    }

    /// The sorted names in a directory; empty if it does not exist.
    pub async fn list_names(&self, inside: &str) -> Result<Vec<String>> {
        let paths = self.beneath(inside).await?;
        let names: BTreeSet<_> = paths.iter().filter_map(|path| path.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// Names of the directories in a directory, sorted.
    pub async fn list_dirs(&self, inside: &str) -> Result<Vec<String>> {
        let paths = self.beneath(inside).await?;
        let names: BTreeSet<_> = paths.iter().filter_map(|path| Some(path.split_once('/')?.0)).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// The paths beneath a directory, relative to it.
    async fn beneath(&self, folder: &str) -> Result<Vec<String>> {
        let paths = self.task_context.artifacts.list(folder).await?;
        if folder.is_empty() {
            return Ok(paths);
        }
        Ok(paths.iter().filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/')).map(str::to_owned).collect())
    }

    /// Writes an artifact. Returns its path as agents know it.
    pub async fn write(&self, inside: &str, bytes: &[u8], expected: ExpectedVersion) -> Result<String> {
        self.task_context.artifacts.write(inside, bytes, &expected).await?;
        Ok(self.display_path(inside))
    }

    /// Writes a record as indented JSON with a final newline.
    pub async fn write_record<T: Serialize>(
        &self,
        inside: &str,
        record: &T,
        expected: ExpectedVersion,
    ) -> Result<String> {
        let mut text = serde_json::to_vec_pretty(record).map_err(|error| Error::Internal(error.into()))?;
        text.push(b'\n');
        self.write(inside, &text, expected).await
    }

    /// Changes a shared record: reads, changes and writes it if the version is unchanged; otherwise retries. Returns
    /// what `change` returns.
    pub async fn update_record<T, R>(
        &self,
        inside: &str,
        first: impl Fn() -> Result<T>,
        mut change: impl FnMut(&mut T) -> Result<R>,
    ) -> Result<R>
    where
        T: Serialize + DeserializeOwned + PartialEq + Clone,
    {
        for _ in 0..MAX_RETRIES {
            self.call.check_cancelled()?;
            let (mut record, expected) = match self.artifact(inside).await? {
                Some(Artifact { body, version }) => {
                    let record: T = serde_json::from_slice(&body)
                        .map_err(|error| Error::failed(format!("{} is damaged: {error}", self.display_path(inside))))?;
                    (record, ExpectedVersion::Is(version))
                }
                None => (first()?, ExpectedVersion::Absent),
            };
            let before = (expected != ExpectedVersion::Absent).then(|| record.clone());
            let answer = change(&mut record)?;
            if before.as_ref() == Some(&record) {
                return Ok(answer);
            }
            match self.write_record(inside, &record, expected).await {
                Ok(_) => return Ok(answer),
                Err(Error::VersionConflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::failed(format!("{} is changed by others all the time; try again later", self.display_path(inside))))
    }

    /// The plan without overlays.
    pub async fn base_dag(&self) -> Result<Dag> {
        let dag = self.read_record("dag.json").await?;
        dag.ok_or_else(|| Error::failed("this run has no graph yet; the captain makes one with set_dag"))
    }

    /// The plan with all overlays.
    pub async fn dag(&self) -> Result<Dag> {
        let base = self.base_dag().await?;
        let mut overlays: Vec<Overlay> = Vec::new();
        for request in self.list_dirs("change-requests").await? {
            overlays.extend(self.read_record(&format!("change-requests/{request}/dag-overlay.json")).await?);
        }
        base.with_overlays(&overlays).map_err(|issues| dag_error(&issues))
    }

    /// The states of the tasks.
    pub async fn status(&self, dag: &Dag) -> Result<DagStatus> {
        let mut status: DagStatus = match self.read_record("dag-status.json").await? {
            Some(status) => status,
            None => DagStatus::new(dag, self.call.now()),
        };
        status.add_missing(dag);
        Ok(status)
    }

    /// Changes the states of tasks.
    pub async fn update_status<R>(&self, dag: &Dag, mut change: impl FnMut(&mut DagStatus) -> Result<R>) -> Result<R> {
        let now = self.call.now();
        self.update_record(
            "dag-status.json",
            || Ok(DagStatus::new(dag, now)),
            |status| {
                status.add_missing(dag);
                change(status)
            },
        )
        .await
    }

    /// The state of the run.
    pub async fn state(&self) -> Result<Option<RunState>> {
        self.read_record("run-state.json").await
    }

    /// Refuses to change the plan after execution has started.
    pub async fn require_planning(&self) -> Result<()> {
        match self.state().await? {
            Some(RunState { status: StoredRunStatus::Planning | StoredRunStatus::PlanReview, .. }) | None => Ok(()),
            Some(state) => Err(Error::failed(format!(
                "the plan of run `{}` can no longer be changed, because the run is {}; what is missing is added by a change request",
                self.task_context.label, state.status
            ))),
        }
    }
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunState {
    /// The run.
    pub run_id: String,
    /// The repository.
    pub repo_url: String,
    /// Its status.
    pub status: StoredRunStatus,
    /// When it was begun.
    pub created_at: Timestamp,
    /// When it was first executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// The current phase.
    pub current_phase: RunPhase,
    /// The model.
    #[serde(default)]
    pub model: String,
    /// The number of tasks.
    #[serde(default)]
    pub total_tasks: usize,
    /// The number of merged tasks.
    #[serde(default)]
    pub completed_tasks: usize,
    /// The number of failed tasks.
    #[serde(default)]
    pub failed_tasks: usize,
    /// The number of running tasks.
    #[serde(default)]
    pub running_tasks: usize,
    /// Pending change requests.
    #[serde(default, rename = "activeCRs")]
    pub active_crs: Vec<String>,
    /// The id of the last event.
    #[serde(default)]
    pub last_event_id: String,
    /// The sequence number of the last event.
    #[serde(default)]
    pub last_event_seq: u64,
    /// The branch that everything is merged into.
    #[serde(default)]
    pub base_branch: String,
}

impl RunState {
    /// The state of a run in planning.
    #[must_use]
    pub fn new(run: &str, repo: &str, now: Timestamp) -> Self {
        Self {
            run_id: run.to_owned(),
            repo_url: repo.to_owned(),
            status: StoredRunStatus::Planning,
            created_at: now,
            started_at: None,
            completed_at: None,
            current_phase: RunPhase::CaptainInterview,
            model: String::new(),
            total_tasks: 0,
            completed_tasks: 0,
            failed_tasks: 0,
            running_tasks: 0,
            active_crs: Vec::new(),
            last_event_id: String::new(),
            last_event_seq: 0,
            base_branch: String::new(),
        }
    }
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredRunStatus {
    /// The captain plans.
    Planning,
    /// The plan waits for a review.
    PlanReview,
    /// Agents work.
    Executing,
    /// No new task starts.
    Paused,
    /// Everything is merged.
    Completed,
    /// The run cannot continue.
    Failed,
}

impl std::fmt::Display for StoredRunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Planning => "planning",
            Self::PlanReview => "in review",
            Self::Executing => "executing",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
        })
    }
}

impl From<StoredRunStatus> for ForgeRunStatus {
    fn from(status: StoredRunStatus) -> Self {
        match status {
            StoredRunStatus::Planning => Self::Planning,
            StoredRunStatus::PlanReview => Self::PlanReview,
            StoredRunStatus::Executing => Self::Executing,
            StoredRunStatus::Paused => Self::Paused,
            StoredRunStatus::Completed => Self::Completed,
            StoredRunStatus::Failed => Self::Failed,
        }
    }
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// The captain interviews the user.
    CaptainInterview,
    /// The plan waits for a review.
    PlanReview,
    /// Agents work.
    Execution,
    /// No new task starts.
    Paused,
    /// The run has ended.
    Completed,
}

/// Checks a name that becomes a file name: no separators, no `.` or `..`, no invisible characters.
pub fn check_file_name<'a>(what: &str, name: &'a str) -> Result<&'a str> {
    let bad = name.is_empty()
        || name.trim() != name
        || name.len() > 120
        || matches!(name, "." | "..")
        || name.starts_with('-')
        || name.chars().any(|it| matches!(it, '/' | '\\') || it.is_control());
    if bad {
        return Err(Error::failed(format!(
            "`{}` cannot be the name of a {what}: use letters, digits, `.`, `_` and `-`, without folders",
            name.escape_debug()
        )));
    }
    Ok(name)
}

/// Checks a task id, which also becomes a branch name.
pub fn check_task_id(id: &str) -> Result<&str> {
    let plain = id.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-'));
    let odd =
        id.starts_with(['.', '-']) || id.ends_with('.') || id.strip_suffix(".lock").is_some() || id.contains("..");
    if id.is_empty() || id.len() > 100 || !plain || odd {
        let id = id.escape_debug();
        return Err(Error::failed(format!(
            "Invalid taskId for branch name: `{id}`; use letters, digits, `.`, `_` and `-`"
        )));
    }
    Ok(id)
}
