//! The task graph (DAG): validation, execution order and overlays.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
};

pub use helve_contract::AgentType;
use helve_contract::{Error, jiff::Timestamp};
use serde::{Deserialize, Serialize};

use super::status::TaskStatus;

/// The plan: every task and its dependencies. During execution it only changes through overlays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dag {
    /// The format version: 1.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// The tasks, in the order of the plan.
    pub nodes: Vec<DagNode>,
    /// Creator, time and counts.
    pub metadata: DagMetadata,
}

/// One task of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DagNode {
    /// The task's id.
    pub id: String,
    /// A task or a refinery.
    #[serde(rename = "type", default)]
    pub kind: DagNodeKind,
    /// The type of agent that works on it.
    pub agent_type: AgentType,
    /// The nodes that must be merged before it starts.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// Always `PENDING` in the plan; the live state is stored separately.
    #[serde(default)]
    pub status: TaskStatus,
    /// Additional fields of the captain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DagNodeKind {
    /// Work on a separate branch.
    #[default]
    Task,
    /// Merges the branches of what it depends on.
    #[serde(alias = "Refinery")]
    Refinery,
}

/// Creator, time and counts of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DagMetadata {
    /// The creation time.
    pub created_at: Timestamp,
    /// The creator: the captain.
    pub created_by: String,
    /// Nodes that are tasks.
    pub total_tasks: usize,
    /// Nodes that are refineries.
    pub total_refineries: usize,
}

/// A validation error of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagIssue {
    /// Its code.
    pub code: &'static str,
    /// The message.
    pub text: String,
}

impl fmt::Display for DagIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

/// Combines the issues into one error.
pub(super) fn dag_error(issues: &[DagIssue]) -> Error {
    let lines: Vec<_> = issues.iter().take(20).map(DagIssue::to_string).collect();
    let more = issues.len().saturating_sub(20);
    let more = if more > 0 { format!("\n… and {more} more") } else { String::new() };
    Error::failed(format!("the graph was not accepted:\n{}{more}", lines.join("\n")))
}

impl Dag {
    /// Counts its nodes: tasks, refineries.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let refineries = self.nodes.iter().filter(|node| node.kind == DagNodeKind::Refinery).count();
        (self.nodes.len() - refineries, refineries)
    }

    /// The node of this id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&DagNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// All validation errors; empty if the graph can run.
    #[must_use]
    pub fn validate(&self) -> Vec<DagIssue> {
        let mut issues = Vec::new();
        let mut ids = HashSet::new();
        for node in &self.nodes {
            if !ids.insert(node.id.as_str()) {
                issues.push(issue("DAG_DUPLICATE_NODE_ID", format!("`{}` stands there twice", node.id)));
            }
        }
        for node in &self.nodes {
            issues.extend(node.issues(&ids));
        }
        let (tasks, refineries) = self.counts();
        if (self.metadata.total_tasks, self.metadata.total_refineries) != (tasks, refineries) {
            issues.push(issue(
                "DAG_METADATA_COUNT_MISMATCH",
                format!(
                    "metadata says {} tasks and {} refineries, and there are {tasks} and {refineries}",
                    self.metadata.total_tasks, self.metadata.total_refineries
                ),
            ));
        }
        // A traversal needs unique node ids.
        let unclear = |it: &DagIssue| matches!(it.code, "DAG_DUPLICATE_NODE_ID" | "DAG_UNKNOWN_DEPENDENCY");
        if !issues.iter().any(unclear)
            && let Some(cycle) = self.find_cycle()
        {
            issues.push(issue("DAG_CYCLE", format!("these wait for each other: {}", cycle.join(" -> "))));
        }
        issues
    }

    /// A topological order; among candidates the first in the plan comes first. Nodes on a cycle are left out.
    #[must_use]
    pub fn topological_order(&self) -> Vec<&DagNode> {
        let place: HashMap<_, _> = self.nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).collect();
        let mut waits: Vec<usize> = vec![0; self.nodes.len()];
        let mut leads_to: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for before in node.dependencies.iter().filter_map(|id| place.get(id.as_str())) {
                waits[at] += 1;
                leads_to[*before].push(at);
            }
        }
        let mut ready: std::collections::BinaryHeap<_> =
            (0..self.nodes.len()).filter(|at| waits[*at] == 0).map(std::cmp::Reverse).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(std::cmp::Reverse(at)) = ready.pop() {
            order.push(&self.nodes[at]);
            for next in &leads_to[at] {
                waits[*next] -= 1;
                if waits[*next] == 0 {
                    ready.push(std::cmp::Reverse(*next));
                }
            }
        }
        order
    }

    /// One cycle, if any: ids, with the first one repeated at the end.
    fn find_cycle(&self) -> Option<Vec<String>> {
        let sorted: HashSet<_> = self.topological_order().into_iter().map(|node| node.id.as_str()).collect();
        let stuck = |id: &str| !sorted.contains(id);
        let first = self.nodes.iter().find(|node| stuck(&node.id))?;
        // Every stuck node waits for a stuck one, so walking back finds the cycle.
        let by_id: HashMap<_, _> = self.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let mut path = vec![first.id.as_str()];
        let mut seen: HashMap<&str, usize> = [(first.id.as_str(), 0)].into();
        loop {
            let last = by_id.get(path.last()?)?;
            let next = last.dependencies.iter().map(String::as_str).find(|id| stuck(id))?;
            if let Some(start) = seen.get(next) {
                let mut cycle: Vec<_> = path[*start..].iter().map(|id| (*id).to_owned()).collect();
                cycle.push(next.to_owned());
                cycle.reverse();
                return Some(cycle);
            }
            seen.insert(next, path.len());
            path.push(next);
        }
    }

    /// The graph with its overlays in the order of application. Nothing is removed.
    pub fn with_overlays(&self, overlays: &[Overlay]) -> Result<Self, Vec<DagIssue>> {
        let mut order: VecDeque<_> = {
            let mut all: Vec<_> = overlays.iter().collect();
            all.sort_by(|a, b| (a.applied_at, &a.cr_id).cmp(&(b.applied_at, &b.cr_id)));
            let mut seen = HashSet::new();
            all.into_iter().filter(|it| seen.insert(it.cr_id.as_str())).collect()
        };
        let mut dag = self.clone();
        let mut place: HashMap<String, usize> =
            dag.nodes.iter().enumerate().map(|(at, node)| (node.id.clone(), at)).collect();
        let mut issues = Vec::new();
        while let Some(overlay) = order.pop_front() {
            for node in &overlay.added_nodes {
                if place.contains_key(&node.id) {
                    let text = format!("{} adds `{}`, which exists", overlay.cr_id, node.id);
                    issues.push(issue("DAG_OVERLAY_NODE_ID_CONFLICT", text));
                    continue;
                }
                place.insert(node.id.clone(), dag.nodes.len());
                dag.nodes.push(node.clone());
            }
            for edge in &overlay.added_edges {
                match (place.contains_key(&edge.from), place.get(&edge.to)) {
                    (true, Some(to)) => {
                        let dependencies = &mut dag.nodes[*to].dependencies;
                        if !dependencies.contains(&edge.from) {
                            dependencies.push(edge.from.clone());
                        }
                    }
                    _ => {
                        let text =
                            format!("{}: {} -> {} names a task that is not there", overlay.cr_id, edge.from, edge.to);
                        issues.push(issue("DAG_OVERLAY_UNKNOWN_NODE", text));
                    }
                }
            }
        }
        (dag.metadata.total_tasks, dag.metadata.total_refineries) = dag.counts();
        issues.extend(dag.validate());
        if issues.is_empty() { Ok(dag) } else { Err(issues) }
    }
}

impl DagNode {
    fn issues(&self, ids: &HashSet<&str>) -> Vec<DagIssue> {
        let mut issues = Vec::new();
        for before in &self.dependencies {
            if *before == self.id {
                issues.push(issue("DAG_SELF_DEPENDENCY", format!("`{}` waits for itself", self.id)));
            } else if !ids.contains(before.as_str()) {
                let near = helve_contract::closest_names(before, ids.iter().copied());
                let near = near.first().map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
                let text = format!("`{}` waits for `{before}`, which is not in the graph{near}", self.id);
                issues.push(issue("DAG_UNKNOWN_DEPENDENCY", text));
            }
        }
        if self.kind == DagNodeKind::Refinery && self.dependencies.is_empty() {
            let text = format!("the refinery `{}` has nothing to merge; name the tasks it depends on", self.id);
            issues.push(issue("DAG_EMPTY_REFINERY_DEPENDENCIES", text));
        }
        if (self.kind == DagNodeKind::Refinery) != (self.agent_type == AgentType::Refinery) {
            let text = format!("`{}`: type refinery and agentType \"refinery\" go together", self.id);
            issues.push(issue("DAG_AGENT_TYPE_MISMATCH", text));
        }
        issues
    }
}

fn issue(code: &'static str, text: String) -> DagIssue {
    DagIssue { code, text }
}

/// What a change request adds to a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlay {
    /// The change request.
    pub cr_id: String,
    /// When it was applied.
    pub applied_at: Timestamp,
    /// New tasks.
    #[serde(default)]
    pub added_nodes: Vec<DagNode>,
    /// New dependencies.
    #[serde(default)]
    pub added_edges: Vec<DagEdge>,
}

/// A dependency: `to` waits for `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagEdge {
    /// What comes first.
    pub from: String,
    /// What waits.
    pub to: String,
}

#[cfg(test)]
mod tests {
    use helve_contract::jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn dag(nodes: &[(&str, &[&str])]) -> Dag {
        let nodes: Vec<_> = nodes.iter().map(|(id, before)| node(id, before)).collect();
        let metadata = DagMetadata {
            created_at: Timestamp::UNIX_EPOCH,
            created_by: "captain".into(),
            total_tasks: nodes.len(),
            total_refineries: 0,
        };
        Dag { version: 1, run_id: "r".into(), nodes, metadata }
    }

    fn node(id: &str, before: &[&str]) -> DagNode {
        DagNode {
            id: id.into(),
            kind: DagNodeKind::Task,
            agent_type: AgentType::Throwaway,
            dependencies: before.iter().map(|it| (*it).to_owned()).collect(),
            status: TaskStatus::Pending,
            metadata: None,
        }
    }

    fn said(dag: &Dag) -> Vec<String> {
        dag.validate().iter().map(DagIssue::to_string).collect()
    }

    #[test]
    fn names_one_way_round_in_circles() {
        let dag = dag(&[("a", &[]), ("b", &["a", "d"]), ("c", &["b"]), ("d", &["c"])]);
        assert_eq!(said(&dag), ["DAG_CYCLE: these wait for each other: b -> c -> d -> b"]);
    }

    #[test]
    fn says_everything_that_is_wrong() {
        let mut dag = dag(&[("a", &["a"]), ("a", &["task-x"]), ("m", &[])]);
        dag.nodes[2].kind = DagNodeKind::Refinery;
        assert_eq!(
            said(&dag),
            [
                "DAG_DUPLICATE_NODE_ID: `a` stands there twice",
                "DAG_SELF_DEPENDENCY: `a` waits for itself",
                "DAG_UNKNOWN_DEPENDENCY: `a` waits for `task-x`, which is not in the graph",
                "DAG_EMPTY_REFINERY_DEPENDENCIES: the refinery `m` has nothing to merge; name the tasks it depends on",
                "DAG_AGENT_TYPE_MISMATCH: `m`: type refinery and agentType \"refinery\" go together",
                "DAG_METADATA_COUNT_MISMATCH: metadata says 3 tasks and 0 refineries, and there are 2 and 1",
            ]
        );
    }

    #[test]
    fn an_overlay_adds_and_never_takes_away() {
        let base = dag(&[("a", &[]), ("b", &["a"])]);
        let overlay = Overlay {
            cr_id: "cr-001".into(),
            applied_at: Timestamp::UNIX_EPOCH,
            added_nodes: vec![node("c", &["a"])],
            added_edges: vec![DagEdge { from: "c".into(), to: "b".into() }],
        };
        let grown = base.with_overlays(&[overlay.clone(), overlay]).unwrap();
        let order: Vec<_> = grown.topological_order().into_iter().map(|node| node.id.as_str()).collect();
        assert_eq!((order, base.nodes.len()), (vec!["a", "c", "b"], 2));
    }

    proptest! {
        #[test]
        fn the_order_respects_every_dependency(edges in prop::collection::vec((0_usize..30, 0_usize..30), 0..120)) {
            // Edges from lower to higher numbers form no cycle.
            let nodes: Vec<_> = (0..30).map(|at| {
                let before: Vec<_> = edges.iter().filter(|(_, to)| *to == at).filter(|(from, to)| from < to).map(|(from, _)| format!("t{from}")).collect();
                DagNode { dependencies: before, ..node(&format!("t{at}"), &[]) }
            }).collect();
            let mut dag = dag(&[]);
            dag.nodes = nodes;
            dag.metadata.total_tasks = 30;
            prop_assert_eq!(dag.validate(), vec![]);
            let order = dag.topological_order();
            prop_assert_eq!(order.len(), 30);
            for (at, node) in order.iter().enumerate() {
                for before in &node.dependencies {
                    prop_assert!(order[..at].iter().any(|it| it.id == *before));
                }
            }
        }

        #[test]
        fn overlays_only_add_and_come_in_their_own_order(
            added in prop::collection::vec((0_usize..5, 0_usize..5, 0_i64..3), 0..8),
            mixed in any::<prop::sample::Index>(),
        ) {
            let base = dag(&[("a", &[]), ("b", &["a"])]);
            let mut overlays: Vec<_> = added.iter().enumerate().map(|(at, (before, to, time))| Overlay {
                cr_id: format!("cr-{at:03}"),
                applied_at: Timestamp::from_second(*time).unwrap(),
                added_nodes: vec![node(&format!("n{at}"), &["a"])],
                // If a node does not exist or a cycle results, the whole overlay is refused.
                added_edges: vec![DagEdge { from: format!("n{before}"), to: format!("n{to}") }],
            }).collect();
            let grown = base.with_overlays(&overlays);
            let middle = mixed.index(overlays.len() + 1).min(overlays.len());
            overlays.rotate_left(middle);
            let again = base.with_overlays(&overlays);
            match (grown, again) {
                (Ok(grown), Ok(again)) => {
                    prop_assert_eq!(&grown, &again);
                    prop_assert_eq!(&grown.nodes[..2], &base.nodes[..]);
                    prop_assert_eq!(grown.nodes.len(), 2 + overlays.len());
                    prop_assert_eq!(grown.validate(), vec![]);
                }
                (Err(_), Err(_)) => {}
                (one, other) => prop_assert!(false, "{one:?} {other:?}"),
            }
        }

        #[test]
        fn a_cycle_is_found_exactly_where_there_is_one(edges in prop::collection::vec((0_usize..12, 0_usize..12), 0..40)) {
            let nodes: Vec<_> = (0..12).map(|at| {
                let before: Vec<_> = edges.iter().filter(|(from, to)| *to == at && from != to).map(|(from, _)| format!("t{from}")).collect();
                DagNode { dependencies: before, ..node(&format!("t{at}"), &[]) }
            }).collect();
            let mut dag = dag(&[]);
            dag.nodes = nodes;
            dag.metadata.total_tasks = 12;
            let sorted = dag.topological_order().len() == 12;
            match dag.find_cycle() {
                None => prop_assert!(sorted),
                Some(path) => {
                    prop_assert!(!sorted);
                    prop_assert_eq!(path.first(), path.last());
                    for pair in path.windows(2) {
                        prop_assert!(dag.node(&pair[1]).unwrap().dependencies.contains(&pair[0]));
                    }
                }
            }
        }
    }
}
