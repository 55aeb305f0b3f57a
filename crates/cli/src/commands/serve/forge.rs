//! `/api/forge`: planned runs of the workspace's repository, looked at, executed here, and decided about.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_agent::forge::{Home, Run, Summary};
use helve_contract::{
    CancellationToken,
    events::{ForgeEnded, ForgeStarted},
    jiff::Timestamp,
};
use helve_tools::artifacts::{
    ChangeRequest, Dag, Document, NodeKind, RequestStatus, Room, Status, Task, Walkthrough, name,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{board::bounded, routes::parsed, say::No, site::Site};
use crate::{
    commands::forge::{self, How, Untaken, look::Seen},
    fault::Fault,
};

/// How long agents have to end when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The dialect of planned runs, as events name it.
const DIALECT: &str = "forge";

/// The runs that are executed in this process.
pub(super) struct Forge {
    closing: CancellationToken,
    running: Mutex<HashMap<String, (CancellationToken, JoinHandle<()>)>>,
}

/// How a run is executed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Order {
    /// Agents at once.
    parallel: Option<u8>,
    /// Change requests wait for a person, and not for the captain.
    ask_about_changes: bool,
}

/// What becomes of a change request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    answer: Word,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Approve,
    Reject,
}

impl Forge {
    pub(super) fn new(closing: CancellationToken) -> Self {
        Self { closing, running: Mutex::default() }
    }

    /// Stops what is executed here; whoever runs it next goes on.
    pub(super) async fn end(&self) {
        let all: Vec<_> = self.lock().drain().collect();
        for (_, (cancel, work)) in all {
            cancel.cancel();
            _ = tokio::time::timeout(LAST_WORDS, work).await;
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

impl Site {
    /// The runs of the repository; none where there is no repository.
    pub(super) async fn forge_runs(&self) -> Result<Value, No> {
        let Some(home) = self.home()? else { return Ok(json!({ "runs": [] })) };
        let mut runs = Vec::new();
        for run in home.runs() {
            // A folder that is no run is no reason to show none.
            if let Ok(seen) = forge::look::see(&home, &run).await {
                let mut shown = brief(&run, &seen);
                shown["title"] = title(&home, &run).await.unwrap_or_else(|| run.label.clone()).into();
                shown["here"] = self.forge.is_running(&run.id).into();
                runs.push(shown);
            }
        }
        Ok(json!({ "runs": runs }))
    }

    /// A run with its tasks, its change requests, and what its agents tell.
    pub(super) async fn forge_run(&self, run: &str) -> Result<Value, No> {
        let (home, run) = self.home_of(run)?;
        let seen = forge::look::see(&home, &run)
            .await
            .map_err(|fault| No::conflict(format!("this run cannot be read: {fault}")))?;
        let call = forge::visitor(&home, &run);
        let room = Room::of(&call)?;
        let mut shown = brief(&run, &seen);
        shown["title"] = title(&home, &run).await.unwrap_or_else(|| run.label.clone()).into();
        shown["here"] = self.forge.is_running(&run.id).into();
        let (mut tasks, mut walkthroughs) = (Vec::new(), Vec::new());
        if let Some(dag) = &seen.dag {
            for node in dag.order() {
                tasks.push(task(&room, &seen, dag, &node.id).await);
                walkthroughs.extend(walkthrough(&room, &node.id).await);
            }
        }
        let requests = ChangeRequest::all(&room).await.unwrap_or_default();
        let requests = requests.into_iter().map(|it| {
            json!({
                "id": it.front.id, "status": it.front.status, "summary": it.front.title, "body": bounded(&it.body),
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
    pub(super) fn forge_start(&self, run: &str, body: &[u8]) -> Result<Value, No> {
        let order: Order = if body.is_empty() { Order::default() } else { parsed(body)? };
        if order.parallel.is_some_and(|it| !(1..=16).contains(&it)) {
            return Err(No::bad("parallel must be from 1 to 16"));
        }
        let (home, run) = self.home_of(run)?;
        if self.bench.endpoint().is_none() {
            return Err(No::no_model());
        }
        if self.closing.is_cancelled() {
            return Err(No::busy("the server is about to end"));
        }
        let usual = How::default();
        let how = How {
            parallel: order.parallel.map_or(usual.parallel, usize::from),
            ask_about_changes: order.ask_about_changes,
            ..usual
        };
        let executor = forge::take_up(&self.bench, &home, &run, &how).map_err(|untaken| match untaken {
            Untaken::Busy(why) => No::conflict(why),
            Untaken::Fault(fault) => No::conflict(fault.to_string()),
        })?;
        let (cancel, hub, named) = (self.forge.closing.child_token(), self.hub.clone(), run.clone());
        let stop = cancel.clone();
        hub.tell(DIALECT, ForgeStarted { run: run.label.clone() });
        let work = tokio::spawn(async move {
            let ended = forge::execute(&executor, &stop).await;
            // Whoever hears of the end finds the repository free.
            drop(executor);
            hub.tell(DIALECT, told(&named, ended));
        });
        self.forge.lock().insert(run.id.clone(), (cancel, work));
        Ok(json!({ "run": run.label, "id": run.id }))
    }

    /// Stops the executor of a run, here or in another process.
    pub(super) fn forge_cancel(&self, run: &str) -> Result<Value, No> {
        let (home, run) = self.home_of(run)?;
        if let Some((cancel, _)) = self.forge.lock().get(&run.id) {
            cancel.cancel();
        }
        if !self.forge.is_running(&run.id) {
            let stop = forge::stop_file(&home, &run).map_err(No::broken)?;
            std::fs::write(stop, "").map_err(No::broken)?;
        }
        Ok(json!({ "run": run.label, "id": run.id }))
    }

    /// Lets a change request into the plan, or turns it down.
    pub(super) async fn forge_decide(&self, run: &str, request: &str, body: &[u8]) -> Result<Value, No> {
        let Decision { answer } = parsed(body)?;
        let (home, run) = self.home_of(run)?;
        let call = forge::visitor(&home, &run);
        let room = Room::of(&call)?;
        let all = ChangeRequest::all(&room).await?;
        if !all.iter().any(|it| it.front.id == request) {
            return Err(No::missing("there is no such change request in this run"));
        }
        let to = match answer {
            Word::Approve => RequestStatus::Approved,
            Word::Reject => RequestStatus::Rejected,
        };
        ChangeRequest::go(&room, request, to).await.map_err(|error| No::conflict(error.to_string()))?;
        Ok(json!({ "id": request, "status": to }))
    }

    /// Where the runs are, if there are any.
    fn home(&self) -> Result<Option<Home>, No> {
        let settings = self.bench.settings();
        // Looking makes no folders.
        if !settings.workspace.join(".forge/artifacts").is_dir() || !settings.workspace.join(".git").is_dir() {
            return Ok(None);
        }
        forge::home(settings).map(Some).map_err(No::broken)
    }

    /// Where a run is that exists.
    fn home_of(&self, run: &str) -> Result<(Home, Run), No> {
        let missing = || No::missing("there is no such run; /api/forge lists them");
        name("run", run).map_err(|_| missing())?;
        let home = self.home()?.ok_or_else(missing)?;
        let run = forge::known(&home, run).map_err(|_| missing())?;
        Ok((home, run))
    }
}

/// How an execution ended.
fn told(run: &Run, ended: Result<Summary, Fault>) -> ForgeEnded {
    let run = run.label.clone();
    match ended {
        Ok(it) => ForgeEnded {
            run,
            state: Some(it.status.into()),
            merged: Some(it.merged as u64),
            total: Some(it.total as u64),
            exhausted: Some(it.exhausted),
            waiting: Some(it.waiting),
            remarks: Some(it.remarks),
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
fn brief(run: &Run, seen: &Seen) -> Value {
    let count = |wanted: &[Status]| {
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
            "merged": count(&[Status::Merged]),
            "running": count(&[Status::Running]),
            "failed": count(&[Status::Failed, Status::Stale]),
        },
        "updated": updated,
    })
}

/// What a run is about: the first heading of its first spec.
async fn title(home: &Home, run: &Run) -> Option<String> {
    let call = forge::visitor(home, run);
    let room = Room::of(&call).ok()?;
    let first = room.names("specs").await.ok()?.into_iter().next()?;
    let text = room.text(&format!("specs/{first}")).await.ok()?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "))?;
    Some(heading.trim().chars().take(200).collect())
}

async fn task(room: &Room<'_>, seen: &Seen, dag: &Dag, id: &str) -> Value {
    let document = room.text(&format!("tasks/{id}.md")).await;
    let title = document.and_then(|it| Document::<Task>::parse(&it, "task")).map(|it| it.front.title);
    let node = dag.node(id);
    let state = seen.status.as_ref().and_then(|it| it.nodes.get(id));
    let kind = if node.is_some_and(|it| it.kind == NodeKind::Refinery) { "refinery" } else { "task" };
    json!({
        "id": id,
        "title": title.unwrap_or_else(|_| id.to_owned()),
        "kind": kind,
        "state": state.map(|it| it.status),
        "attempt": state.map_or(0, |it| it.current_attempt),
        "deps": node.map(|it| it.dependencies.clone()).unwrap_or_default(),
        "agent": state.and_then(|it| it.assigned_agent.clone()),
        "last_line": seen.lines.get(id),
        "error": state.and_then(|it| it.last_error.clone()),
        "started": state.and_then(|it| it.started_at),
        "ended": state.and_then(|it| it.completed_at),
    })
}

/// What the agent of a task told last, if it did.
async fn walkthrough(room: &Room<'_>, task: &str) -> Option<Value> {
    let attempt = Walkthrough::latest(room, task).await.ok()??;
    let text = room.text(&Walkthrough::place(task, attempt)).await.ok()?;
    let told = Walkthrough::parse(&text).ok()?;
    let summary = told.body.split("## ").find_map(|it| it.strip_prefix("Summary")).unwrap_or_default().trim();
    Some(json!({
        "task": task, "attempt": attempt, "status": told.front.status, "summary": bounded(summary),
        "confidence": told.front.confidence, "risks": told.front.risks, "followups": told.front.followups,
        "files": told.front.files_changed,
    }))
}
