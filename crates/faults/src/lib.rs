//! Faults on purpose, against the real program: it is killed at any moment, its disk fails, fills up or is slow, its
//! clock jumps, its files are torn. What it acknowledged must be there afterwards, and nothing may be half there.
//!
//! The program is `helve` beside this one in the target folder, or the one that `HELVE_BIN` names: build it first with
//! `cargo build -p helve-cli`. `HELVE_SEED` repeats a run, `HELVE_KILLS` sets how many faults there are.

mod deeds;
mod desk;
mod dice;
mod disk;
mod rounds;
mod strace;
mod talk;

pub use deeds::{
    ArtifactWorkload, ConversationWorkload, FileWorkload, MergeWorkload, NoteWorkload, PatchWorkload, ScheduleWorkload,
    SpillWorkload, StepOutcome, Workload, verify_events,
};
pub use desk::{BatchProcess, CallResult, ProcessResult, TestEnv};
pub use dice::{Rng, env_number, seed};
pub use disk::{
    SKIPPED, SmallDisk, exec_in_mount_namespace, in_mount_namespace, rerun_in_mount_namespace, unshare_command,
};
pub use rounds::{InjectedFault, SYSCALL_FAULTS, Totals, Violation, run_mixed, run_round};
pub use strace::{SyscallFault, strace_available};
pub use talk::MockModelThread;
