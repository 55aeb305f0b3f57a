//! The executor: starts ready tasks, handles results, merges, and ends when nothing is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use helve_contract::{
    Call, CancellationToken, Error, Event, Result, Session, TaskContext,
    events::{PauseReason, RunCompleted, RunPaused, RunResumed, RunStarted, TaskRetried},
    jiff::Timestamp,
};
use helve_engine::{Engine, EventLog};
use helve_tools::{
    artifacts::{CallArtifacts, Dag, DagStatus, RunPhase, RunState, StoredRunStatus, TaskStatus},
    git::Git,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, mpsc};

use super::{
    ExecutorLock, ForgeDir, Run,
    changes::RequestState,
    working::{TaskFuture, TaskOutcome},
};
use crate::{Budget, SessionFactory, SessionSpec};

/// How a run is executed.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Agents at once.
    pub max_agents: usize,
    /// How often the executor says that an agent lives.
    pub heartbeat: Duration,
    /// How long an agent may be silent.
    pub stale_after: Duration,
    /// The pause before a second attempt; it doubles with each one.
    pub backoff: Duration,
    /// What one agent may spend.
    pub budget: Budget,
    /// The name of the model, for the record.
    pub model: String,
    /// A person decides about change requests, and not the captain.
    pub ask_about_changes: bool,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            max_agents: 4,
            heartbeat: Duration::from_secs(30),
            stale_after: Duration::from_secs(600),
            backoff: Duration::from_secs(1),
            budget: Budget { max_time: Some(Duration::from_secs(3600)), ..Budget::default() },
            model: String::new(),
            ask_about_changes: false,
        }
    }
}

/// How a run ended, or why it is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// How it stands.
    pub status: StoredRunStatus,
    /// Tasks that are merged.
    pub merged: usize,
    /// Tasks in all.
    pub total: usize,
    /// Tasks that have used all of their attempts.
    pub exhausted: Vec<String>,
    /// Change requests that wait for a person.
    pub pending_requests: Vec<String>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// Executes one run.
pub struct Executor {
    pub(super) session_factory: Arc<dyn SessionFactory>,
    pub(super) forge_dir: ForgeDir,
    pub(super) settings: ExecutorConfig,
    pub(super) engine: Arc<Engine>,
    pub(super) session: Arc<Session>,
    pub(super) run: Run,
    pub(super) base: String,
    pub(super) request_states: Mutex<BTreeMap<String, RequestState>>,
    identity: OnceCell<Vec<String>>,
    events: EventLog,
    /// The run without a task. Everybody who works in it shares its lease.
    errand: TaskContext,
    _lock: ExecutorLock,
}

impl Executor {
    /// Opens the run. `base` is the target branch. [`Error::Denied`] means that another executor works in the
    /// repository.
    pub fn open(
        workshop: Arc<dyn SessionFactory>,
        home: ForgeDir,
        run: &Run,
        base: &str,
        settings: ExecutorConfig,
    ) -> Result<Self> {
        helve_tools::artifacts::check_file_name("run", &run.label)?;
        helve_tools::git::check_branch_name(base)?;
        let lock = ExecutorLock::acquire(&home, run).map_err(|error| Error::denied(error.to_string()))?;
        let record = home.event_file(run).map_err(|error| Error::Internal(error.into()))?;
        let errand = home.task_context(run, &integration_branch(&run.label));
        let need = SessionSpec {
            id: format!("{}-executor", run.id),
            label: Some(format!("{}-executor", run.label)),
            dialect: Some("forge".into()),
            agent: Some("executor".into()),
            role: Some("executor".into()),
            workspace: Some(home.repo().to_owned()),
            unattended: true,
            task: Some(errand.clone()),
            event_file: Some(record.clone()),
            ..SessionSpec::default()
        };
        let (engine, session) = workshop.create_session(&need)?;
        let events = EventLog::file(&record, run.id.as_str()).map_err(|error| Error::Internal(error.into()))?;
        let (run, base) = (run.clone(), base.to_owned());
        Ok(Self {
            session_factory: workshop,
            forge_dir: home,
            settings,
            engine,
            session,
            run,
            base,
            request_states: Mutex::default(),
            identity: OnceCell::new(),
            events,
            errand,
            _lock: lock,
        })
    }

    /// Where the run lives.
    #[must_use]
    pub fn forge_dir(&self) -> &ForgeDir {
        &self.forge_dir
    }

    /// The run.
    #[must_use]
    pub fn planned_run(&self) -> &Run {
        &self.run
    }

    /// What somebody does in the run, with the lease of this executor.
    pub(super) fn errand(&self) -> TaskContext {
        self.errand.clone()
    }

    /// A call of the executor itself.
    pub(super) fn call(&self) -> Call {
        Call::new("executor", self.session.clone())
    }

    /// Git in the repository. It is looked at once.
    pub(super) async fn git<'a>(&self, call: &'a Call) -> Result<Git<'a>> {
        let identity = self.identity.get_or_try_init(|| async { Git::open(call).await?.identity().await }).await?;
        Ok(Git::with_identity(call, identity.clone()))
    }

    /// Records an event. A failed record never stops a run.
    pub(super) fn emit(&self, event: impl Into<Event>) {
        _ = self.events.emit(event);
    }

    /// Calls one of the executor's tools through the engine.
    pub(super) async fn call_tool(&self, name: &str, args: Value) -> Result<Value> {
        let reply = self.engine.run(name, args, self.call()).await;
        let data = reply.data.unwrap_or_default();
        if reply.is_error {
            let words = data["error"].as_str().map_or(reply.text, str::to_owned);
            return Err(Error::failed(words));
        }
        Ok(data)
    }

    /// Moves a task.
    pub(super) async fn set_status(&self, task: &str, status: TaskStatus) -> Result<()> {
        self.call_tool("mark_task_status", json!({ "taskId": task, "status": status })).await.map(|_| ())
    }

    /// Executes until everything is merged, nothing can continue, a decision is needed, or it is cancelled.
    /// [`Error::RunHeld`]: the run is planned or executed elsewhere. [`Error::LeaseLost`]: another executor has taken
    /// over.
    pub async fn run(&self, cancel: &CancellationToken) -> Result<RunSummary> {
        self.errand.artifacts.claim().await?;
        let summary = self.run_claimed(cancel).await;
        let released = self.errand.artifacts.release().await;
        let summary = summary?;
        released.map(|()| summary)
    }

    async fn run_claimed(&self, cancel: &CancellationToken) -> Result<RunSummary> {
        let (orders, mut ordered) = mpsc::unbounded_channel::<TaskFuture<'_>>();
        let (tells, told) = mpsc::unbounded_channel();
        // Agents continue while this one merges, asks the captain or waits for git.
        let crew = async {
            let mut working: FuturesUnordered<TaskFuture<'_>> = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some(worker) = ordered.recv() => working.push(worker),
                    Some(ended) = working.next() => {
                        // Whoever does not listen any more has ended.
                        _ = tells.send(ended);
                    }
                    else => std::future::pending::<()>().await,
                }
            }
        };
        tokio::select! {
            summary = self.schedule_loop(cancel, orders, told) => summary,
            () = crew => Err(Error::failed("the agents were lost")),
        }
    }

    /// The scheduling loop.
    async fn schedule_loop<'a>(
        &'a self,
        cancel: &CancellationToken,
        orders: mpsc::UnboundedSender<TaskFuture<'a>>,
        mut told: mpsc::UnboundedReceiver<(String, TaskOutcome)>,
    ) -> Result<RunSummary> {
        let call = self.call();
        let room = CallArtifacts::for_call(&call)?;
        let began = call.now();
        self.remove_stale_locks();
        self.check_and_start(&room).await?;
        self.recover(&room).await?;
        let mut working: BTreeSet<String> = BTreeSet::new();
        let mut not_before: BTreeMap<String, Timestamp> = BTreeMap::new();
        let mut tick = tokio::time::interval(self.settings.heartbeat.min(Duration::from_secs(1)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let waiting = loop {
            let waiting = self.process_change_requests(&room).await?;
            let dag = room.dag().await?;
            if self.merge_ready(&room, &dag).await? {
                // It asked for a change of the plan, which comes first.
                continue;
            }
            let status = room.status(&dag).await?;
            let stopped = cancel.is_cancelled() || !waiting.is_empty();
            let mut aside = self.pending_followups(&room, &working).await?;
            if !stopped {
                for task in self.ready_tasks(&dag, &status, &not_before, &working) {
                    _ = orders.send(self.spawn_task(&dag, &task, cancel.clone()));
                    working.insert(task);
                }
                let free = self.settings.max_agents.saturating_sub(working.len()).min(aside.len());
                for (id, what) in aside.drain(..free) {
                    _ = orders.send(self.run_followup(id.clone(), what, cancel.clone()));
                    working.insert(id);
                }
            }
            self.save_state(&room, &dag, &waiting, working.len()).await?;
            // What is pending and can begin was begun, or rests; what can be tried again is made pending by the tick.
            let more = status.ready(&dag).next().is_some() || status.nodes.values().any(can_retry) || !aside.is_empty();
            if working.is_empty() && (stopped || !more) {
                break waiting;
            }
            tokio::select! {
                Some((task, ended)) = told.recv() => {
                    self.handle_outcome(&room, &task, ended, cancel, &mut not_before).await?;
                    working.remove(&task);
                }
                _ = tick.tick() => {
                    self.errand.artifacts.renew().await?;
                    self.retry_failed(&room, &not_before).await?;
                }
            }
        };
        self.finish(&room, waiting, began, cancel.is_cancelled()).await
    }

    /// Checks that the plan can run, and says that it does.
    async fn check_and_start(&self, room: &CallArtifacts<'_>) -> Result<()> {
        let dag = room.dag().await?;
        let lacking: Vec<_> = {
            let mut lacking = Vec::new();
            for node in &dag.nodes {
                if room.read_bytes(&format!("tasks/{}.md", node.id)).await?.is_none() {
                    lacking.push(node.id.as_str());
                }
            }
            lacking
        };
        if !lacking.is_empty() {
            return Err(Error::failed(format!(
                "these tasks have no document: {}; write them with create_task",
                lacking.join(", ")
            )));
        }
        self.create_integration_branch().await?;
        let now = self.call().now();
        let (tasks, refineries) = dag.counts();
        let repo = self.forge_dir.repo().display().to_string();
        let mut first = false;
        room.update_record(
            "run-state.json",
            || Ok(RunState::new(&self.run.id, &repo, now)),
            |state: &mut RunState| {
                first = state.started_at.is_none();
                state.status = StoredRunStatus::Executing;
                state.current_phase = RunPhase::Execution;
                state.started_at.get_or_insert(now);
                state.total_tasks = tasks + refineries;
                state.base_branch.clone_from(&self.base);
                state.model.clone_from(&self.settings.model);
                Ok(())
            },
        )
        .await?;
        if first {
            let plan = room.read_bytes("dag.json").await?.unwrap_or_default();
            let hash = Sha256::digest(plan).iter().fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"));
            self.emit(RunStarted { repo_url: repo, dag_hash: hash });
        } else {
            self.emit(RunResumed { cr_id: None, overlay_id: None });
        }
        Ok(())
    }

    /// Tasks that can begin now, in the order of the plan, as far as there is room for more agents.
    fn ready_tasks(
        &self,
        dag: &Dag,
        status: &DagStatus,
        not_before: &BTreeMap<String, Timestamp>,
        working: &BTreeSet<String>,
    ) -> Vec<String> {
        let now = self.call().now();
        let free = self.settings.max_agents.saturating_sub(working.len());
        let rested = |id: &str| not_before.get(id).is_none_or(|time| *time <= now);
        let ready = status.ready(dag).filter(|node| rested(&node.id) && !working.contains(&node.id));
        ready.map(|node| node.id.clone()).take(free).collect()
    }

    /// Gives tasks that failed another attempt, once they have rested.
    async fn retry_failed(&self, room: &CallArtifacts<'_>, not_before: &BTreeMap<String, Timestamp>) -> Result<()> {
        let dag = room.dag().await?;
        let now = self.call().now();
        let again: Vec<_> = {
            let status = room.status(&dag).await?;
            let rested = |id: &String| not_before.get(id).is_none_or(|time| *time <= now);
            status
                .nodes
                .values()
                .filter(|it| can_retry(it) && rested(&it.task_id))
                .map(|it| it.task_id.clone())
                .collect()
        };
        for task in again {
            self.set_status(&task, TaskStatus::Pending).await?;
            let attempt = room.status(&dag).await?.node(&task)?.current_attempt;
            let branch = format!("forge/{task}/{attempt}");
            self.emit(TaskRetried { task_id: task, attempt_id: attempt.to_string(), branch });
        }
        Ok(())
    }

    /// Keeps how the run stands.
    async fn save_state(&self, room: &CallArtifacts<'_>, dag: &Dag, waiting: &[String], working: usize) -> Result<()> {
        let status = room.status(dag).await?;
        let count = |wanted: TaskStatus| status.nodes.values().filter(|it| it.status == wanted).count();
        let (merged, total) = (count(TaskStatus::Merged), dag.nodes.len());
        let failed = status.nodes.values().filter(|it| is_exhausted(it)).count();
        let paused = !waiting.is_empty();
        let last = self.forge_dir.last_event(&self.run);
        let waiting = waiting.to_vec();
        let first = waiting.first().cloned();
        let changed = room
            .update_record(
                "run-state.json",
                || Err(Error::failed("the run has lost its state")),
                move |state: &mut RunState| {
                    let was = state.status;
                    (state.completed_tasks, state.failed_tasks) = (merged, failed);
                    (state.running_tasks, state.total_tasks) = (working, total);
                    state.active_crs.clone_from(&waiting);
                    set_last_event(state, last.as_ref());
                    state.status = if paused { StoredRunStatus::Paused } else { StoredRunStatus::Executing };
                    state.current_phase = if paused { RunPhase::Paused } else { RunPhase::Execution };
                    Ok((was != state.status).then_some(state.status))
                },
            )
            .await?;
        match changed {
            Some(StoredRunStatus::Paused) => {
                self.emit(RunPaused { reason: PauseReason::ChangeRequest, cr_id: first });
            }
            Some(StoredRunStatus::Executing) => self.emit(RunResumed { cr_id: None, overlay_id: None }),
            _ => {}
        }
        Ok(())
    }

    /// Records how the run ended or why it is paused; a fully merged run is merged into its base branch.
    async fn finish(
        &self,
        room: &CallArtifacts<'_>,
        waiting: Vec<String>,
        began: Timestamp,
        stopped: bool,
    ) -> Result<RunSummary> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let merged = status.nodes.values().filter(|it| it.status == TaskStatus::Merged).count();
        let exhausted: Vec<_> =
            status.nodes.values().filter(|it| is_exhausted(it)).map(|it| it.task_id.clone()).collect();
        let mut remarks = Vec::new();
        let end = if merged == dag.nodes.len() {
            remarks.extend(self.merge_into_base().await?);
            for branch in self.finished_branches(room).await? {
                remarks.push(format!("a follow-up waits on `{branch}`: look at it, and merge it if it is right"));
            }
            StoredRunStatus::Completed
        } else if stopped || !waiting.is_empty() {
            StoredRunStatus::Paused
        } else {
            StoredRunStatus::Failed
        };
        let now = self.call().now();
        room.update_record(
            "run-state.json",
            || Err(Error::failed("the run has lost its state")),
            |state: &mut RunState| {
                state.status = end;
                (state.completed_tasks, state.failed_tasks, state.running_tasks) = (merged, exhausted.len(), 0);
                if end == StoredRunStatus::Paused {
                    state.current_phase = RunPhase::Paused;
                }
                if matches!(end, StoredRunStatus::Completed | StoredRunStatus::Failed) {
                    state.completed_at.get_or_insert(now);
                    state.current_phase = RunPhase::Completed;
                }
                Ok(())
            },
        )
        .await?;
        if stopped && end == StoredRunStatus::Paused {
            self.emit(RunPaused { reason: PauseReason::User, cr_id: None });
        }
        if matches!(end, StoredRunStatus::Completed | StoredRunStatus::Failed) {
            let seconds = now.duration_since(began).as_secs();
            self.emit(RunCompleted {
                total_completed: merged as u64,
                total_failed: exhausted.len() as u64,
                duration: seconds,
            });
        }
        let last = self.forge_dir.last_event(&self.run);
        room.update_record(
            "run-state.json",
            || Err(Error::failed("the run has lost its state")),
            |state: &mut RunState| {
                set_last_event(state, last.as_ref());
                Ok(())
            },
        )
        .await?;
        Ok(RunSummary {
            status: end,
            merged,
            total: dag.nodes.len(),
            exhausted,
            pending_requests: waiting,
            notes: remarks,
        })
    }
}

fn set_last_event(state: &mut RunState, last: Option<&(String, u64)>) {
    if let Some((id, seq)) = last {
        (state.last_event_id, state.last_event_seq) = (id.clone(), *seq);
    }
}

/// The branch that a run's work is merged into, until it lands.
pub(super) fn integration_branch(label: &str) -> String {
    format!("forge-run/{label}")
}

pub(super) fn is_exhausted(node: &helve_tools::artifacts::NodeStatus) -> bool {
    matches!(node.status, TaskStatus::Failed | TaskStatus::Stale) && node.current_attempt >= node.max_attempts
}

fn can_retry(node: &helve_tools::artifacts::NodeStatus) -> bool {
    matches!(node.status, TaskStatus::Failed | TaskStatus::Stale) && node.current_attempt < node.max_attempts
}
