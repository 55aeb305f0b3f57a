//! Running programs so that nothing of them is ever left: one small process between the engine and each command.
//!
//! The engine starts the *stage*: the same binary, under another first argument, inside the walls that a sandbox built.
//! The stage puts up the inner walls, runs the command as its child, reaps what that leaves behind, and ends with it.
//! One socket joins the two. When it closes, for whatever reason, the stage kills everything.

mod attributes;
mod cgroup;
mod child;
mod dir;
mod finish;
mod forward;
mod harden;
mod launch;
mod leash;
mod mark;
mod notify;
mod own;
mod plan;
mod process;
mod rules;
mod seccomp;
mod stage;
mod sys;
mod terminal;
mod tree;
mod unix_connect;
mod warden;

pub(crate) use cgroup::{Cgroup, can_limit, can_limit_memory, most_memory};
pub(crate) use finish::POWERS;
pub use harden::harden;
pub(crate) use launch::{Keep, Launch, launch, try_out};
pub use leash::leashed;
pub(crate) use mark::Mark;
pub use own::stage_edition;
pub(crate) use own::stage_program;
pub use plan::Limits;
pub(crate) use plan::{Forward, Grant, Last, Maker, Mounts, Plan, Rules, Sockets, Stdin, Tree, Walls};
pub(crate) use rules::rules_for;
pub use stage::inner_stage;
pub(crate) use sys::landlock_version;
