//! The API for tool authors: [`Tool`], [`Call`], [`Reply`], [`Error`], [`Entry`] and the ports.
//!
//! Nothing here does I/O or needs a runtime. The built-in tools use the same types.

mod access;
mod agent_type;
mod call;
mod effects;
mod entry;
mod error;
pub mod events;
mod fold;
pub mod ids;
mod invisible;
pub mod json;
mod mime;
mod names;
mod nearest;
mod paths;
mod patience;
pub mod ports;
mod profile;
mod project_files;
mod reply;
mod taint;
mod tool;
#[cfg(any(test, fuzzing))]
pub mod trials;
mod truncate;
mod user_name;

pub use access::{AccessFn, AccessRequest, CommandLine, RequestedCommand};
pub use agent_type::AgentType;
pub use call::{Call, Ports, ProgressFn, Remarks, Session, TaskContext};
pub use effects::{Annotations, Effects, SideEffect, Tier};
pub use entry::{Entry, FunctionDecl, RunFn, Spec};
pub use error::{ArgumentProblem, Error, FileErrorKind, Result};
pub use events::Event;
pub use fold::is_same_name;
pub use invisible::{Invisible, InvisibleScan, invisible};
pub use mime::sniff_mime;
pub use names::{PatternPurpose, fold_name, name_matches, underscored};
pub use nearest::closest_names;
pub use paths::{
    Access, GlobReach, PathGlob, PathRule, PathRules, PathStyle, Root, RootPermission, RuleScope, SafePath, Workspace,
};
pub use patience::{allow_blocking, is_blocking_allowed};
pub use ports::{Port, PortSet};
pub use profile::CapabilityProfile;
pub use project_files::{PROJECT_FILES, ProjectFile};
pub use reply::{Media, Refusal, Reply, ReplyFormat, SavedText, TruncateSide, Truncation};
pub use taint::{Fence, Origin, Taint};
pub use tokio_util::sync::CancellationToken;
pub use tool::Tool;
pub use truncate::{Limit, SizeUnit, Truncated, TruncatedBy, count_lines, format_size, truncate_head, truncate_tail};
pub use user_name::{TENANT_NAME_FORM, USER_NAME_FORM, is_user_name};
pub use {async_trait::async_trait, jiff, schemars, serde, serde_json};
