//! One task: its branch, work tree, agent and result.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use helve_contract::{
    CancellationToken, Error, Result,
    events::{
        ArtifactKind, ArtifactWritten, BranchPushed, ContentKind, ExhaustedStatus, RefineryStarted, TaskCompleted,
        TaskExhausted, TaskFailed, TaskHeartbeat, TaskProgress, TaskRisk, TaskScheduled, TaskStale, TaskStarted,
    },
    ids,
    jiff::Timestamp,
    ports::MessagePart,
};
use helve_engine::EventLog;
use helve_tools::artifacts::{
    AgentType, CallArtifacts, Dag, DagNode, DagNodeKind, DagStatus, NodeStatus, TaskStatus, Walkthrough,
    WalkthroughStatus,
};
use serde_json::json;

use super::{
    desk::AgentClone,
    executor::{Executor, is_exhausted},
    heard::{AgentOutcome, CallStats},
    prompts, review,
};
use crate::{
    Agent, AgentDefinition, AgentDefinitions, AgentEvent, AgentHandle, AgentLimits, SessionSpec, Supervisor,
    ToolAccess, TurnStopReason, prompt,
};

/// An agent at work: in the end its task, and how it went.
pub(super) type TaskFuture<'a> = BoxFuture<'a, (String, TaskOutcome)>;

/// How the work on a task went.
pub(super) enum TaskOutcome {
    /// The agent has ended.
    AgentEnded(AgentClone, AgentOutcome),
    /// It could not begin, or broke.
    Failed(String),
    /// It was not heard of for too long.
    Stale(Timestamp),
    /// It was no task of the plan, and everything about it is done.
    FollowUp,
}

impl Executor {
    /// Works on a task.
    pub(super) fn spawn_task<'a>(&'a self, dag: &Dag, task: &str, cancel: CancellationToken) -> TaskFuture<'a> {
        let (task, dag) = (task.to_owned(), dag.clone());
        async move {
            let worked = self.run_task(&dag, &task, cancel).await;
            (task, worked.unwrap_or_else(|error| TaskOutcome::Failed(error.to_string())))
        }
        .boxed()
    }

    async fn run_task(&self, dag: &Dag, task: &str, cancel: CancellationToken) -> Result<TaskOutcome> {
        let call = self.call();
        let room = CallArtifacts::for_call(&call)?;
        let node = dag.node(task).ok_or_else(|| Error::failed(format!("there is no task `{task}`")))?;
        self.emit(TaskScheduled { task_id: task.to_owned(), agent_type: node.agent_type });
        self.set_status(task, TaskStatus::Running).await?;
        self.skip_taken_branches(&room, dag, task).await?;
        let state = room.status(dag).await?.node(task)?.clone();
        let attempt = state.current_attempt;
        let (id, label) = (ids::new_id(), format!("{}-{task}-{attempt}", self.run.label));
        room.update_status(dag, |status| {
            if let Some(node) = status.nodes.get_mut(task) {
                node.assigned_agent = Some(id.clone());
                status.version += 1;
            }
            Ok(())
        })
        .await?;
        let prepared = self.call_tool("prepare_branch", json!({ "taskId": task, "attemptId": attempt })).await?;
        let branch = prepared["branch"].as_str().unwrap_or_default().to_owned();
        let git = self.git(&call).await?;
        let desk = AgentClone::create(&git, self.forge_dir.clone_dir(&self.run, task, attempt), &branch).await?;
        self.emit(TaskStarted {
            task_id: task.to_owned(),
            agent_id: id.clone(),
            agent_label: Some(label.clone()),
            sandbox_id: id.clone(),
            branch: branch.clone(),
        });
        if node.kind == DagNodeKind::Refinery {
            self.emit(RefineryStarted { task_id: task.to_owned(), dependency_count: node.dependencies.len() as u64 });
        }
        let mut errand = self.errand();
        (errand.task, errand.attempt, errand.branch) = (Some(task.to_owned()), attempt, Some(branch.clone()));
        let (mut agent, supervisor) = self.build_agent(node.agent_type, (&id, &label), &desk, errand).await?;
        agent.handle = AgentHandle::child_of(&cancel);
        let words = self.task_prompt(&room, dag, node, &branch, state.last_error.into_iter().collect()).await?;
        let worked = self.run_with_heartbeat((task, attempt), &mut agent, &supervisor, words).await;
        supervisor.stop_all(&agent.session.id).await;
        Ok(match worked? {
            Ok(heard) => TaskOutcome::AgentEnded(desk, heard),
            Err(last) => {
                desk.remove();
                TaskOutcome::Stale(last)
            }
        })
    }

    /// Increments the attempt until its branch name is free. Runs of one repository may have tasks with the same
    /// name.
    async fn skip_taken_branches(&self, room: &CallArtifacts<'_>, dag: &Dag, task: &str) -> Result<()> {
        let call = self.call();
        let git = self.git(&call).await?;
        loop {
            let attempt = room.status(dag).await?.node(task)?.current_attempt;
            if git.branch_tip(&format!("forge/{task}/{attempt}")).await?.is_none() {
                return Ok(());
            }
            room.update_status(dag, |status| {
                if let Some(node) = status.nodes.get_mut(task).filter(|it| it.current_attempt == attempt) {
                    node.current_attempt += 1;
                    // It costs the task no attempt.
                    node.max_attempts += 1;
                    status.version += 1;
                }
                Ok(())
            })
            .await?;
        }
    }

    /// An agent of a type, at a desk.
    pub(super) async fn build_agent(
        &self,
        kind: AgentType,
        (id, label): (&str, &str),
        desk: &AgentClone,
        errand: helve_contract::TaskContext,
    ) -> Result<(Agent, Arc<Supervisor>)> {
        let store = self.session.ports.store.clone();
        // A refinery may start a type 3, that a type 2, and that a type 1.
        let limits = AgentLimits { max_depth: 3, ..AgentLimits::default() };
        let supervisor = Supervisor::new(self.session_factory.clone(), store, helper_agents(), limits);
        let need = SessionSpec {
            id: id.to_owned(),
            label: Some(label.to_owned()),
            dialect: Some("forge".into()),
            agent: Some(kind.role().into()),
            role: Some(kind.role().into()),
            workspace: Some(desk.dir.clone()),
            // The clone borrows the repository's objects.
            extra_read_dirs: vec![self.forge_dir.repo().join(".git/objects")],
            unattended: true,
            task: Some(errand),
            event_file: self.forge_dir.event_file(&self.run).ok(),
            agents: Some(supervisor.clone()),
            ..SessionSpec::default()
        };
        let (engine, session) = self.session_factory.create_session(&need)?;
        let mut agent = Agent::new(engine, session, self.session_factory.model(None)?);
        agent.system_prompt = prompt::system_prompt(&agent.engine, &agent.session, &prompts::system_prompt(kind)).await;
        agent.budget = self.settings.budget;
        agent.title = Some(label.to_owned());
        Ok((agent, supervisor))
    }

    /// What the agent is told to do.
    async fn task_prompt(
        &self,
        room: &CallArtifacts<'_>,
        dag: &Dag,
        node: &DagNode,
        branch: &str,
        before: Vec<String>,
    ) -> Result<String> {
        let document = room.read_text(&format!("tasks/{}.md", node.id)).await?;
        if node.kind == DagNodeKind::Task {
            return Ok(prompts::task_prompt(node, &document, branch, &before));
        }
        let status = room.status(dag).await?;
        let sources = dependency_branches(node, &status)?;
        Ok(prompts::refinery_prompt(node, &document, branch, &sources))
    }

    /// Runs an agent and watches its liveness. `Err` contains when it was last active.
    pub(super) async fn run_with_heartbeat(
        &self,
        (task, attempt): (&str, u32),
        agent: &mut Agent,
        supervisor: &Supervisor,
        words: String,
    ) -> Result<Result<AgentOutcome, Timestamp>> {
        let clock = self.session.ports.clock.clone();
        let began = clock.now();
        let pulse = Arc::new(Mutex::new(Liveness { last_event: began, ..Liveness::default() }));
        let (ear, ticking) = (pulse.clone(), clock.clone());
        let record = self.forge_dir.event_file(&self.run).and_then(|file| EventLog::file(file, self.run.id.as_str()));
        let record = record.map_or_else(|_| EventLog::none(), |it| it.within(task, Some(attempt.to_string())));
        let named = task.to_owned();
        agent.listener = Arc::new(move |event: &AgentEvent| {
            let said = ear.lock().unwrap_or_else(PoisonError::into_inner).observe(event, ticking.now());
            if let Some((content, content_kind)) = said {
                _ = record.emit(TaskProgress { task_id: named.clone(), content, content_kind });
            }
        });
        let seat = supervisor.register(agent);
        let work = run_to_completion(agent, supervisor, words);
        tokio::pin!(work);
        let every = self.settings.heartbeat.min(self.settings.stale_after).max(Duration::from_millis(10));
        let mut tick = tokio::time::interval(every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ended = loop {
            tokio::select! {
                // What it said is heard before anybody wonders about its silence.
                biased;
                ended = &mut work => break Ok(ended?),
                _ = tick.tick() => {
                    let now = clock.now();
                    let last = pulse.lock().unwrap_or_else(PoisonError::into_inner).last_alive(now);
                    if now.duration_since(last).unsigned_abs() > self.settings.stale_after {
                        agent.handle.cancel();
                        // It ends by itself when it can; what hangs is dropped.
                        _ = tokio::time::timeout(Duration::from_secs(5), &mut work).await;
                        break Err(last);
                    }
                    let uptime = now.duration_since(began).as_secs();
                    self.emit(TaskHeartbeat {
                        task_id: task.to_owned(),
                        agent_id: agent.session.id.clone(),
                        uptime_seconds: uptime,
                    });
                    self.record_heartbeat(task).await?;
                }
            }
        };
        drop(seat);
        let calls = std::mem::take(&mut pulse.lock().unwrap_or_else(PoisonError::into_inner).calls);
        Ok(ended.map(|ended| AgentOutcome { stop_reason: ended, call_stats: calls }))
    }

    /// Keeps that an agent lives.
    async fn record_heartbeat(&self, task: &str) -> Result<()> {
        let call = self.call();
        let room = CallArtifacts::for_call(&call)?;
        let dag = room.dag().await?;
        room.update_status(&dag, |status| {
            if let Some(node) = status.nodes.get_mut(task) {
                node.heartbeat_at = Some(call.now());
            }
            Ok(())
        })
        .await
    }

    /// Takes over what an agent did, or notes why there is nothing to take.
    pub(super) async fn handle_outcome(
        &self,
        room: &CallArtifacts<'_>,
        task: &str,
        worked: TaskOutcome,
        cancel: &CancellationToken,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<()> {
        let why = match worked {
            TaskOutcome::AgentEnded(desk, heard) => {
                let finished = self.accept_work(room, task, &desk, &heard).await;
                desk.remove();
                match finished {
                    Ok(()) => return Ok(()),
                    Err(error) => error.to_string(),
                }
            }
            TaskOutcome::Failed(why) => why,
            TaskOutcome::FollowUp => return Ok(()),
            TaskOutcome::Stale(last) => {
                return self.handle_stale(room, task, last, FailureCause::Task, not_before).await;
            }
        };
        if cancel.is_cancelled() {
            return self.handle_stale(room, task, self.call().now(), FailureCause::Executor, not_before).await;
        }
        self.set_status(task, TaskStatus::Failed).await?;
        let state = self.record_failure(room, task, &why, FailureCause::Task, not_before).await?;
        self.emit(TaskFailed { task_id: task.to_owned(), error: why.clone(), can_retry: !is_exhausted(&state) });
        self.emit_exhausted(&state);
        Ok(())
    }

    async fn handle_stale(
        &self,
        room: &CallArtifacts<'_>,
        task: &str,
        last: Timestamp,
        fault: FailureCause,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<()> {
        self.set_status(task, TaskStatus::Stale).await?;
        let why = match fault {
            FailureCause::Task => "the agent was not heard of for too long",
            FailureCause::Executor => "the executor ended before the agent did",
        };
        let state = self.record_failure(room, task, why, fault, not_before).await?;
        let threshold = self.settings.stale_after.as_secs();
        self.emit(TaskStale { task_id: task.to_owned(), last_heartbeat: last, threshold });
        self.emit_exhausted(&state);
        Ok(())
    }

    fn emit_exhausted(&self, state: &NodeStatus) {
        if is_exhausted(state) {
            let final_status =
                if state.status == TaskStatus::Stale { ExhaustedStatus::Stale } else { ExhaustedStatus::Failed };
            self.emit(TaskExhausted { task_id: state.task_id.clone(), attempts: state.current_attempt, final_status });
        }
    }

    /// Notes why an attempt failed, and when the next one may begin.
    async fn record_failure(
        &self,
        room: &CallArtifacts<'_>,
        task: &str,
        why: &str,
        fault: FailureCause,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<NodeStatus> {
        let dag = room.dag().await?;
        let state = room
            .update_status(&dag, |status| {
                if let Some(node) = status.nodes.get_mut(task) {
                    node.last_error = Some(why.chars().take(2000).collect());
                    // An executor failure does not count as an attempt.
                    node.max_attempts += u32::from(fault == FailureCause::Executor);
                    status.version += 1;
                }
                Ok(status.node(task)?.clone())
            })
            .await?;
        let pause = self.settings.backoff * 2_u32.saturating_pow(state.current_attempt.min(6) - 1);
        let time =
            self.call().now().checked_add(helve_contract::jiff::SignedDuration::try_from(pause).unwrap_or_default());
        not_before.insert(task.to_owned(), time.unwrap_or_else(|_| self.call().now()));
        Ok(state)
    }

    /// Accepts the work of a finished agent: it needs a walkthrough, and its branch must contain the work.
    async fn accept_work(
        &self,
        room: &CallArtifacts<'_>,
        task: &str,
        desk: &AgentClone,
        heard: &AgentOutcome,
    ) -> Result<()> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let (state, node) = (status.node(task)?.clone(), dag.node(task));
        let node = node.ok_or_else(|| Error::failed(format!("there is no task `{task}`")))?;
        let place = Walkthrough::path(task, state.current_attempt);
        if room.read_bytes(&place).await?.is_none() {
            return Err(Error::failed(format!(
                "the agent ended without a walkthrough ({})",
                describe_stop(&heard.stop_reason)
            )));
        }
        let told = Walkthrough::parse(&room.read_text(&place).await?)?.front;
        if told.status == WalkthroughStatus::Failed {
            return Err(Error::failed("the agent says that it failed; its walkthrough tells why"));
        }
        heard.call_stats.require_work()?;
        let message = format!(
            "forge({task}): take over the work of attempt {}\n\nTask: {task}\nAttempt: {}\nAgent: {}",
            state.current_attempt,
            state.current_attempt,
            state.assigned_agent.as_deref().unwrap_or("unknown"),
        );
        let call = self.call();
        let git = self.git(&call).await?;
        let commit = desk.commit_and_fetch(&git, &message).await?;
        if node.kind == DagNodeKind::Refinery {
            for source in dependency_branches(node, &status)? {
                let theirs = git.branch_tip(&source).await?;
                let theirs = theirs.ok_or_else(|| Error::failed(format!("the branch `{source}` is gone")))?;
                if !git.is_ancestor(&theirs, &commit).await? {
                    return Err(Error::failed(format!("the refinery has not merged `{source}`")));
                }
            }
        }
        self.set_status(task, TaskStatus::Done).await?;
        self.confirm_branch(room, &dag, task, &commit).await?;
        self.emit(TaskCompleted { task_id: task.to_owned(), walkthrough_path: room.display_path(&place) });
        self.emit(ArtifactWritten { path: room.display_path(&place), kind: ArtifactKind::Walkthrough });
        if let Some(doubt) = heard.call_stats.objection() {
            self.emit(TaskRisk { task_id: task.to_owned(), risk: doubt.clone() });
            room.update_status(&dag, |status| {
                if let Some(node) = status.nodes.get_mut(task) {
                    node.last_error = Some(doubt.clone());
                    status.version += 1;
                }
                Ok(())
            })
            .await?;
        }
        let others =
            if told.risks.is_empty() { Vec::new() } else { self.files_touched_by_others(&status, task).await? };
        for event in review::walkthrough_events(task, &told, &others) {
            self.emit(event);
        }
        self.store_followups(room, &told, state.current_attempt, &commit).await
    }

    /// The files that the agents of other tasks have changed so far.
    async fn files_touched_by_others(&self, status: &DagStatus, task: &str) -> Result<Vec<(String, Vec<String>)>> {
        let call = self.call();
        let git = self.git(&call).await?;
        let mut others = Vec::new();
        for other in status.nodes.values().filter(|it| it.status == TaskStatus::Running && it.task_id != task) {
            let desk = self.forge_dir.clone_dir(&self.run, &other.task_id, other.current_attempt).display().to_string();
            let base = format!("origin/forge/{}/{}", other.task_id, other.current_attempt);
            // It may be gone, or half made: then nothing is known of it.
            let changed = git.run(&["-C", &desk, "diff", "--name-only", &base, "--"]).await?;
            let fresh = git.run(&["-C", &desk, "ls-files", "--others", "--exclude-standard"]).await?;
            let files = [changed, fresh].into_iter().filter(|it| it.code == 0);
            let files: Vec<String> =
                files.flat_map(|it| it.out.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
            others.push((other.task_id.clone(), files));
        }
        Ok(others)
    }

    /// The branch is in the repository and holds the agent's last commit: it can be merged.
    async fn confirm_branch(&self, room: &CallArtifacts<'_>, dag: &Dag, task: &str, commit: &str) -> Result<()> {
        let attempt = room.status(dag).await?.node(task)?.current_attempt;
        let branch = format!("forge/{task}/{attempt}");
        room.update_status(dag, |status| {
            if let Some(node) = status.nodes.get_mut(task) {
                node.commit = Some(commit.to_owned());
                status.version += 1;
            }
            Ok(())
        })
        .await?;
        self.set_status(task, TaskStatus::MergeReady).await?;
        self.emit(BranchPushed { task_id: task.to_owned(), branch, commit: commit.to_owned() });
        Ok(())
    }

    /// Recovers after a killed executor: reported work is accepted, the rest is repeated.
    pub(super) async fn recover(&self, room: &CallArtifacts<'_>) -> Result<()> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let call = self.call();
        for state in status.nodes.values() {
            let (task, attempt) = (state.task_id.as_str(), state.current_attempt);
            let branch = format!("forge/{task}/{attempt}");
            let dir = self.forge_dir.clone_dir(&self.run, task, attempt);
            match state.status {
                TaskStatus::Running => {
                    let desk = AgentClone::reopen(&self.git(&call).await?, dir, &branch).await?;
                    let taken = match &desk {
                        Some(desk) => self.accept_work(room, task, desk, &AgentOutcome::unknown()).await.is_ok(),
                        None => false,
                    };
                    if !taken {
                        let last = state.heartbeat_at.unwrap_or(call.now());
                        self.handle_stale(room, task, last, FailureCause::Executor, &mut BTreeMap::new()).await?;
                    }
                }
                TaskStatus::Done => {
                    let commit = self.git(&call).await?.branch_tip(&branch).await?;
                    let commit = commit
                        .ok_or_else(|| Error::failed(format!("the branch `{branch}` of a finished task is gone")))?;
                    self.confirm_branch(room, &dag, task, &commit).await?;
                }
                _ => {}
            }
        }
        self.forge_dir.remove_clones(&self.run);
        Ok(())
    }
}

/// The branches of what a node depends on.
pub(super) fn dependency_branches(node: &DagNode, status: &DagStatus) -> Result<Vec<String>> {
    let branch = |id: &String| Ok(format!("forge/{id}/{}", status.node(id)?.current_attempt));
    node.dependencies.iter().map(branch).collect()
}

/// Whose error it is that an attempt came to nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureCause {
    /// The task's, or its agent's.
    Task,
    /// The executor was stopped, or killed.
    Executor,
}

/// The agents that an agent of a run may start. They work in its work tree, and it tells for them.
fn helper_agents() -> AgentDefinitions {
    let mut kinds = AgentDefinitions::default();
    for kind in [AgentType::Throwaway, AgentType::Worker, AgentType::SubExecutor] {
        let mut tools = vec!["read", "write", "edit", "bash", "web_search", "web_fetch"];
        if kind != AgentType::Throwaway {
            tools.push("spawn_agent");
        }
        kinds.add(AgentDefinition {
            name: kind.role().to_owned(),
            description: format!("an agent of type {kind}"),
            prompt: prompts::helper_prompt().to_owned(),
            tools: ToolAccess::Only(tools.into_iter().map(str::to_owned).collect()),
            role: Some(kind.role().to_owned()),
            ..AgentDefinition::default()
        });
    }
    kinds
}

/// Lets an agent work until it has no more to do: what its own agents report is its work too.
async fn run_to_completion(agent: &Agent, supervisor: &Supervisor, words: String) -> Result<TurnStopReason> {
    let mut words = words;
    loop {
        let ended = agent.run_turn(vec![MessagePart::Text { text: words }]).await?.stop_reason;
        if ended != TurnStopReason::Completed {
            return Ok(ended);
        }
        supervisor.wait_idle(&agent.session.id).await;
        let reports = agent.handle.take_follow_ups();
        if reports.is_empty() {
            return Ok(ended);
        }
        words = reports.join("\n\n");
    }
}

/// When an agent was last heard of.
#[derive(Default)]
struct Liveness {
    last_event: Timestamp,
    /// Running calls and sub-agents: while they run, the agent may be silent. Their own limits end them.
    busy: HashSet<String>,
    calls: CallStats,
    pending_text: String,
    kind: Option<ContentKind>,
}

impl Liveness {
    /// Takes an event in. What the agent has said, when it is through with it.
    fn observe(&mut self, event: &AgentEvent, now: Timestamp) -> Option<(String, ContentKind)> {
        match event {
            // Silence of the endpoint must not count as activity.
            AgentEvent::Retrying { .. } => return None,
            AgentEvent::ToolCallStarted { id, .. } | AgentEvent::SubAgent { id, ended: false, .. } => {
                _ = self.busy.insert(id.clone());
            }
            AgentEvent::ToolCallFinished { id, name, reply, .. } => {
                self.busy.remove(id);
                self.calls.record(name, reply);
            }
            AgentEvent::SubAgent { id, ended: true, .. } => _ = self.busy.remove(id),
            _ => {}
        }
        self.last_event = now;
        let (piece, kind) = match event {
            AgentEvent::Text(piece) => (Some(piece), Some(ContentKind::Text)),
            AgentEvent::Reasoning(piece) => (Some(piece), Some(ContentKind::Thinking)),
            _ => (None, None),
        };
        let through = self.kind.filter(|it| Some(*it) != kind && !self.pending_text.trim().is_empty());
        let told = through.map(|kind| (std::mem::take(&mut self.pending_text), kind));
        if let Some(piece) = piece {
            self.kind = kind;
            if self.pending_text.len() < MAX_PROGRESS_BYTES {
                self.pending_text.push_str(piece);
            }
        } else {
            (self.kind, self.pending_text) = (None, String::new());
        }
        told
    }

    /// When it was last known to live.
    fn last_alive(&self, now: Timestamp) -> Timestamp {
        if self.busy.is_empty() { self.last_event } else { now }
    }
}

/// The most of one message that is told while an agent works.
const MAX_PROGRESS_BYTES: usize = 8 << 10;

fn describe_stop(ended: &TurnStopReason) -> String {
    match ended {
        TurnStopReason::Completed => "it had no more to say".to_owned(),
        TurnStopReason::Cancelled => "it was stopped".to_owned(),
        TurnStopReason::BudgetExhausted(text)
        | TurnStopReason::LoopDetected(text)
        | TurnStopReason::ModelFailed(text) => text.clone(),
    }
}
