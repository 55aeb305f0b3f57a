//! What the engine tells the stage, and what the stage answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first argument that turns the binary into the stage. The edition of the stage follows.
pub(crate) const HELPER_ARG: &str = "--helve-inner-stage";

/// The stage's first word: it is there, and has started nothing.
pub(super) const MSG_READY: u8 = 0;
/// The stage's answer when the command runs.
pub(super) const MSG_STARTED: u8 = b'S';
/// The stage's answer when it could not be started; a length (4 bytes) and text follow.
pub(super) const MSG_FAILED: u8 = b'F';
/// The stage's last word: the wait status (4 bytes), whether something was left behind (1 byte), and the folder that the
/// shell ended in (a length of 2 bytes, and its name) follow.
pub(super) const MSG_EXITED: u8 = b'X';

/// The most files that travel together: the plan, `/proc`, what is read, a terminal, file rules.
pub(super) const MAX_FDS: usize = 5;

/// All that the stage needs to know. Travels in a sealed file without a name, never in the environment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SandboxPlan {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) dir: PathBuf,
    pub(crate) stdin: PlanStdin,
    pub(crate) terminal: bool,
    /// Standard error goes into the pipe of standard output.
    pub(crate) merged: bool,
    pub(crate) tree: TreeTracking,
    pub(crate) walls: Option<Restrictions>,
    pub(crate) limits: ResourceLimits,
    /// A file for the command's own home, made if there is none.
    pub(crate) home_file: Option<(PathBuf, String)>,
    /// The way to a proxy, where the command may reach some hosts.
    pub(crate) forward: Option<ProxyForward>,
    /// Bytes of data of each process, where nothing else limits their memory.
    pub(crate) data: Option<u64>,
    /// Have the shell say which folder it ends in.
    pub(crate) tell_dir: bool,
    /// What is left to do of the outer walls, where the stage can do it. Nothing where they stand.
    pub(crate) last: Option<LateMounts>,
}

/// The last of the outer walls. A file that leads to `/proc` travels with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LateMounts {
    pub(crate) mounts: Mounts,
    /// Whether no user namespace may be made inside. Where `/proc` cannot be written, only the filter of calls forbids it.
    pub(crate) sealed: bool,
}

/// Where mounts go to protect places in the workspace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mounts {
    /// Folders above protected places: mounted over themselves, so that they cannot be renamed out of the way.
    pub(crate) pinned: Vec<PathBuf>,
    /// What is read-only.
    pub(crate) read_only: Vec<PathBuf>,
}

/// A port of the command's own loopback that leads to a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProxyForward {
    pub(crate) port: u16,
    /// Where the socket is seen from inside.
    pub(crate) socket: PathBuf,
}

/// Where the command's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PlanStdin {
    /// It is at its end.
    Nothing,
    /// A file that travels with the plan.
    Sent,
    /// The terminal.
    Terminal,
}

/// How the stage finds everything that the command started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TreeTracking {
    /// The stage is the first process of a PID namespace: all others are the command's.
    Namespace,
    /// The stage adopts orphans, and walks `/proc`.
    Walk,
}

/// The inner walls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Restrictions {
    pub(crate) rules: LandlockRules,
    pub(crate) sockets: SocketPolicy,
    /// Folders and files in which the command may change modes, owners, times and extended attributes. `None` where mounts
    /// confine such changes; without mounts the supervisor makes them, because Landlock has no rule for them.
    pub(crate) attribute_roots: Option<Vec<PathBuf>>,
}

impl Restrictions {
    /// Whether the supervisor answers some of the command's system calls.
    pub(super) fn needs_supervisor(&self) -> bool {
        self.attribute_roots.is_some() || self.sockets == SocketPolicy::Own
    }
}

/// Which files may be used; everything else is refused by Landlock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LandlockRules {
    /// Places and what may be done beneath them. A place that does not exist is passed over.
    pub(crate) grants: Vec<(PathBuf, PathGrant)>,
    /// Whether to start at all where the kernel has no Landlock.
    pub(crate) required: bool,
    /// Who makes the kernel's rules of them.
    pub(crate) by: RulesetBuilder,
}

/// Who makes the kernel's file rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RulesetBuilder {
    /// The stage, which alone sees the places as they are inside.
    #[default]
    Stage,
    /// The engine, which sends them with the plan: without mounts both see the same, and many commands can share them.
    Engine,
}

/// What may be done beneath a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PathGrant {
    /// See the names, but open no file.
    List,
    /// Read and run.
    Read,
    /// Everything.
    Write,
}

/// Which sockets may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SocketPolicy {
    /// Local ones and IP: the network is on, or local sockets of other programs may be used.
    Ip,
    /// The same in a network namespace with nothing but its own loopback. The supervisor makes all connections, so that none
    /// leads to a local socket of a program outside.
    Own,
    /// The same without connections, where no supervisor can make them.
    NoConnect,
    /// Pairs only, no addresses at all: there is no namespace, and the network is off.
    Pairs,
    /// IP, but no named local sockets: there is no namespace, and the network is on.
    IpWithoutLocal,
}

impl SocketPolicy {
    /// Whether the command has namespaces of its own.
    pub(super) fn has_namespaces(self) -> bool {
        matches!(self, Self::Ip | Self::Own | Self::NoConnect)
    }
}

/// Limits of each command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes of the largest file it may write.
    pub file_size: u64,
    /// Open files of each process.
    pub open_files: u64,
    /// Bytes of memory of the whole tree, where a control group can hold it to that.
    pub memory: Option<u64>,
    /// Bytes of memory of all commands together, where a control group can hold them to that; elsewhere of each process.
    pub memory_of_all: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { processes: 1024, file_size: 16 << 30, open_files: 4096, memory: None, memory_of_all: None }
    }
}
