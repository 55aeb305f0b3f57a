//! Fault injection against the real program: kills at any moment, failing, full and slow disks, clock jumps, torn
//! files. Every acknowledged write must survive, and nothing may be partial.
//!
//! The program is `helve` beside this one in the target directory, or the one in `HELVE_BIN`: build it first with
//! `cargo build -p helve-cli`. `HELVE_SEED` repeats a run, `HELVE_KILLS` sets the number of faults.

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
