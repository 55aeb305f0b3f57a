//! One task: a branch, a work tree, an agent, and what becomes of its work.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use helve_contract::{CancellationToken, Error, Result, jiff::Timestamp, ports::Part};
use helve_tools::{
    artifacts::{AgentType, Dag, Node, NodeKind, Outcome, Room, Status, Walkthrough},
    git::Git,
};
use serde_json::json;

use super::{
    desk::{self, Desk},
    executor::{Executor, integration, is_exhausted},
    prompts, review,
};
use crate::{Agent, Ended, Event, Handle, Kind, Kinds, Limits, Need, Supervisor, prompt};

/// An agent at work: in the end its task, and how it went.
pub(super) type Worker<'a> = BoxFuture<'a, (String, Worked)>;

/// How the work on a task went.
pub(super) enum Worked {
    /// The agent has ended.
    Ended(Desk, Ended),
    /// It could not begin, or broke.
    Failed(String),
    /// It was not heard of for too long.
    Silent(Timestamp),
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
        self.tell("task.scheduled", json!({ "taskId": task, "agentType": node.agent_type }));
        self.mark(task, Status::Running).await?;
        let state = room.status(dag).await?.of(task)?.clone();
        let attempt = state.current_attempt;
        let id = format!("{}-{task}-{attempt}", self.run);
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
        let desk = Desk::make(&call, self.home.desk(&self.run, task, attempt), &branch).await?;
        self.tell("task.started", json!({ "taskId": task, "agentId": id, "sandboxId": id, "branch": branch }));
        if node.kind == NodeKind::Refinery {
            self.tell("refinery.started", json!({ "taskId": task, "dependencyCount": node.dependencies.len() }));
        }
        let mut errand = self.home.errand(&self.run, &integration(&self.run));
        (errand.task, errand.attempt, errand.branch) = (Some(task.to_owned()), attempt, Some(branch.clone()));
        let (mut agent, supervisor) = self.agent(node.agent_type, &id, &desk, errand).await?;
        agent.handle = Handle::under(&cancel);
        let words = self.words(&room, dag, node, &branch, state.last_error.into_iter().collect()).await?;
        let worked = self.watched(task, &mut agent, &supervisor, words).await;
        supervisor.end(&agent.session.id).await;
        Ok(match worked? {
            Ok(ended) => Worked::Ended(desk, ended),
            Err(last) => {
                desk.leave();
                Worked::Silent(last)
            }
        })
    }

    /// An agent of a type, at a desk.
    async fn agent(
        &self,
        kind: AgentType,
        id: &str,
        desk: &Desk,
        errand: helve_contract::Errand,
    ) -> Result<(Agent, Arc<Supervisor>)> {
        let mut kinds = Kinds::default();
        for kind in [AgentType::Throwaway, AgentType::Worker, AgentType::SubExecutor] {
            kinds.add(Kind {
                name: kind.role().to_owned(),
                about: format!("an agent of type {kind}"),
                system: prompts::helper().to_owned(),
                ..Kind::default()
            });
        }
        let store = self.session.ports.store.clone();
        let supervisor = Supervisor::new(self.workshop.clone(), store, kinds, Limits::default());
        let need = Need {
            id: id.to_owned(),
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
        agent.title = Some(id.to_owned());
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
        let sources = self.sources(node, &status)?;
        Ok(prompts::refinery(node, &document, branch, &sources))
    }

    /// The branches of what a node depends on.
    pub(super) fn sources(&self, node: &Node, status: &helve_tools::artifacts::DagStatus) -> Result<Vec<String>> {
        let branch = |id: &String| Ok(format!("forge/{id}/{}", status.of(id)?.current_attempt));
        node.dependencies.iter().map(branch).collect()
    }

    /// Lets an agent work, and listens whether it lives. `Err` has when it was last heard of.
    async fn watched(
        &self,
        task: &str,
        agent: &mut Agent,
        supervisor: &Supervisor,
        words: String,
    ) -> Result<Result<Ended, Timestamp>> {
        let clock = self.session.ports.clock.clone();
        let began = clock.now();
        let heard = Arc::new(AtomicI64::new(began.as_millisecond()));
        let (ear, ticking) = (heard.clone(), clock.clone());
        agent.watcher = Arc::new(move |event: &Event| {
            if !matches!(event, Event::Retrying { .. }) {
                ear.store(ticking.now().as_millisecond(), Ordering::Relaxed);
            }
        });
        let seat = supervisor.seat(agent);
        let turn = agent.turn(vec![Part::Text { text: words }]);
        tokio::pin!(turn);
        let every = self.settings.heartbeat.min(self.settings.stale_after).max(Duration::from_millis(10));
        let mut tick = tokio::time::interval(every);
        let ended = loop {
            tokio::select! {
                outcome = &mut turn => break Ok(outcome?.ended),
                _ = tick.tick() => {
                    let now = clock.now();
                    let last = Timestamp::from_millisecond(heard.load(Ordering::Relaxed)).unwrap_or(now);
                    if now.duration_since(last).unsigned_abs() > self.settings.stale_after {
                        agent.handle.cancel();
                        // It ends by itself when it can; what hangs is dropped.
                        _ = tokio::time::timeout(Duration::from_secs(5), &mut turn).await;
                        break Err(last);
                    }
                    let uptime = now.duration_since(began).as_secs();
                    self.tell("task.heartbeat", json!({ "taskId": task, "agentId": agent.session.id, "uptimeSeconds": uptime }));
                    self.heard_of(task).await?;
                }
            }
        };
        drop(seat);
        Ok(ended)
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
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<()> {
        let why = match worked {
            Worked::Ended(desk, ended) => match self.finish(room, task, &desk, &ended).await {
                Ok(()) => {
                    desk.leave();
                    return Ok(());
                }
                Err(error) => {
                    desk.leave();
                    if ended == Ended::Cancelled {
                        return self.gone_silent(room, task, self.call().now(), not_before).await;
                    }
                    error.to_string()
                }
            },
            Worked::Failed(why) => why,
            Worked::Silent(last) => return self.gone_silent(room, task, last, not_before).await,
        };
        self.mark(task, Status::Failed).await?;
        let exhausted = self.rest(room, task, &why, not_before).await?;
        self.tell("task.failed", json!({ "taskId": task, "error": why, "canRetry": !exhausted }));
        if exhausted {
            self.tell("task.exhausted", json!({ "taskId": task, "finalStatus": "FAILED" }));
        }
        Ok(())
    }

    async fn gone_silent(
        &self,
        room: &Room<'_>,
        task: &str,
        last: Timestamp,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<()> {
        self.mark(task, Status::Stale).await?;
        self.rest(room, task, "the agent was not heard of for too long, or was stopped", not_before).await?;
        let threshold = self.settings.stale_after.as_secs();
        self.tell("task.stale", json!({ "taskId": task, "lastHeartbeat": last, "threshold": threshold }));
        Ok(())
    }

    /// Notes why an attempt failed, and when the next one may begin. Whether there is none left.
    async fn rest(
        &self,
        room: &Room<'_>,
        task: &str,
        why: &str,
        not_before: &mut BTreeMap<String, Timestamp>,
    ) -> Result<bool> {
        let dag = room.dag().await?;
        let state = room
            .move_on(&dag, |status| {
                if let Some(node) = status.nodes.get_mut(task) {
                    node.last_error = Some(why.chars().take(2000).collect());
                    status.version += 1;
                }
                Ok(status.of(task)?.clone())
            })
            .await?;
        let pause = self.settings.backoff * 2_u32.saturating_pow(state.current_attempt.min(6) - 1);
        let time =
            self.call().now().checked_add(helve_contract::jiff::SignedDuration::try_from(pause).unwrap_or_default());
        not_before.insert(task.to_owned(), time.unwrap_or_else(|_| self.call().now()));
        Ok(is_exhausted(&state))
    }

    /// Takes over the work of an agent that has ended: it must have told what it did, and its branch must hold it.
    async fn finish(&self, room: &Room<'_>, task: &str, desk: &Desk, ended: &Ended) -> Result<()> {
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let (state, node) = (status.of(task)?.clone(), dag.node(task));
        let node = node.ok_or_else(|| Error::failed(format!("there is no task `{task}`")))?;
        let place = Walkthrough::place(task, state.current_attempt);
        if room.bytes(&place).await?.is_none() {
            return Err(Error::failed(format!("the agent ended without a walkthrough ({})", why(ended))));
        }
        let told = Walkthrough::parse(&room.text(&place).await?)?.front;
        if told.status == Outcome::Failed {
            return Err(Error::failed("the agent says that it failed; its walkthrough tells why"));
        }
        let message = format!(
            "forge({task}): take over the work of attempt {}\n\nTask: {task}\nAttempt: {}\nAgent: {}",
            state.current_attempt,
            state.current_attempt,
            state.assigned_agent.as_deref().unwrap_or("unknown"),
        );
        let call = self.call();
        let commit = desk.take_over(&call, &message).await?;
        if node.kind == NodeKind::Refinery {
            let git = Git::of(&call).await?;
            for source in self.sources(node, &status)? {
                let theirs = git.branch(&source).await?;
                let theirs = theirs.ok_or_else(|| Error::failed(format!("the branch `{source}` is gone")))?;
                if !git.is_ancestor(&theirs, &commit).await? {
                    return Err(Error::failed(format!("the refinery has not merged `{source}`")));
                }
            }
        }
        self.mark(task, Status::Done).await?;
        self.confirm(room, &dag, task, &commit).await?;
        self.tell("task.completed", json!({ "taskId": task, "walkthroughPath": room.shown(&place) }));
        let others = Vec::new();
        for (kind, data) in review::remarks(task, &told, &others) {
            self.tell(kind, data);
        }
        Ok(())
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
        self.tell("branch.pushed", json!({ "taskId": task, "branch": branch, "ref": commit }));
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
                    let desk = Desk::found(&call, dir.clone(), &branch).await?;
                    let taken = match &desk {
                        Some(desk) => self.finish(room, task, desk, &Ended::Cancelled).await.is_ok(),
                        None => false,
                    };
                    if !taken {
                        self.gone_silent(room, task, state.heartbeat_at.unwrap_or(call.now()), &mut BTreeMap::new())
                            .await?;
                    }
                }
                Status::Done => {
                    let commit = Git::of(&call).await?.branch(&branch).await?;
                    let commit = commit
                        .ok_or_else(|| Error::failed(format!("the branch `{branch}` of a finished task is gone")))?;
                    self.confirm(room, &dag, task, &commit).await?;
                }
                _ => {}
            }
            _ = desk::clear(&dir);
        }
        Ok(())
    }
}

fn why(ended: &Ended) -> String {
    match ended {
        Ended::Done => "it had no more to say".to_owned(),
        Ended::Cancelled => "it was stopped".to_owned(),
        Ended::Budget(text) | Ended::Circles(text) | Ended::Model(text) => text.clone(),
    }
}
