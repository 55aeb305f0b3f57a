//! The live states of tasks and the allowed transitions.

use std::{collections::BTreeMap, fmt};

use helve_contract::{Error, Result, jiff::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dag::{Dag, DagNode, DagNodeKind};

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskStatus {
    /// Not begun, or to be begun again.
    #[default]
    Pending,
    /// An agent works on it.
    Running,
    /// Its agent has ended and said what it did.
    Done,
    /// Its branch can be merged.
    MergeReady,
    /// Its branch is merged: the end.
    Merged,
    /// Its agent failed.
    Failed,
    /// Its agent was not heard of for too long.
    Stale,
}

impl TaskStatus {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Pending, Self::Running, Self::Done, Self::MergeReady, Self::Merged, Self::Failed, Self::Stale];

    /// The states that may follow this one.
    #[must_use]
    pub const fn allowed_transitions(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Running],
            Self::Running => &[Self::Done, Self::Failed, Self::Stale],
            Self::Done => &[Self::MergeReady],
            Self::MergeReady => &[Self::Merged],
            Self::Merged => &[],
            Self::Failed | Self::Stale => &[Self::Pending],
        }
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Done => "DONE",
            Self::MergeReady => "MERGE_READY",
            Self::Merged => "MERGED",
            Self::Failed => "FAILED",
            Self::Stale => "STALE",
        })
    }
}

/// The live state of a run's tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DagStatus {
    /// Incremented with each change.
    #[serde(default)]
    pub version: u64,
    /// The run.
    pub run_id: String,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The tasks, by id.
    pub nodes: BTreeMap<String, NodeStatus>,
}

/// The live state of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The task.
    pub task_id: String,
    /// Its state.
    pub status: TaskStatus,
    /// The attempt, counted from 1.
    pub current_attempt: u32,
    /// The maximum number of attempts.
    pub max_attempts: u32,
    /// The agent that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_agent: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When its agent last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<Timestamp>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The last commit of its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// The maximum number of attempts, including the first.
pub const MAX_ATTEMPTS: u32 = 4;

impl DagStatus {
    /// The initial states of all tasks of a graph.
    #[must_use]
    pub fn new(dag: &Dag, now: Timestamp) -> Self {
        let mut status = Self { version: 0, run_id: dag.run_id.clone(), updated_at: now, nodes: BTreeMap::new() };
        status.add_missing(dag);
        status
    }

    /// Adds tasks that an overlay added to the graph.
    pub fn add_missing(&mut self, dag: &Dag) {
        for node in &dag.nodes {
            self.nodes.entry(node.id.clone()).or_insert_with(|| NodeStatus {
                task_id: node.id.clone(),
                status: TaskStatus::Pending,
                current_attempt: 1,
                max_attempts: MAX_ATTEMPTS,
                assigned_agent: None,
                started_at: None,
                completed_at: None,
                heartbeat_at: None,
                last_error: None,
                commit: None,
            });
        }
    }

    /// The state of a task.
    pub fn node(&self, task: &str) -> Result<&NodeStatus> {
        self.nodes.get(task).ok_or_else(|| unknown_task_error(task, self.nodes.keys().map(String::as_str)))
    }

    /// The unmet dependencies of a task. A task waits until its dependencies are merged; a refinery only until they
    /// can be merged, because it merges them.
    #[must_use]
    pub fn unmet_dependencies<'a>(&self, dag: &'a Dag, task: &str) -> Vec<&'a str> {
        dag.node(task).map(|node| self.unmet(node).collect()).unwrap_or_default()
    }

    /// Like `unmet_dependencies`, for a node.
    fn unmet<'a>(&self, node: &'a DagNode) -> impl Iterator<Item = &'a str> {
        let enough = |status| match node.kind {
            DagNodeKind::Task => status == TaskStatus::Merged,
            DagNodeKind::Refinery => matches!(status, TaskStatus::MergeReady | TaskStatus::Merged),
        };
        let waiting = move |id: &&str| !self.nodes.get(*id).is_some_and(|it| enough(it.status));
        node.dependencies.iter().map(String::as_str).filter(waiting)
    }

    /// The tasks that can start now, in the order of the plan.
    pub fn ready<'a>(&self, dag: &'a Dag) -> impl Iterator<Item = &'a DagNode> {
        let pending = |id: &str| self.nodes.get(id).is_some_and(|it| it.status == TaskStatus::Pending);
        dag.nodes.iter().filter(move |node| pending(&node.id) && self.unmet(node).next().is_none())
    }

    /// Changes a task's state. The same state again changes nothing. Returns the previous state.
    pub fn transition(&mut self, dag: &Dag, task: &str, to: TaskStatus, now: Timestamp) -> Result<TaskStatus> {
        let from = self.node(task)?.status;
        if from == to {
            return Ok(from);
        }
        if !from.allowed_transitions().contains(&to) {
            let ways: Vec<_> = from.allowed_transitions().iter().map(TaskStatus::to_string).collect();
            let ways = if ways.is_empty() { "nowhere: it is the end".to_owned() } else { ways.join(", ") };
            return Err(Error::failed(format!(
                "`{task}` is {from} and cannot become {to}; from {from} it may go to {ways}"
            )));
        }
        if to == TaskStatus::Running {
            let waits = self.unmet_dependencies(dag, task);
            if !waits.is_empty() {
                let refinery = dag.node(task).is_some_and(|it| it.kind == DagNodeKind::Refinery);
                let word = if refinery { TaskStatus::MergeReady } else { TaskStatus::Merged };
                let text = format!("`{task}` cannot run yet: {} must be {word} before", waits.join(", "));
                return Err(Error::failed(text));
            }
        }
        let node = self.nodes.get_mut(task).ok_or_else(|| unknown_task_error(task, []))?;
        match to {
            TaskStatus::Pending if node.current_attempt >= node.max_attempts => {
                return Err(Error::failed(format!(
                    "`{task}` has used all of its {} attempts and stays {from}",
                    node.max_attempts
                )));
            }
            TaskStatus::Pending => {
                node.current_attempt += 1;
                (node.assigned_agent, node.started_at, node.completed_at) = (None, None, None);
                (node.heartbeat_at, node.commit) = (None, None);
            }
            TaskStatus::Running => (node.started_at, node.heartbeat_at) = (Some(now), Some(now)),
            TaskStatus::Done | TaskStatus::Failed | TaskStatus::Stale | TaskStatus::Merged => {
                node.completed_at = Some(now);
            }
            TaskStatus::MergeReady => {}
        }
        node.status = to;
        self.version += 1;
        self.updated_at = now;
        Ok(from)
    }
}

fn unknown_task_error<'a>(task: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let near = helve_contract::closest_names(task, known);
    let near = near.first().map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
    Error::failed(format!("there is no task `{task}` in this run{near}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::artifacts::dag::{AgentType, DagMetadata, DagNode};

    fn dag() -> Dag {
        let node = |id: &str, before: &[&str]| DagNode {
            id: id.into(),
            kind: DagNodeKind::Task,
            agent_type: AgentType::Worker,
            dependencies: before.iter().map(|it| (*it).to_owned()).collect(),
            status: TaskStatus::Pending,
            metadata: None,
        };
        let metadata = DagMetadata {
            created_at: Timestamp::UNIX_EPOCH,
            created_by: "captain".into(),
            total_tasks: 2,
            total_refineries: 0,
        };
        Dag { version: 1, run_id: "r".into(), nodes: vec![node("a", &[]), node("b", &["a"])], metadata }
    }

    #[test]
    fn a_task_waits_until_all_before_it_is_merged() {
        let (dag, now) = (dag(), Timestamp::UNIX_EPOCH);
        let mut status = DagStatus::new(&dag, now);
        let said = status.transition(&dag, "b", TaskStatus::Running, now).unwrap_err().to_string();
        assert_eq!(said, "`b` cannot run yet: a must be MERGED before");
        for to in [TaskStatus::Running, TaskStatus::Done, TaskStatus::MergeReady, TaskStatus::Merged] {
            status.transition(&dag, "a", to, now).unwrap();
        }
        assert_eq!(status.transition(&dag, "b", TaskStatus::Running, now).unwrap(), TaskStatus::Pending);
    }

    #[test]
    fn a_failed_task_is_tried_again_until_its_attempts_are_used() {
        let (dag, now) = (dag(), Timestamp::UNIX_EPOCH);
        let mut status = DagStatus::new(&dag, now);
        for _ in 1..MAX_ATTEMPTS {
            status.transition(&dag, "a", TaskStatus::Running, now).unwrap();
            status.transition(&dag, "a", TaskStatus::Failed, now).unwrap();
            status.transition(&dag, "a", TaskStatus::Pending, now).unwrap();
        }
        status.transition(&dag, "a", TaskStatus::Running, now).unwrap();
        status.transition(&dag, "a", TaskStatus::Stale, now).unwrap();
        let said = status.transition(&dag, "a", TaskStatus::Pending, now).unwrap_err().to_string();
        assert_eq!(said, "`a` has used all of its 4 attempts and stays STALE");
    }

    proptest! {
        #[test]
        fn nothing_but_the_listed_steps_ever_happens(steps in prop::collection::vec(0_usize..7, 0..60)) {
            let (dag, now) = (dag(), Timestamp::UNIX_EPOCH);
            let mut status = DagStatus::new(&dag, now);
            for to in steps.into_iter().map(|at| TaskStatus::ALL[at]) {
                let before = status.clone();
                let from = before.nodes["a"].status;
                match status.transition(&dag, "a", to, now) {
                    Ok(said) if from == to => prop_assert_eq!((said, &status), (from, &before)),
                    Ok(said) => {
                        prop_assert_eq!(said, from);
                        prop_assert!(from.allowed_transitions().contains(&to));
                        prop_assert_eq!(status.version, before.version + 1);
                    }
                    Err(_) => prop_assert_eq!(&status, &before),
                }
            }
        }
    }
}
