//! The executor: starts what is ready, hears of what has ended, merges, and ends when nothing is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use helve_contract::{
    Call, CancellationToken, Errand, Error, Event, Result, Session,
    events::{PauseReason, RunCompleted, RunPaused, RunResumed, RunStarted, TaskRetried},
    jiff::Timestamp,
};
use helve_engine::{Engine, EventLog};
use helve_tools::{
    artifacts::{Dag, DagStatus, Phase, Room, RunState, RunStatus, Status},
    git::Git,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, mpsc};

use super::{
    Home, Lock, Run,
    changes::Seen,
    working::{Worked, Worker},
};
use crate::{Budget, Need, Workshop};

/// How a run is executed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Agents at once.
    pub parallel: usize,
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            parallel: 4,
            heartbeat: Duration::from_secs(30),
            stale_after: Duration::from_secs(600),
            backoff: Duration::from_secs(1),
            budget: Budget { time: Some(Duration::from_secs(3600)), ..Budget::default() },
            model: String::new(),
            ask_about_changes: false,
        }
    }
}

/// How a run ended, or why it rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How it stands.
    pub status: RunStatus,
    /// Tasks that are merged.
    pub merged: usize,
    /// Tasks in all.
    pub total: usize,
    /// Tasks that have used all of their attempts.
    pub exhausted: Vec<String>,
    /// Change requests that wait for a person.
    pub waiting: Vec<String>,
    /// What else there is to say.
    pub remarks: Vec<String>,
}

/// Executes one run.
pub struct Executor {
    pub(super) workshop: Arc<dyn Workshop>,
    pub(super) home: Home,
    pub(super) settings: Settings,
    pub(super) engine: Arc<Engine>,
    pub(super) session: Arc<Session>,
    pub(super) run: Run,
    pub(super) base: String,
    pub(super) seen: Mutex<BTreeMap<String, Seen>>,
    identity: OnceCell<Vec<String>>,
    events: EventLog,
    /// The run without a task. Everybody who works in it shares its lease.
    errand: Errand,
    _lock: Lock,
}

impl Executor {
    /// Takes the run up. `base` is the branch that everything ends in. [`Error::Denied`] says that another executor works
    /// in the repository.
    pub fn open(workshop: Arc<dyn Workshop>, home: Home, run: &Run, base: &str, settings: Settings) -> Result<Self> {
        helve_tools::artifacts::name("run", &run.label)?;
        helve_tools::git::branch_name(base)?;
        let lock = Lock::take(&home, run).map_err(|error| Error::denied(error.to_string()))?;
        let record = home.events(run).map_err(|error| Error::Internal(error.into()))?;
        let errand = home.errand(run, &integration(&run.label));
        let need = Need {
            id: format!("{}-executor", run.id),
            label: Some(format!("{}-executor", run.label)),
            dialect: Some("forge".into()),
            agent: Some("executor".into()),
            role: Some("executor".into()),
            workspace: Some(home.repo().to_owned()),
            alone: true,
            errand: Some(errand.clone()),
            record: Some(record.clone()),
            ..Need::default()
        };
        let (engine, session) = workshop.equip(&need)?;
        let events = EventLog::file(&record, run.id.as_str()).map_err(|error| Error::Internal(error.into()))?;
        let (run, base) = (run.clone(), base.to_owned());
        Ok(Self {
            workshop,
            home,
            settings,
            engine,
            session,
            run,
            base,
            seen: Mutex::default(),
            identity: OnceCell::new(),
            events,
            errand,
            _lock: lock,
        })
    }

    /// Where the run lives.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The run.
    #[must_use]
    pub fn planned_run(&self) -> &Run {
        &self.run
    }

    /// What somebody does in the run, with the lease of this executor.
    pub(super) fn errand(&self) -> Errand {
        self.errand.clone()
    }

    /// A call of the executor itself.
    pub(super) fn call(&self) -> Call {
        Call::new("executor", self.session.clone())
    }

    /// Git in the repository. It is looked at once.
    pub(super) async fn git<'a>(&self, call: &'a Call) -> Result<Git<'a>> {
        let identity = self.identity.get_or_try_init(|| async { Git::of(call).await?.identity().await }).await?;
        Ok(Git::known(call, identity.clone()))
    }

    /// Records something. A record that cannot be written never stops a run.
    pub(super) fn tell(&self, event: impl Into<Event>) {
        _ = self.events.emit(event);
    }

    /// Calls one of the executor's tools, through the door that every call goes through.
    pub(super) async fn tool(&self, name: &str, args: Value) -> Result<Value> {
        let reply = self.engine.run(name, args, self.call()).await;
        let data = reply.data.unwrap_or_default();
        if reply.is_error {
            let words = data["error"].as_str().map_or(reply.text, str::to_owned);
            return Err(Error::failed(words));
        }
        Ok(data)
    }

    /// Moves a task.
    pub(super) async fn mark(&self, task: &str, status: Status) -> Result<()> {
        self.tool("mark_task_status", json!({ "taskId": task, "status": status })).await.map(|_| ())
    }

    /// Executes until all is merged, nothing can go on, somebody must decide, or it is cancelled. [`Error::RunHeld`]: the
    /// run is planned or executed elsewhere. [`Error::LeaseLost`]: another executor has taken it over meanwhile.
    pub async fn run(&self, cancel: &CancellationToken) -> Result<Summary> {
        self.errand.artifacts.claim().await?;
        let summary = self.run_claimed(cancel).await;
        let released = self.errand.artifacts.release().await;
        let summary = summary?;
        released.map(|()| summary)
    }

    async fn run_claimed(&self, cancel: &CancellationToken) -> Result<Summary> {
        let (orders, mut ordered) = mpsc::unbounded_channel::<Worker<'_>>();
        let (tells, told) = mpsc::unbounded_channel();
        // The agents work on while this one merges, asks the captain, or waits for git.
        let crew = async {
            let mut working: FuturesUnordered<Worker<'_>> = FuturesUnordered::new();
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
            summary = self.lead(cancel, orders, told) => summary,
            () = crew => Err(Error::failed("the agents were lost")),
        }
    }

    /// Decides what is done next, again and again.
    async fn lead<'a>(
        &'a self,
        cancel: &CancellationToken,
        orders: mpsc::UnboundedSender<Worker<'a>>,
        mut told: mpsc::UnboundedReceiver<(String, Worked)>,
    ) -> Result<Summary> {
        let call = self.call();
        let room = Room::of(&call)?;
        let began = call.now();
        self.unlock();
        self.begin(&room).await?;
        self.recover(&room).await?;
        let mut working: BTreeSet<String> = BTreeSet::new();
        let mut not_before: BTreeMap<String, Timestamp> = BTreeMap::new();
        let mut tick = tokio::time::interval(self.settings.heartbeat.min(Duration::from_secs(1)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let waiting = loop {
            let waiting = self.changes(&room).await?;
            let dag = room.dag().await?;
            if self.merge(&room, &dag).await? {
                // It asked for a change of the plan, which comes first.
                continue;
            }
            let status = room.status(&dag).await?;
            let stopped = cancel.is_cancelled() || !waiting.is_empty();
            let mut aside = self.to_follow(&room, &working).await?;
            if !stopped {
                for task in self.ready(&dag, &status, &not_before, &working) {
                    _ = orders.send(self.work(&dag, &task, cancel.clone()));
                    working.insert(task);
                }
                let free = self.settings.parallel.saturating_sub(working.len()).min(aside.len());
                for (id, what) in aside.drain(..free) {
                    _ = orders.send(self.work_aside(id.clone(), what, cancel.clone()));
                    working.insert(id);
                }
            }
            self.note(&room, &dag, &waiting, working.len()).await?;
            // What is pending and can begin was begun, or rests; what can be tried again is made pending by the tick.
            let more = status.ready(&dag).next().is_some() || status.nodes.values().any(can_retry) || !aside.is_empty();
            if working.is_empty() && (stopped || !more) {
                break waiting;
            }
            tokio::select! {
                Some((task, ended)) = told.recv() => {
                    self.concluded(&room, &task, ended, cancel, &mut not_before).await?;
                    working.remove(&task);
                }
                _ = tick.tick() => {
                    self.errand.artifacts.renew().await?;
                    self.retry(&room, &not_before).await?;
                }
            }
        };
        self.conclude(&room, waiting, began, cancel.is_cancelled()).await
    }

    /// Checks that the plan can run, and says that it does.
    async fn begin(&self, room: &Room<'_>) -> Result<()> {
        let dag = room.dag().await?;
        let lacking: Vec<_> = {
            let mut lacking = Vec::new();
            for node in &dag.nodes {
                if room.bytes(&format!("tasks/{}.md", node.id)).await?.is_none() {
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
        self.make_integration().await?;
        let now = self.call().now();
        let (tasks, refineries) = dag.counts();
        let repo = self.home.repo().display().to_string();
        let mut first = false;
        room.revise(
            "run-state.json",
            || Ok(RunState::planned(&self.run.id, &repo, now)),
            |state: &mut RunState| {
                first = state.started_at.is_none();
                state.status = RunStatus::Executing;
                state.current_phase = Phase::Execution;
                state.started_at.get_or_insert(now);
                state.total_tasks = tasks + refineries;
                state.base_branch.clone_from(&self.base);
                state.model.clone_from(&self.settings.model);
                Ok(())
            },
        )
        .await?;
        if first {
            let plan = room.bytes("dag.json").await?.unwrap_or_default();
            let hash = Sha256::digest(plan).iter().fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"));
            self.tell(RunStarted { repo_url: repo, dag_hash: hash });
        } else {
            self.tell(RunResumed { cr_id: None, overlay_id: None });
        }
        Ok(())
    }

    /// Tasks that can begin now, in the order of the plan, as far as there is room for more agents.
    fn ready(
        &self,
        dag: &Dag,
        status: &DagStatus,
        not_before: &BTreeMap<String, Timestamp>,
        working: &BTreeSet<String>,
    ) -> Vec<String> {
        let now = self.call().now();
        let free = self.settings.parallel.saturating_sub(working.len());
        let rested = |id: &str| not_before.get(id).is_none_or(|time| *time <= now);
        let ready = status.ready(dag).filter(|node| rested(&node.id) && !working.contains(&node.id));
        ready.map(|node| node.id.clone()).take(free).collect()
    }

    /// Gives tasks that failed another attempt, once they have rested.
    async fn retry(&self, room: &Room<'_>, not_before: &BTreeMap<String, Timestamp>) -> Result<()> {
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
            self.mark(&task, Status::Pending).await?;
            let attempt = room.status(&dag).await?.of(&task)?.current_attempt;
            let branch = format!("forge/{task}/{attempt}");
            self.tell(TaskRetried { task_id: task, attempt_id: attempt.to_string(), branch });
        }
        Ok(())
    }

    /// Keeps how the run stands.
    async fn note(&self, room: &Room<'_>, dag: &Dag, waiting: &[String], working: usize) -> Result<()> {
        let status = room.status(dag).await?;
        let count = |wanted: Status| status.nodes.values().filter(|it| it.status == wanted).count();
        let (merged, total) = (count(Status::Merged), dag.nodes.len());
        let failed = status.nodes.values().filter(|it| is_exhausted(it)).count();
        let paused = !waiting.is_empty();
        let last = self.home.last_event(&self.run);
        let waiting = waiting.to_vec();
        let first = waiting.first().cloned();
        let changed = room
            .revise(
                "run-state.json",
                || Err(Error::failed("the run has lost its state")),
                move |state: &mut RunState| {
                    let was = state.status;
                    (state.completed_tasks, state.failed_tasks) = (merged, failed);
                    (state.running_tasks, state.total_tasks) = (working, total);
                    state.active_crs.clone_from(&waiting);
                    note_last(state, last.as_ref());
                    state.status = if paused { RunStatus::Paused } else { RunStatus::Executing };
                    state.current_phase = if paused { Phase::Paused } else { Phase::Execution };
                    Ok((was != state.status).then_some(state.status))
                },
            )
            .await?;
        match changed {
            Some(RunStatus::Paused) => {
                self.tell(RunPaused { reason: PauseReason::ChangeRequest, cr_id: first });
            }
            Some(RunStatus::Executing) => self.tell(RunResumed { cr_id: None, overlay_id: None }),
            _ => {}
        }
        Ok(())
    }

    /// Says how the run ended, or why it rests; a run whose tasks are all merged ends in its base branch.
    async fn conclude(
        &self,
        room: &Room<'_>,
        waiting: Vec<String>,
        began: Timestamp,
        stopped: bool,
    ) -> Result<Summary> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let merged = status.nodes.values().filter(|it| it.status == Status::Merged).count();
        let exhausted: Vec<_> =
            status.nodes.values().filter(|it| is_exhausted(it)).map(|it| it.task_id.clone()).collect();
        let mut remarks = Vec::new();
        let end = if merged == dag.nodes.len() {
            remarks.extend(self.land().await?);
            for branch in self.followed(room).await? {
                remarks.push(format!("a follow-up waits on `{branch}`: look at it, and merge it if it is right"));
            }
            RunStatus::Completed
        } else if stopped || !waiting.is_empty() {
            RunStatus::Paused
        } else {
            RunStatus::Failed
        };
        let now = self.call().now();
        room.revise(
            "run-state.json",
            || Err(Error::failed("the run has lost its state")),
            |state: &mut RunState| {
                state.status = end;
                (state.completed_tasks, state.failed_tasks, state.running_tasks) = (merged, exhausted.len(), 0);
                if end == RunStatus::Paused {
                    state.current_phase = Phase::Paused;
                }
                if matches!(end, RunStatus::Completed | RunStatus::Failed) {
                    state.completed_at.get_or_insert(now);
                    state.current_phase = Phase::Completed;
                }
                Ok(())
            },
        )
        .await?;
        if stopped && end == RunStatus::Paused {
            self.tell(RunPaused { reason: PauseReason::User, cr_id: None });
        }
        if matches!(end, RunStatus::Completed | RunStatus::Failed) {
            let seconds = now.duration_since(began).as_secs();
            self.tell(RunCompleted {
                total_completed: merged as u64,
                total_failed: exhausted.len() as u64,
                duration: seconds,
            });
        }
        let last = self.home.last_event(&self.run);
        room.revise(
            "run-state.json",
            || Err(Error::failed("the run has lost its state")),
            |state: &mut RunState| {
                note_last(state, last.as_ref());
                Ok(())
            },
        )
        .await?;
        Ok(Summary { status: end, merged, total: dag.nodes.len(), exhausted, waiting, remarks })
    }
}

fn note_last(state: &mut RunState, last: Option<&(String, u64)>) {
    if let Some((id, seq)) = last {
        (state.last_event_id, state.last_event_seq) = (id.clone(), *seq);
    }
}

/// The branch that a run's work is merged into, until it lands.
pub(super) fn integration(label: &str) -> String {
    format!("forge-run/{label}")
}

pub(super) fn is_exhausted(node: &helve_tools::artifacts::NodeStatus) -> bool {
    matches!(node.status, Status::Failed | Status::Stale) && node.current_attempt >= node.max_attempts
}

fn can_retry(node: &helve_tools::artifacts::NodeStatus) -> bool {
    matches!(node.status, Status::Failed | Status::Stale) && node.current_attempt < node.max_attempts
}
