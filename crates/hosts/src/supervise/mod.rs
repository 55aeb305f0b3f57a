//! Running programs so that nothing of them is ever left: one small process between the engine and each command.
//!
//! The engine starts the *stage*: the same binary, under another first argument, inside the walls that a sandbox built.
//! The stage puts up the inner walls, runs the command as its child, reaps what that leaves behind, and ends with it.
//! One socket joins the two. When it closes, for whatever reason, the stage kills everything.

mod cgroup;
mod child;
mod dir;
mod forward;
mod harden;
mod launch;
mod leash;
mod own;
mod pages;
mod plan;
mod process;
mod rules;
mod seccomp;
mod stage;
mod sys;
mod terminal;
mod tree;
mod warden;

pub(crate) use cgroup::{Cgroup, can_limit, can_limit_memory, most_memory};
pub use harden::harden;
pub(crate) use launch::{Keep, Launch, launch, try_out};
pub use leash::leashed;
pub use own::stage_edition;
pub(crate) use own::stage_program;
pub use pages::let_go_of_start;
pub use plan::Limits;
pub(crate) use plan::{Forward, Grant, Maker, Plan, Rules, Sockets, Stdin, Tree, Walls};
pub(crate) use rules::rules_for;
pub use stage::inner_stage;
