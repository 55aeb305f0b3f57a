//! What an operator decides about the sandbox. Nothing in it comes from the model or from the project.

use std::{any::Any, fmt, fs, path::PathBuf, sync::Arc};

use helve_contract::ports::SandboxLevel;

pub use crate::supervise::ResourceLimits;
use crate::supervise::default_memory_limit;

impl ResourceLimits {
    /// The usual limits of memory: three quarters of what there is, so that no command takes the machine down.
    #[must_use]
    pub fn for_this_machine() -> Self {
        Self { memory_of_all: default_memory_limit(), ..Self::default() }
    }
}

/// What an operator decides about the sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxConfig {
    /// Which level to use.
    pub level: LevelPolicy,
    /// Names beneath each root that commands may not change or create: `.git/hooks`, `.helve`. What exists is mounted
    /// read-only; what a command creates is moved to the quarantine folder when it ends.
    /// A pattern cannot be enforced by a mount, and is an error.
    pub protected: Vec<String>,
    /// Names that commands may not create in any folder beneath a root, at any depth: `.mcp.json`, `.git/hooks`. A name of
    /// several parts that does not begin with `.git` counts from the root.
    pub protected_anywhere: Vec<String>,
    /// More names that matter only in a home, such as `.bashrc`: protected where they exist, and in the user's home where
    /// a root contains it. Each mount costs a command time, so a project need not pay for them.
    pub protected_at_home: Vec<String>,
    /// Where files go that commands created under protected names. No command may be able to write there. Without it, a
    /// folder in the user's state folder.
    pub quarantine: Option<PathBuf>,
    /// Told of every protected file that a command created or changed, for the record.
    pub listener: Option<IntegrityListener>,
    /// Further folders that commands may read.
    pub readable: Vec<PathBuf>,
    /// Further folders that commands may read and write.
    pub writable: Vec<PathBuf>,
    /// Helve's own folders and files, such as the state folder: commands never see them, whatever folder contains them.
    /// Only roots of the session inside them, such as the folder of saved output, stay visible.
    pub private: Vec<PathBuf>,
    /// The folder of files that only `vault_copyto` may copy. It is hidden like [`private`](Self::private); where nothing
    /// can hide it, commands are refused as long as it has files.
    pub vault: Option<PathBuf>,
    /// The user's home, where it is not `HOME`.
    pub home: Option<PathBuf>,
    /// Whether commands may use the network.
    pub network: NetworkPolicy,
    /// Which local sockets commands may connect to while the network is off.
    pub unix_sockets: UnixSockets,
    /// The proxy that decides about [`NetworkPolicy::Allowlist`]. Without one, that is no network at all.
    pub proxy: Option<ProxySocket>,
    /// A private folder to be commands' `/tmp`, kept from one to the next. Without it `/tmp` is new each time.
    pub scratch: Option<PathBuf>,
    /// Folders for `PATH`, before those of the system. Without any, those of the engine's own `PATH`.
    pub path: Vec<PathBuf>,
    /// Names of the engine's own variables that commands inherit beside `LANG`, `LC_*`, `TZ`, `USER` and the like. A `*` at
    /// the end stands for any rest: `AWS_*`.
    pub inherited: Vec<String>,
    /// Variables that every command gets.
    pub env: Vec<(String, String)>,
    /// Limits of each command.
    pub limits: ResourceLimits,
    /// The binary whose `main` begins with [`run_helper_if_requested`](crate::run_helper_if_requested). Without it, the
    /// `helve-stage` beside the running one, or the running one itself.
    pub helper: Option<PathBuf>,
}

impl SandboxConfig {
    /// The further folders that commands may use, and whether they may write there. What does not exist is left out.
    pub(super) fn further_folders(&self) -> impl Iterator<Item = (PathBuf, bool)> {
        let readable = self.readable.iter().map(|dir| (dir, false));
        let all = readable.chain(self.writable.iter().map(|dir| (dir, true)));
        all.filter_map(|(dir, writable)| Some((fs::canonicalize(dir).ok()?, writable)))
    }
}

/// What the integrity check after a command found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegrityEvent {
    /// The protected file or folder.
    pub path: PathBuf,
    /// What became of it.
    pub outcome: IntegrityOutcome,
}

/// What became of a protected file that a command created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntegrityOutcome {
    /// It was new and is here now.
    Moved(PathBuf),
    /// It stays, because this git object, which was named by a ref before, contains it.
    Stands(String),
    /// It was changed in place, or could not be moved away, and stays.
    Changed,
}

/// Is called with what the integrity check after a command found.
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
    /// The best that works; where none does, commands are refused.
    #[default]
    Best,
    /// This one and no other.
    Exactly(SandboxLevel),
    /// The operator says that the machine or container is the sandbox.
    External,
    /// The best that works, and none at all where none does: a person at a terminal accepted that.
    BestOrNone,
}

/// Whether commands may use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// They may not.
    #[default]
    Off,
    /// They may reach what a proxy lets them reach. It needs a network of their own, which L2 and L3 have; at L1 the
    /// network is off.
    Allowlist,
    /// They may.
    On,
}

/// Which local (Unix) sockets commands may connect to while the network is off. At L1 they may connect to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnixSockets {
    /// Those that the same command made.
    #[default]
    Own,
    /// Every socket whose file they see, also those of programs outside.
    Any,
}

/// A socket of this machine where a proxy listens.
#[derive(Clone)]
pub struct ProxySocket {
    /// Where it is.
    pub path: PathBuf,
    /// What makes it listen, kept for as long as the sandbox.
    pub guard: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for ProxySocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProxySocket").field(&self.path).finish()
    }
}
