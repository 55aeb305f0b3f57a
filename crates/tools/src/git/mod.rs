//! Branches of a run: creation, merges, conflict repair and tests.

mod fix_conflict;
mod join;
mod merge_branches;
mod prepare_branch;
mod program;
mod reports;
mod run_tests;

pub use fix_conflict::FixConflict;
pub use join::{MergeOutcome, merge_commits};
pub use merge_branches::MergeBranches;
pub use prepare_branch::PrepareBranch;
pub use program::{Git, GitOutput, check_branch_name};
pub use reports::TestCase;
pub use run_tests::{RunTests, RunTestsOutput};
