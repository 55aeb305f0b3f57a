//! Task graphs: their order and the ready tasks. Ten times the tasks must take about ten times as long.

use anyhow::Result;
use helve_tools::artifacts::{AgentType, Dag, DagMetadata, DagNode, DagNodeKind, DagStatus, TaskStatus};
use jiff::Timestamp;

use crate::report::{BenchReport, BenchTarget, ComparisonSpec, PreparedWork};

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (small, large) = (DagFixture::of(1_000), DagFixture::of(10_000));
    report.compare(
        // Twice of linear: a cache that no longer holds it all may cost that much.
        ComparisonSpec::of("schedule 10,000 tasks", "schedule 1,000 tasks, 10 times").aim(BenchTarget::Ratio(2.0)),
        &mut |times| large.schedule(times),
        &mut |times| small.schedule(times * 10),
    )?;
    let mut plans = |tasks: usize| -> Result<PreparedWork<'static>> {
        let plan = DagFixture::of(tasks);
        Ok(Box::new(move |times| plan.schedule(times)))
    };
    let sizes = [100, 1_000, 10_000, 100_000];
    report.measure_growth(("check, order and pick", "tasks"), &sizes, &mut [("helve", &mut plans)])
}

struct DagFixture {
    dag: Dag,
    status: DagStatus,
}

impl DagFixture {
    /// Phases of ten tasks each, and a refinery after each phase. Half of it is merged.
    fn of(tasks: usize) -> Self {
        let mut nodes: Vec<DagNode> = Vec::with_capacity(tasks);
        for at in 0..tasks {
            let (phase, place) = (at / 11, at % 11);
            let refinery = place == 10;
            let dependencies = match (refinery, phase) {
                (true, _) => (phase * 11..at).map(id).collect(),
                (false, 0) => Vec::new(),
                (false, _) => vec![id(phase * 11 - 1)],
            };
            nodes.push(DagNode {
                id: id(at),
                kind: if refinery { DagNodeKind::Refinery } else { DagNodeKind::Task },
                agent_type: if refinery { AgentType::Refinery } else { AgentType::Worker },
                dependencies,
                status: TaskStatus::Pending,
                metadata: None,
            });
        }
        let metadata = DagMetadata {
            created_at: Timestamp::UNIX_EPOCH,
            created_by: "captain".into(),
            total_tasks: tasks - tasks / 11,
            total_refineries: tasks / 11,
        };
        let dag = Dag { version: 1, run_id: "bench".into(), nodes, metadata };
        let mut status = DagStatus::new(&dag, Timestamp::UNIX_EPOCH);
        for at in 0..tasks / 22 * 11 {
            if let Some(state) = status.nodes.get_mut(&id(at)) {
                state.status = TaskStatus::Merged;
            }
        }
        Self { dag, status }
    }

    fn schedule(&self, times: usize) -> Result<()> {
        for _ in 0..times {
            anyhow::ensure!(self.dag.validate().is_empty(), "the graph is not sound");
            anyhow::ensure!(self.dag.topological_order().len() == self.dag.nodes.len(), "the order is not whole");
            anyhow::ensure!(self.status.ready(&self.dag).count() > 0, "nothing can begin");
        }
        Ok(())
    }
}

fn id(at: usize) -> String {
    format!("task-{at:05}")
}
