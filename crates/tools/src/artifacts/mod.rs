//! The artifacts of a run: specs, tasks, the graph, walkthroughs, change requests.

mod add_subtask;
mod change;
mod create_spec;
mod create_task;
mod dag;
mod emit_cr;
mod emit_walkthrough;
mod front;
mod mark_task_status;
mod read_dag;
mod read_spec;
mod read_subtasks;
mod read_task;
mod read_walkthrough;
mod room;
mod set_dag;
mod status;
mod task;
mod walkthrough;

pub use add_subtask::{AddSubtask, Subtask};
pub use change::{ChangeRequest, ChangeRequestStatus};
pub use create_spec::CreateSpec;
pub use create_task::CreateTask;
pub use dag::{AgentType, Dag, DagEdge, DagIssue, DagMetadata, DagNode, DagNodeKind, Overlay};
pub use emit_cr::EmitCr;
pub use emit_walkthrough::{EmitWalkthrough, WalkthroughReport};
pub use front::FrontMatterDocument;
pub use mark_task_status::MarkTaskStatus;
pub use read_dag::ReadDag;
pub use read_spec::ReadSpec;
pub use read_subtasks::ReadSubtasks;
pub use read_task::ReadTask;
pub use read_walkthrough::ReadWalkthrough;
pub use room::{CallArtifacts, RunPhase, RunState, StoredRunStatus, check_file_name, check_task_id};
pub use set_dag::SetDag;
pub use status::{DagStatus, MAX_ATTEMPTS, NodeStatus, TaskStatus};
pub use task::{Complexity, TaskFrontMatter};
pub use walkthrough::{ChangedFile, TestOutcome, Walkthrough, WalkthroughStatus, WalkthroughTest};

#[cfg(test)]
mod tests;
