//! The sandbox of commands: which levels work on this machine and how a command is started in one.

mod bwrap;
mod denials;
mod dir_index;
pub(crate) mod environment;
mod git_config;
mod git_dirs;
mod git_refs;
mod git_repair;
mod hidden;
mod identity;
mod integrity;
mod integrity_notes;
mod items;
mod journal;
mod made;
mod path_rule_check;
pub(crate) mod path_rules;
mod placeholders;
mod protect;
mod protected_names;
mod quarantine;
mod report;
mod settings;
mod spawn;
mod stamp;
mod view;

pub(crate) use denials::DenialDetector;
pub(crate) use integrity::Check;
pub use report::{LevelProbe, SandboxReport};
pub use settings::{
    IntegrityEvent, IntegrityListener, IntegrityOutcome, LevelPolicy, NetworkPolicy, ProxySocket, ResourceLimits,
    SandboxConfig, UnixSockets,
};
pub use spawn::Sandbox;

pub(crate) use view::hidden_places;
