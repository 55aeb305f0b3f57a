//! Graphs of tasks: their order, and what can begin now. Ten times the tasks must take about ten times as long.

use anyhow::Result;
use helve_tools::artifacts::{AgentType, Dag, DagStatus, Metadata, Node, NodeKind, Status};
use jiff::Timestamp;

use crate::report::{Aim, Duel, Ready, Report};

pub(super) fn run(report: &mut Report) -> Result<()> {
    let (small, large) = (Plan::of(1_000), Plan::of(10_000));
    report.duel(
        // Twice of linear: a cache that no longer holds it all may cost that much.
        Duel::of("schedule 10,000 tasks", "schedule 1,000 tasks, 10 times").aim(Aim::Ratio(2.0)),
        &mut |times| large.schedule(times),
        &mut |times| small.schedule(times * 10),
    )?;
    let mut plans = |tasks: usize| -> Result<Ready<'static>> {
        let plan = Plan::of(tasks);
        Ok(Box::new(move |times| plan.schedule(times)))
    };
    let sizes = [100, 1_000, 10_000, 100_000];
    report.grow(("check, order and pick", "tasks"), &sizes, &mut [("helve", &mut plans)])
}

struct Plan {
    dag: Dag,
    status: DagStatus,
}

impl Plan {
    /// Phases of ten tasks each, and a refinery after each phase. Half of it is merged.
    fn of(tasks: usize) -> Self {
        let mut nodes: Vec<Node> = Vec::with_capacity(tasks);
        for at in 0..tasks {
            let (phase, place) = (at / 11, at % 11);
            let refinery = place == 10;
            let dependencies = match (refinery, phase) {
                (true, _) => (phase * 11..at).map(id).collect(),
                (false, 0) => Vec::new(),
                (false, _) => vec![id(phase * 11 - 1)],
            };
            nodes.push(Node {
                id: id(at),
                kind: if refinery { NodeKind::Refinery } else { NodeKind::Task },
                agent_type: if refinery { AgentType::Refinery } else { AgentType::Worker },
                dependencies,
                status: Status::Pending,
                metadata: None,
            });
        }
        let metadata = Metadata {
            created_at: Timestamp::UNIX_EPOCH,
            created_by: "captain".into(),
            total_tasks: tasks - tasks / 11,
            total_refineries: tasks / 11,
        };
        let dag = Dag { version: 1, run_id: "bench".into(), nodes, metadata };
        let mut status = DagStatus::new(&dag, Timestamp::UNIX_EPOCH);
        for at in 0..tasks / 22 * 11 {
            if let Some(state) = status.nodes.get_mut(&id(at)) {
                state.status = Status::Merged;
            }
        }
        Self { dag, status }
    }

    fn schedule(&self, times: usize) -> Result<()> {
        for _ in 0..times {
            anyhow::ensure!(self.dag.issues().is_empty(), "the graph is not sound");
            anyhow::ensure!(self.dag.order().len() == self.dag.nodes.len(), "the order is not whole");
            anyhow::ensure!(self.status.ready(&self.dag).count() > 0, "nothing can begin");
        }
        Ok(())
    }
}

fn id(at: usize) -> String {
    format!("task-{at:05}")
}
