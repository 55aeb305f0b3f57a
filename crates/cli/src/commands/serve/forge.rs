//! `/api/forge`: planned runs of the workspace's repository: state, execution and decisions.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_agent::forge::{ForgeDir, Run, RunSummary};
use helve_contract::{
    CancellationToken,
    events::{ForgeEnded, ForgeStarted},
    jiff::Timestamp,
};
use helve_tools::artifacts::{
    CallArtifacts, ChangeRequest, ChangeRequestStatus, Dag, DagNodeKind, FrontMatterDocument, TaskFrontMatter,
    TaskStatus, Walkthrough, check_file_name,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{board::truncate_text, routes::parse_body, say::ApiError, site::AppState};
use crate::{
    commands::forge::{self, ClaimError, RunOptions, look::RunView},
    fault::CliError,
};

/// How long agents have to end when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The dialect of planned runs, as events name it.
const DIALECT: &str = "forge";

/// The runs that are executed in this process.
pub(super) struct ForgeRuns {
    shutdown: CancellationToken,
    running: Mutex<HashMap<String, (CancellationToken, JoinHandle<()>)>>,
}

/// How a run is executed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StartRunBody {
    /// Agents at once.
    parallel: Option<u8>,
    /// Change requests wait for a person instead of the captain.
    ask_about_changes: bool,
}

/// The decision about a change request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeDecisionBody {
    answer: ChangeDecision,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChangeDecision {
    Approve,
    Reject,
}

impl ForgeRuns {
    pub(super) fn new(closing: CancellationToken) -> Self {
        Self { shutdown: closing, running: Mutex::default() }
    }

    /// Stops the runs that are executed here; the next executor continues them.
    pub(super) async fn shutdown(&self) {
        let all: Vec<_> = self.lock().drain().collect();
        for (_, (cancel, work)) in all {
            cancel.cancel();
            _ = tokio::time::timeout(SHUTDOWN_GRACE, work).await;
        }
    }

    /// Whether a run is executed here.
    fn is_running(&self, run: &str) -> bool {
        self.lock().get(run).is_some_and(|(_, work)| !work.is_finished())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (CancellationToken, JoinHandle<()>)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppState {
    /// The runs of the repository; none where there is no repository.
    pub(super) async fn forge_runs(&self) -> Result<Value, ApiError> {
        let Some(home) = self.forge_dir()? else { return Ok(json!({ "runs": [] })) };
        let mut runs = Vec::new();
        for run in home.runs() {
            // A directory that is not a run must not hide the others.
            if let Ok(seen) = forge::look::load_run_view(&home, &run).await {
                let mut shown = run_json(&run, &seen);
                shown["title"] = run_title(&home, &run).await.unwrap_or_else(|| run.label.clone()).into();
                shown["here"] = self.forge.is_running(&run.id).into();
                runs.push(shown);
            }
        }
        Ok(json!({ "runs": runs }))
    }

    /// A run with its tasks, its change requests, and what its agents tell.
    pub(super) async fn forge_run(&self, run: &str) -> Result<Value, ApiError> {
        let (home, run) = self.forge_dir_of(run)?;
        let seen = forge::look::load_run_view(&home, &run)
            .await
            .map_err(|fault| ApiError::conflict(format!("this run cannot be read: {fault}")))?;
        let call = forge::artifacts_call(&home, &run);
        let room = CallArtifacts::for_call(&call)?;
        let mut shown = run_json(&run, &seen);
        shown["title"] = run_title(&home, &run).await.unwrap_or_else(|| run.label.clone()).into();
        shown["here"] = self.forge.is_running(&run.id).into();
        let (mut tasks, mut walkthroughs) = (Vec::new(), Vec::new());
        if let Some(dag) = &seen.dag {
            for node in dag.topological_order() {
                tasks.push(task_json(&room, &seen, dag, &node.id).await);
                walkthroughs.extend(walkthrough(&room, &node.id).await);
            }
        }
        let requests = ChangeRequest::load_all(&room).await.unwrap_or_default();
        let requests = requests.into_iter().map(|it| {
            json!({
                "id": it.front.id, "status": it.front.status, "summary": it.front.title, "body": truncate_text(&it.body),
                "by": it.front.emitted_by, "at": it.front.emitted_at, "reason": it.front.reason,
            })
        });
        shown["requests"] = requests.collect();
        shown["counts"] = shown["tasks"].take();
        shown["tasks"] = tasks.into();
        shown["walkthroughs"] = walkthroughs.into();
        Ok(shown)
    }

    /// Executes a run in this process.
    pub(super) fn forge_start(&self, run: &str, body: &[u8]) -> Result<Value, ApiError> {
        let order: StartRunBody = if body.is_empty() { StartRunBody::default() } else { parse_body(body)? };
        if order.parallel.is_some_and(|it| !(1..=16).contains(&it)) {
            return Err(ApiError::bad_request("parallel must be from 1 to 16"));
        }
        let (home, run) = self.forge_dir_of(run)?;
        if self.runtime.endpoint().is_none() {
            return Err(ApiError::no_model_configured());
        }
        if self.shutdown.is_cancelled() {
            return Err(ApiError::unavailable("the server is about to end"));
        }
        let usual = RunOptions::default();
        let how = RunOptions {
            max_agents: order.parallel.map_or(usual.max_agents, usize::from),
            ask_about_changes: order.ask_about_changes,
            ..usual
        };
        let executor = forge::claim_run(&self.runtime, &home, &run, &how).map_err(|untaken| match untaken {
            ClaimError::Busy(why) => ApiError::conflict(why),
            ClaimError::Other(fault) => ApiError::conflict(fault.to_string()),
        })?;
        let (cancel, hub, named) = (self.forge.shutdown.child_token(), self.event_bus.clone(), run.clone());
        let stop = cancel.clone();
        hub.publish(DIALECT, ForgeStarted { run: run.label.clone() });
        let work = tokio::spawn(async move {
            let ended = forge::execute(&executor, &stop).await;
            // Listeners of the end event find the repository free.
            drop(executor);
            hub.publish(DIALECT, run_ended_json(&named, ended));
        });
        self.forge.lock().insert(run.id.clone(), (cancel, work));
        Ok(json!({ "run": run.label, "id": run.id }))
    }

    /// Stops the executor of a run, here or in another process.
    pub(super) fn forge_cancel(&self, run: &str) -> Result<Value, ApiError> {
        let (home, run) = self.forge_dir_of(run)?;
        if let Some((cancel, _)) = self.forge.lock().get(&run.id) {
            cancel.cancel();
        }
        if !self.forge.is_running(&run.id) {
            let stop = forge::stop_file(&home, &run).map_err(ApiError::internal)?;
            std::fs::write(stop, "").map_err(ApiError::internal)?;
        }
        Ok(json!({ "run": run.label, "id": run.id }))
    }

    /// Accepts or rejects a change request.
    pub(super) async fn forge_decide(&self, run: &str, request: &str, body: &[u8]) -> Result<Value, ApiError> {
        let ChangeDecisionBody { answer } = parse_body(body)?;
        let (home, run) = self.forge_dir_of(run)?;
        let call = forge::artifacts_call(&home, &run);
        let room = CallArtifacts::for_call(&call)?;
        let all = ChangeRequest::load_all(&room).await?;
        if !all.iter().any(|it| it.front.id == request) {
            return Err(ApiError::not_found("there is no such change request in this run"));
        }
        let to = match answer {
            ChangeDecision::Approve => ChangeRequestStatus::Approved,
            ChangeDecision::Reject => ChangeRequestStatus::Rejected,
        };
        ChangeRequest::transition(&room, request, to).await.map_err(|error| ApiError::conflict(error.to_string()))?;
        Ok(json!({ "id": request, "status": to }))
    }

    /// Where the runs are, if there are any.
    fn forge_dir(&self) -> Result<Option<ForgeDir>, ApiError> {
        let settings = self.runtime.settings();
        // Reading creates no directories.
        if !settings.workspace.join(".forge/artifacts").is_dir() || !settings.workspace.join(".git").is_dir() {
            return Ok(None);
        }
        forge::forge_dir(settings).map(Some).map_err(ApiError::internal)
    }

    /// Where a run is that exists.
    fn forge_dir_of(&self, run: &str) -> Result<(ForgeDir, Run), ApiError> {
        let missing = || ApiError::not_found("there is no such run; /api/forge lists them");
        check_file_name("run", run).map_err(|_| missing())?;
        let home = self.forge_dir()?.ok_or_else(missing)?;
        let run = forge::require_run(&home, run).map_err(|_| missing())?;
        Ok((home, run))
    }
}

/// How an execution ended.
fn run_ended_json(run: &Run, ended: Result<RunSummary, CliError>) -> ForgeEnded {
    let run = run.label.clone();
    match ended {
        Ok(it) => ForgeEnded {
            run,
            state: Some(it.status.into()),
            merged: Some(it.merged as u64),
            total: Some(it.total as u64),
            exhausted: Some(it.exhausted),
            waiting: Some(it.pending_requests),
            remarks: Some(it.notes),
            error: None,
        },
        Err(fault) => ForgeEnded {
            run,
            state: None,
            merged: None,
            total: None,
            exhausted: None,
            waiting: None,
            remarks: None,
            error: Some(fault.to_string()),
        },
    }
}

/// A run in a few words.
fn run_json(run: &Run, seen: &RunView) -> Value {
    let count = |wanted: &[TaskStatus]| {
        let nodes = seen.status.iter().flat_map(|it| it.nodes.values());
        nodes.filter(|it| wanted.contains(&it.status)).count()
    };
    let state = seen.state.as_ref().map_or_else(|| "planning".into(), |it| json!(it.status));
    let times = [
        seen.status.as_ref().map(|it| it.updated_at),
        seen.state.as_ref().and_then(|it| it.completed_at),
        seen.state.as_ref().map(|it| it.created_at),
    ];
    let updated: Option<Timestamp> = times.into_iter().flatten().max();
    json!({
        "id": run.label,
        "uuid": run.id,
        "state": state,
        "tasks": {
            "total": seen.dag.as_ref().map_or(0, |it| it.nodes.len()),
            "merged": count(&[TaskStatus::Merged]),
            "running": count(&[TaskStatus::Running]),
            "failed": count(&[TaskStatus::Failed, TaskStatus::Stale]),
        },
        "updated": updated,
    })
}

/// What a run is about: the first heading of its first spec.
async fn run_title(home: &ForgeDir, run: &Run) -> Option<String> {
    let call = forge::artifacts_call(home, run);
    let room = CallArtifacts::for_call(&call).ok()?;
    let first = room.list_names("specs").await.ok()?.into_iter().next()?;
    let text = room.read_text(&format!("specs/{first}")).await.ok()?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "))?;
    Some(heading.trim().chars().take(200).collect())
}

async fn task_json(room: &CallArtifacts<'_>, seen: &RunView, dag: &Dag, id: &str) -> Value {
    let document = room.read_text(&format!("tasks/{id}.md")).await;
    let title =
        document.and_then(|it| FrontMatterDocument::<TaskFrontMatter>::parse(&it, "task")).map(|it| it.front.title);
    let node = dag.node(id);
    let state = seen.status.as_ref().and_then(|it| it.nodes.get(id));
    let kind = if node.is_some_and(|it| it.kind == DagNodeKind::Refinery) { "refinery" } else { "task" };
    json!({
        "id": id,
        "title": title.unwrap_or_else(|_| id.to_owned()),
        "kind": kind,
        "state": state.map(|it| it.status),
        "attempt": state.map_or(0, |it| it.current_attempt),
        "deps": node.map(|it| it.dependencies.clone()).unwrap_or_default(),
        "agent": state.and_then(|it| it.assigned_agent.clone()),
        "last_line": seen.activity.get(id),
        "error": state.and_then(|it| it.last_error.clone()),
        "started": state.and_then(|it| it.started_at),
        "ended": state.and_then(|it| it.completed_at),
    })
}

/// What the agent of a task told last, if it did.
async fn walkthrough(room: &CallArtifacts<'_>, task: &str) -> Option<Value> {
    let attempt = Walkthrough::latest_attempt(room, task).await.ok()??;
    let text = room.read_text(&Walkthrough::path(task, attempt)).await.ok()?;
    let told = Walkthrough::parse(&text).ok()?;
    let summary = told.body.split("## ").find_map(|it| it.strip_prefix("Summary")).unwrap_or_default().trim();
    Some(json!({
        "task": task, "attempt": attempt, "status": told.front.status, "summary": truncate_text(summary),
        "confidence": told.front.confidence, "risks": told.front.risks, "followups": told.front.followups,
        "files": told.front.files_changed,
    }))
}
