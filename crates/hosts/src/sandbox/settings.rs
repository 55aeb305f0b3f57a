//! The operator's settings of the sandbox. Nothing in it comes from the model or the project.

use std::{any::Any, fmt, fs, path::PathBuf, sync::Arc};

use helve_contract::ports::SandboxLevel;

pub use crate::supervise::ResourceLimits;
use crate::supervise::default_memory_limit;

impl ResourceLimits {
    /// The default memory limits: three quarters of the memory, so that no command exhausts the machine.
    #[must_use]
    pub fn for_this_machine() -> Self {
        Self { memory_of_all: default_memory_limit(), ..Self::default() }
    }
}

/// The operator's settings of the sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxConfig {
    /// Which level to use.
    pub level: LevelPolicy,
    /// Names beneath each root that commands must not change or create, such as `.git/hooks`. Existing ones are
    /// mounted read-only; created ones move to the quarantine directory. Patterns are an error, because a mount
    /// cannot enforce them.
    pub protected: Vec<String>,
    /// Names that commands must not create in any directory beneath a root, such as `.mcp.json`. A path that does not
    /// begin with `.git` is relative to the root.
    pub protected_anywhere: Vec<String>,
    /// Names that matter only in a home directory, such as `.bashrc`. They are protected if a root contains the home;
    /// each mount costs a command time.
    pub protected_at_home: Vec<String>,
    /// The directory for files that commands created under protected names. Commands must not be able to write there.
    /// Default: a directory in the user's state directory.
    pub quarantine: Option<PathBuf>,
    /// Called for every protected file that a command created or changed.
    pub listener: Option<IntegrityListener>,
    /// Further directories that commands may read.
    pub readable: Vec<PathBuf>,
    /// Further directories that commands may read and write.
    pub writable: Vec<PathBuf>,
    /// Helve's private directories and files, such as the state directory. Commands never see them. Only session
    /// roots inside them, such as saved output, stay visible.
    pub private: Vec<PathBuf>,
    /// The directory of files that only `vault_copyto` may copy. It is hidden like [`private`](Self::private). Where
    /// it cannot be hidden, commands are refused while it contains files.
    pub vault: Option<PathBuf>,
    /// The user's home directory, if it is not `HOME`.
    pub home: Option<PathBuf>,
    /// Whether commands may use the network.
    pub network: NetworkPolicy,
    /// Which local sockets commands may connect to while the network is off.
    pub unix_sockets: UnixSockets,
    /// The proxy for [`NetworkPolicy::Allowlist`]. Without one the network is off.
    pub proxy: Option<ProxySocket>,
    /// A private directory that commands see as `/tmp`. Without it each command gets an empty `/tmp`.
    pub scratch: Option<PathBuf>,
    /// Directories for `PATH`, before the system's. Default: those of Helve's `PATH`.
    pub path: Vec<PathBuf>,
    /// Names of environment variables that commands inherit besides `LANG`, `LC_*`, `TZ`, `USER` and similar. A
    /// trailing `*` matches any suffix: `AWS_*`.
    pub inherited: Vec<String>,
    /// Variables that every command gets.
    pub env: Vec<(String, String)>,
    /// Limits of each command.
    pub limits: ResourceLimits,
    /// The binary whose `main` begins with [`run_helper_if_requested`](crate::run_helper_if_requested). Default: the
    /// `helve-stage` beside the running binary, or the running binary.
    pub helper: Option<PathBuf>,
}

impl SandboxConfig {
    /// The additional directories of commands and whether they are writable. Skips missing ones.
    pub(super) fn further_folders(&self) -> impl Iterator<Item = (PathBuf, bool)> {
        let readable = self.readable.iter().map(|dir| (dir, false));
        let all = readable.chain(self.writable.iter().map(|dir| (dir, true)));
        all.filter_map(|(dir, writable)| Some((fs::canonicalize(dir).ok()?, writable)))
    }
}

/// A result of the integrity check after a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegrityEvent {
    /// The protected file or directory.
    pub path: PathBuf,
    /// The outcome.
    pub outcome: IntegrityOutcome,
}

/// The outcome for a protected file that a command created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntegrityOutcome {
    /// It was new and was moved to this path.
    Moved(PathBuf),
    /// It stays, because this git object, which an earlier ref reaches, contains it.
    Stands(String),
    /// It was changed in place or could not be moved, and stays.
    Changed,
}

/// A callback for the results of the integrity check.
#[derive(Clone)]
pub struct IntegrityListener(pub Arc<dyn Fn(&IntegrityEvent) + Send + Sync>);

impl fmt::Debug for IntegrityListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntegrityListener")
    }
}

/// Which level to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LevelPolicy {
    /// The best one that works; if none does, commands are refused.
    #[default]
    Best,
    /// Only this one.
    Exactly(SandboxLevel),
    /// The operator declares that the machine or container is the sandbox.
    External,
    /// The best one that works, or none: the user accepted that at a terminal.
    BestOrNone,
}

/// Whether commands may use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// No network.
    #[default]
    Off,
    /// Commands reach what the proxy allows. It needs a network namespace (L2, L3); at L1 the network is off.
    Allowlist,
    /// Full network access.
    On,
}

/// Which Unix sockets commands may connect to while the network is off. At L1: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnixSockets {
    /// Sockets that the same command created.
    #[default]
    Own,
    /// Every socket whose file is visible, also those of programs outside.
    Any,
}

/// A Unix socket where a proxy listens.
#[derive(Clone)]
pub struct ProxySocket {
    /// Its path.
    pub path: PathBuf,
    /// Keeps the proxy alive as long as the sandbox.
    pub guard: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for ProxySocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProxySocket").field(&self.path).finish()
    }
}
