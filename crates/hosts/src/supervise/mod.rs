//! Process supervision: one small process between Helve and each command, so that nothing of a command survives it.
//!
//! Helve starts the *init helper* (called stage in the code): the same binary with another first argument, inside the
//! outer sandbox. The helper applies the inner sandbox, runs the command as its child, reaps its descendants and
//! exits with it. One socket connects the two. When it closes, the helper kills everything.

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
