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

pub use deeds::{Artifacts, Branches, Deed, Files, Notes, Outcome, Patches, Plans, Spills, Talks, wrong_events};
pub use desk::{Answer, Desk, Hand, Ran};
pub use dice::{Dice, number, seed};
pub use disk::{Disk, SKIPPED, again_with_mounts, is_inside, may_mount, stay_with_mounts};
pub use rounds::{CALLS, Fault, Tally, Wrong, mixed, one_round};
pub use strace::{Inject, may_trace};
pub use talk::Model;
