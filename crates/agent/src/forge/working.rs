//! One task: a branch, a work tree, an agent, and what becomes of its work.

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
    ports::Part,
};
use helve_engine::EventLog;
use helve_tools::artifacts::{
    AgentType, Dag, DagStatus, Node, NodeKind, NodeStatus, Outcome, Room, Status, Walkthrough,
};
use serde_json::json;

use super::{
    desk::Desk,
    executor::{Executor, is_exhausted},
    heard::{Calls, Heard},
    prompts, review,
};
use crate::{Agent, Ended, Event, Handle, Hands, Kind, Kinds, Limits, Need, Supervisor, prompt};

/// An agent at work: in the end its task, and how it went.
pub(super) type Worker<'a> = BoxFuture<'a, (String, Worked)>;

/// How the work on a task went.
pub(super) enum Worked {
    /// The agent has ended.
    Ended(Desk, Heard),
    /// It could not begin, or broke.
    Failed(String),
    /// It was not heard of for too long.
    Silent(Timestamp),
    /// It was no task of the plan, and everything about it is done.
    Aside,
}

impl Executor {
    /// Works on a task.
    pub(super) fn work<'a>(&'a self, dag: &Dag, task: &str, cancel: CancellationToken) -> Worker<'a> {
        let (task, dag) = (task.to_owned(), dag.clone());
        async move {
            let worked = self.worked(&dag, &task, cancel).await;
            (task, worked.unwrap_or_else(|error| Worked::Failed(error.to_string())))
        }
        .boxed()
    }

    async fn worked(&self, dag: &Dag, task: &str, cancel: CancellationToken) -> Result<Worked> {
        let call = self.call();
        let room = Room::of(&call)?;
        let node = dag.node(task).ok_or_else(|| Error::failed(format!("there is no task `{task}`")))?;
        self.tell(TaskScheduled { task_id: task.to_owned(), agent_type: node.agent_type });
        self.mark(task, Status::Running).await?;
        self.skip_taken_branches(&room, dag, task).await?;
        let state = room.status(dag).await?.of(task)?.clone();
        let attempt = state.current_attempt;
        let (id, label) = (ids::new_id(), format!("{}-{task}-{attempt}", self.run.label));
        room.move_on(dag, |status| {
            if let Some(node) = status.nodes.get_mut(task) {
                node.assigned_agent = Some(id.clone());
                status.version += 1;
            }
            Ok(())
        })
        .await?;
        let prepared = self.tool("prepare_branch", json!({ "taskId": task, "attemptId": attempt })).await?;
        let branch = prepared["branch"].as_str().unwrap_or_default().to_owned();
        let git = self.git(&call).await?;
        let desk = Desk::make(&git, self.home.desk(&self.run, task, attempt), &branch).await?;
        self.tell(TaskStarted {
            task_id: task.to_owned(),
            agent_id: id.clone(),
            agent_label: Some(label.clone()),
            sandbox_id: id.clone(),
            branch: branch.clone(),
        });
        if node.kind == NodeKind::Refinery {
            self.tell(RefineryStarted { task_id: task.to_owned(), dependency_count: node.dependencies.len() as u64 });
        }
        let mut errand = self.errand();
        (errand.task, errand.attempt, errand.branch) = (Some(task.to_owned()), attempt, Some(branch.clone()));
        let (mut agent, supervisor) = self.agent(node.agent_type, (&id, &label), &desk, errand).await?;
        agent.handle = Handle::under(&cancel);
        let words = self.words(&room, dag, node, &branch, state.last_error.into_iter().collect()).await?;
        let worked = self.watched((task, attempt), &mut agent, &supervisor, words).await;
        supervisor.end(&agent.session.id).await;
        Ok(match worked? {
            Ok(heard) => Worked::Ended(desk, heard),
            Err(last) => {
                desk.leave();
                Worked::Silent(last)
            }
        })
    }

    /// Counts the attempt up until its branch is free. Runs of one repository may have tasks of the same name, and a branch
    /// that is there before the attempt begins belongs to another run.
    async fn skip_taken_branches(&self, room: &Room<'_>, dag: &Dag, task: &str) -> Result<()> {
        let call = self.call();
        let git = self.git(&call).await?;
        loop {
            let attempt = room.status(dag).await?.of(task)?.current_attempt;
            if git.branch(&format!("forge/{task}/{attempt}")).await?.is_none() {
                return Ok(());
            }
            room.move_on(dag, |status| {
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
    pub(super) async fn agent(
        &self,
        kind: AgentType,
        (id, label): (&str, &str),
        desk: &Desk,
        errand: helve_contract::Errand,
    ) -> Result<(Agent, Arc<Supervisor>)> {
        let store = self.session.ports.store.clone();
        // A refinery may start a type 3, that a type 2, and that a type 1.
        let limits = Limits { depth: 3, ..Limits::default() };
        let supervisor = Supervisor::new(self.workshop.clone(), store, helpers(), limits);
        let need = Need {
            id: id.to_owned(),
            label: Some(label.to_owned()),
            dialect: Some("forge".into()),
            agent: Some(kind.role().into()),
            role: Some(kind.role().into()),
            workspace: Some(desk.dir.clone()),
            // The clone borrows the repository's objects.
            reads: vec![self.home.repo().join(".git/objects")],
            alone: true,
            errand: Some(errand),
            record: self.home.events(&self.run).ok(),
            agents: Some(supervisor.clone()),
            ..Need::default()
        };
        let (engine, session) = self.workshop.equip(&need)?;
        let mut agent = Agent::new(engine, session, self.workshop.model(None)?);
        agent.system = prompt::system(&agent.engine, &agent.session, &prompts::who(kind)).await;
        agent.budget = self.settings.budget;
        agent.title = Some(label.to_owned());
        Ok((agent, supervisor))
    }

    /// What the agent is told to do.
    async fn words(
        &self,
        room: &Room<'_>,
        dag: &Dag,
        node: &Node,
        branch: &str,
        before: Vec<String>,
    ) -> Result<String> {
        let document = room.text(&format!("tasks/{}.md", node.id)).await?;
        if node.kind == NodeKind::Task {
            return Ok(prompts::task(node, &document, branch, &before));
        }
        let status = room.status(dag).await?;
        let sources = sources(node, &status)?;
        Ok(prompts::refinery(node, &document, branch, &sources))
    }

    /// Lets an agent work, and listens whether it lives. `Err` has when it was last heard of.
    pub(super) async fn watched(
        &self,
        (task, attempt): (&str, u32),
        agent: &mut Agent,
        supervisor: &Supervisor,
        words: String,
    ) -> Result<Result<Heard, Timestamp>> {
        let clock = self.session.ports.clock.clone();
        let began = clock.now();
        let pulse = Arc::new(Mutex::new(Pulse { heard: began, ..Pulse::default() }));
        let (ear, ticking) = (pulse.clone(), clock.clone());
        let record = self.home.events(&self.run).and_then(|file| EventLog::file(file, self.run.id.as_str()));
        let record = record.map_or_else(|_| EventLog::none(), |it| it.within(task, Some(attempt.to_string())));
        let named = task.to_owned();
        agent.watcher = Arc::new(move |event: &Event| {
            let said = ear.lock().unwrap_or_else(PoisonError::into_inner).hear(event, ticking.now());
            if let Some((content, content_kind)) = said {
                _ = record.emit(TaskProgress { task_id: named.clone(), content, content_kind });
            }
        });
        let seat = supervisor.seat(agent);
        let work = whole(agent, supervisor, words);
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
                    let last = pulse.lock().unwrap_or_else(PoisonError::into_inner).last(now);
                    if now.duration_since(last).unsigned_abs() > self.settings.stale_after {
                        agent.handle.cancel();
                        // It ends by itself when it can; what hangs is dropped.
                        _ = tokio::time::timeout(Duration::from_secs(5), &mut work).await;
                        break Err(last);
                    }
                    let uptime = now.duration_since(began).as_secs();
                    self.tell(TaskHeartbeat {
                        task_id: task.to_owned(),
                        agent_id: agent.session.id.clone(),
                        uptime_seconds: uptime,
                    });
                    self.heard_of(task).await?;
                }
            }
        };
        drop(seat);
        let calls = std::mem::take(&mut pulse.lock().unwrap_or_else(PoisonError::into_inner).calls);
        Ok(ended.map(|ended| Heard { ended, calls }))
    }

    /// Keeps that an agent lives.
    async fn heard_of(&self, task: &str) -> Result<()> {
        let call = self.call();
        let room = Room::of(&call)?;
        let dag = room.dag().await?;
        room.move_on(&dag, |status| {
            if let Some(node) = status.nodes.get_mut(task) {
                node.heartbeat_at = Some(call.now());
            }
            Ok(())
        })
        .await
    }

    /// Takes over what an agent did, or notes why there is nothing to take.
    pub(super) async fn concluded(
        &self,
        room: &Room<'_>,
        task: &str,
        worked: Worked,
        cancel: &CancellationToken,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<()> {
        let why = match worked {
            Worked::Ended(desk, heard) => {
                let finished = self.finish(room, task, &desk, &heard).await;
                desk.leave();
                match finished {
                    Ok(()) => return Ok(()),
                    Err(error) => error.to_string(),
                }
            }
            Worked::Failed(why) => why,
            Worked::Aside => return Ok(()),
            Worked::Silent(last) => return self.gone_silent(room, task, last, Fault::Task, not_before).await,
        };
        if cancel.is_cancelled() {
            return self.gone_silent(room, task, self.call().now(), Fault::Executor, not_before).await;
        }
        self.mark(task, Status::Failed).await?;
        let state = self.rest(room, task, &why, Fault::Task, not_before).await?;
        self.tell(TaskFailed { task_id: task.to_owned(), error: why.clone(), can_retry: !is_exhausted(&state) });
        self.tell_exhausted(&state);
        Ok(())
    }

    async fn gone_silent(
        &self,
        room: &Room<'_>,
        task: &str,
        last: Timestamp,
        fault: Fault,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<()> {
        self.mark(task, Status::Stale).await?;
        let why = match fault {
            Fault::Task => "the agent was not heard of for too long",
            Fault::Executor => "the executor ended before the agent did",
        };
        let state = self.rest(room, task, why, fault, not_before).await?;
        let threshold = self.settings.stale_after.as_secs();
        self.tell(TaskStale { task_id: task.to_owned(), last_heartbeat: last, threshold });
        self.tell_exhausted(&state);
        Ok(())
    }

    fn tell_exhausted(&self, state: &NodeStatus) {
        if is_exhausted(state) {
            let final_status =
                if state.status == Status::Stale { ExhaustedStatus::Stale } else { ExhaustedStatus::Failed };
            self.tell(TaskExhausted { task_id: state.task_id.clone(), attempts: state.current_attempt, final_status });
        }
    }

    /// Notes why an attempt failed, and when the next one may begin.
    async fn rest(
        &self,
        room: &Room<'_>,
        task: &str,
        why: &str,
        fault: Fault,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<NodeStatus> {
        let dag = room.dag().await?;
        let state = room
            .move_on(&dag, |status| {
                if let Some(node) = status.nodes.get_mut(task) {
                    node.last_error = Some(why.chars().take(2000).collect());
                    // What was not the task's fault costs it no attempt.
                    node.max_attempts += u32::from(fault == Fault::Executor);
                    status.version += 1;
                }
                Ok(status.of(task)?.clone())
            })
            .await?;
        let pause = self.settings.backoff * 2_u32.saturating_pow(state.current_attempt.min(6) - 1);
        let time =
            self.call().now().checked_add(helve_contract::jiff::SignedDuration::try_from(pause).unwrap_or_default());
        not_before.insert(task.to_owned(), time.unwrap_or_else(|_| self.call().now()));
        Ok(state)
    }

    /// Takes over the work of an agent that has ended: it must have told what it did, and its branch must hold it.
    async fn finish(&self, room: &Room<'_>, task: &str, desk: &Desk, heard: &Heard) -> Result<()> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let (state, node) = (status.of(task)?.clone(), dag.node(task));
        let node = node.ok_or_else(|| Error::failed(format!("there is no task `{task}`")))?;
        let place = Walkthrough::place(task, state.current_attempt);
        if room.bytes(&place).await?.is_none() {
            return Err(Error::failed(format!("the agent ended without a walkthrough ({})", why(&heard.ended))));
        }
        let told = Walkthrough::parse(&room.text(&place).await?)?.front;
        if told.status == Outcome::Failed {
            return Err(Error::failed("the agent says that it failed; its walkthrough tells why"));
        }
        heard.calls.must_have_done_something()?;
        let message = format!(
            "forge({task}): take over the work of attempt {}\n\nTask: {task}\nAttempt: {}\nAgent: {}",
            state.current_attempt,
            state.current_attempt,
            state.assigned_agent.as_deref().unwrap_or("unknown"),
        );
        let call = self.call();
        let git = self.git(&call).await?;
        let commit = desk.take_over(&git, &message).await?;
        if node.kind == NodeKind::Refinery {
            for source in sources(node, &status)? {
                let theirs = git.branch(&source).await?;
                let theirs = theirs.ok_or_else(|| Error::failed(format!("the branch `{source}` is gone")))?;
                if !git.is_ancestor(&theirs, &commit).await? {
                    return Err(Error::failed(format!("the refinery has not merged `{source}`")));
                }
            }
        }
        self.mark(task, Status::Done).await?;
        self.confirm(room, &dag, task, &commit).await?;
        self.tell(TaskCompleted { task_id: task.to_owned(), walkthrough_path: room.shown(&place) });
        self.tell(ArtifactWritten { path: room.shown(&place), kind: ArtifactKind::Walkthrough });
        if let Some(doubt) = heard.calls.doubt() {
            self.tell(TaskRisk { task_id: task.to_owned(), risk: doubt.clone() });
            room.move_on(&dag, |status| {
                if let Some(node) = status.nodes.get_mut(task) {
                    node.last_error = Some(doubt.clone());
                    status.version += 1;
                }
                Ok(())
            })
            .await?;
        }
        let others = if told.risks.is_empty() { Vec::new() } else { self.touched(&status, task).await? };
        for event in review::remarks(task, &told, &others) {
            self.tell(event);
        }
        self.follow_up(room, &told, state.current_attempt, &commit).await
    }

    /// The files that the agents of other tasks have changed so far.
    async fn touched(&self, status: &DagStatus, task: &str) -> Result<Vec<(String, Vec<String>)>> {
        let call = self.call();
        let git = self.git(&call).await?;
        let mut others = Vec::new();
        for other in status.nodes.values().filter(|it| it.status == Status::Running && it.task_id != task) {
            let desk = self.home.desk(&self.run, &other.task_id, other.current_attempt).display().to_string();
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
    async fn confirm(&self, room: &Room<'_>, dag: &Dag, task: &str, commit: &str) -> Result<()> {
        let attempt = room.status(dag).await?.of(task)?.current_attempt;
        let branch = format!("forge/{task}/{attempt}");
        room.move_on(dag, |status| {
            if let Some(node) = status.nodes.get_mut(task) {
                node.commit = Some(commit.to_owned());
                status.version += 1;
            }
            Ok(())
        })
        .await?;
        self.mark(task, Status::MergeReady).await?;
        self.tell(BranchPushed { task_id: task.to_owned(), branch, commit: commit.to_owned() });
        Ok(())
    }

    /// Puts right what an executor left that is gone: work that was told is taken over, the rest is done again.
    pub(super) async fn recover(&self, room: &Room<'_>) -> Result<()> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let call = self.call();
        for state in status.nodes.values() {
            let (task, attempt) = (state.task_id.as_str(), state.current_attempt);
            let branch = format!("forge/{task}/{attempt}");
            let dir = self.home.desk(&self.run, task, attempt);
            match state.status {
                Status::Running => {
                    let desk = Desk::found(&self.git(&call).await?, dir, &branch).await?;
                    let taken = match &desk {
                        Some(desk) => self.finish(room, task, desk, &Heard::nothing()).await.is_ok(),
                        None => false,
                    };
                    if !taken {
                        let last = state.heartbeat_at.unwrap_or(call.now());
                        self.gone_silent(room, task, last, Fault::Executor, &mut BTreeMap::new()).await?;
                    }
                }
                Status::Done => {
                    let commit = self.git(&call).await?.branch(&branch).await?;
                    let commit = commit
                        .ok_or_else(|| Error::failed(format!("the branch `{branch}` of a finished task is gone")))?;
                    self.confirm(room, &dag, task, &commit).await?;
                }
                _ => {}
            }
        }
        self.home.clear_desks(&self.run);
        Ok(())
    }
}

/// The branches of what a node depends on.
pub(super) fn sources(node: &Node, status: &DagStatus) -> Result<Vec<String>> {
    let branch = |id: &String| Ok(format!("forge/{id}/{}", status.of(id)?.current_attempt));
    node.dependencies.iter().map(branch).collect()
}

/// Whose fault it is that an attempt came to nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The task's, or its agent's.
    Task,
    /// The executor was stopped, or killed.
    Executor,
}

/// The agents that an agent of a run may start. They work in its work tree, and it tells for them.
fn helpers() -> Kinds {
    let mut kinds = Kinds::default();
    for kind in [AgentType::Throwaway, AgentType::Worker, AgentType::SubExecutor] {
        let mut tools = vec!["read", "write", "edit", "bash", "web_search", "web_fetch"];
        if kind != AgentType::Throwaway {
            tools.push("spawn_agent");
        }
        kinds.add(Kind {
            name: kind.role().to_owned(),
            about: format!("an agent of type {kind}"),
            system: prompts::helper().to_owned(),
            hands: Hands::Only(tools.into_iter().map(str::to_owned).collect()),
            role: Some(kind.role().to_owned()),
            ..Kind::default()
        });
    }
    kinds
}

/// Lets an agent work until it has no more to do: what its own agents report is its work too.
async fn whole(agent: &Agent, supervisor: &Supervisor, words: String) -> Result<Ended> {
    let mut words = words;
    loop {
        let ended = agent.turn(vec![Part::Text { text: words }]).await?.ended;
        if ended != Ended::Done {
            return Ok(ended);
        }
        supervisor.idle(&agent.session.id).await;
        let reports = agent.handle.take_follow_ups();
        if reports.is_empty() {
            return Ok(ended);
        }
        words = reports.join("\n\n");
    }
}

/// When an agent was last heard of.
#[derive(Default)]
struct Pulse {
    heard: Timestamp,
    /// Calls that run, and agents of its own: as long as they do, it waits for them and may be silent. Their own limits
    /// end them.
    busy: HashSet<String>,
    calls: Calls,
    said: String,
    kind: Option<ContentKind>,
}

impl Pulse {
    /// Takes an event in. What the agent has said, when it is through with it.
    fn hear(&mut self, event: &Event, now: Timestamp) -> Option<(String, ContentKind)> {
        match event {
            // The endpoint that does not answer is what silence is about.
            Event::Retrying { .. } => return None,
            Event::Calling { id, .. } | Event::Child { id, ended: false, .. } => _ = self.busy.insert(id.clone()),
            Event::Called { id, name, reply, .. } => {
                self.busy.remove(id);
                self.calls.count(name, reply);
            }
            Event::Child { id, ended: true, .. } => _ = self.busy.remove(id),
            _ => {}
        }
        self.heard = now;
        let (piece, kind) = match event {
            Event::Text(piece) => (Some(piece), Some(ContentKind::Text)),
            Event::Reasoning(piece) => (Some(piece), Some(ContentKind::Thinking)),
            _ => (None, None),
        };
        let through = self.kind.filter(|it| Some(*it) != kind && !self.said.trim().is_empty());
        let told = through.map(|kind| (std::mem::take(&mut self.said), kind));
        if let Some(piece) = piece {
            self.kind = kind;
            if self.said.len() < LONGEST {
                self.said.push_str(piece);
            }
        } else {
            (self.kind, self.said) = (None, String::new());
        }
        told
    }

    /// When it was last known to live.
    fn last(&self, now: Timestamp) -> Timestamp {
        if self.busy.is_empty() { self.heard } else { now }
    }
}

/// The most of one message that is told while an agent works.
const LONGEST: usize = 8 << 10;

fn why(ended: &Ended) -> String {
    match ended {
        Ended::Done => "it had no more to say".to_owned(),
        Ended::Cancelled => "it was stopped".to_owned(),
        Ended::Budget(text) | Ended::Circles(text) | Ended::Model(text) => text.clone(),
    }
}
