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

pub(crate) use cgroup::{Cgroup, can_limit, can_limit_memory, default_memory_limit};
pub(crate) use finish::REQUIRED_CAPABILITIES;
pub use harden::harden;
pub(crate) use launch::{CleanupGuards, Launch, launch, run_probe};
pub use leash::kill_on_exit;
pub(crate) use mark::FileFingerprint;
pub use own::helper_build_id;
pub(crate) use own::helper_program;
pub use plan::ResourceLimits;
pub(crate) use plan::{
    LandlockRules, LateMounts, Mounts, PathGrant, PlanStdin, ProxyForward, Restrictions, RulesetBuilder, SandboxPlan,
    SocketPolicy, TreeTracking,
};
pub(crate) use rules::build_ruleset;
pub use stage::run_helper_if_requested;
pub(crate) use sys::landlock_version;
