//! The protocol between Helve and the init helper.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first argument that turns the binary into the init helper. The edition of the init helper follows.
pub(crate) const HELPER_ARG: &str = "--helve-inner-stage";

/// The helper is ready and has started nothing.
pub(super) const MSG_READY: u8 = 0;
/// The command runs.
pub(super) const MSG_STARTED: u8 = b'S';
/// The command could not be started; a length (4 bytes) and text follow.
pub(super) const MSG_FAILED: u8 = b'F';
/// The command has ended. The wait status (4 bytes), a flag for leftover processes (1 byte) and the shell's final
/// directory (2 bytes of length, and the path) follow.
pub(super) const MSG_EXITED: u8 = b'X';

/// The maximum number of file descriptors per message: the plan, `/proc`, the input, a terminal, the ruleset.
pub(super) const MAX_FDS: usize = 5;

/// Everything the init helper needs. It is sent in a sealed memfd, never in the environment.
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
    /// A file for the command's home directory, created if missing.
    pub(crate) home_file: Option<(PathBuf, String)>,
    /// The way to a proxy, where the command may reach some hosts.
    pub(crate) forward: Option<ProxyForward>,
    /// The data limit of each process, if nothing else limits memory.
    pub(crate) data: Option<u64>,
    /// Have the shell say which directory it ends in.
    pub(crate) tell_dir: bool,
    /// The mounts that the init helper makes, if it can.
    pub(crate) last: Option<LateMounts>,
}

/// The final mounts of the outer sandbox. A handle of `/proc` is sent with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LateMounts {
    pub(crate) mounts: Mounts,
    /// Whether user namespaces are forbidden inside. If `/proc` is read-only, only the seccomp filter forbids them.
    pub(crate) sealed: bool,
}

/// Where mounts go to protect places in the workspace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mounts {
    /// Directories above protected paths: mounted over themselves, so that they cannot be renamed.
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

/// How the init helper finds the command's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TreeTracking {
    /// The helper is the first process of a PID namespace: all others are the command's.
    Namespace,
    /// The helper adopts orphans and scans `/proc`.
    Walk,
}

/// The inner sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Restrictions {
    pub(crate) rules: LandlockRules,
    pub(crate) sockets: SocketPolicy,
    /// Paths where the command may change modes, owners, times and extended attributes. `None` if mounts confine such
    /// changes; otherwise the supervisor makes them, because Landlock has no rule.
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
    /// Paths and their grants. Missing paths are skipped.
    pub(crate) grants: Vec<(PathBuf, PathGrant)>,
    /// Whether to fail if the kernel has no Landlock.
    pub(crate) required: bool,
    pub(crate) by: RulesetBuilder,
}

/// Who creates the Landlock ruleset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RulesetBuilder {
    /// The init helper, which sees the paths inside the sandbox.
    #[default]
    Stage,
    /// Helve, which sends it with the plan: without mounts both see the same paths, and commands can share it.
    Engine,
}

/// What may be done beneath a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PathGrant {
    /// List names, but open no file.
    List,
    /// Read and execute.
    Read,
    /// Everything.
    Write,
}

/// Which sockets a command may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SocketPolicy {
    /// Unix and IP: the network is on, or Unix sockets of other programs are allowed.
    Ip,
    /// The same in a network namespace with only a loopback. The supervisor makes all connections, so that none
    /// reaches a Unix socket of a program outside.
    Own,
    /// The same without `connect`, if no supervisor can make it.
    NoConnect,
    /// Only socket pairs: there is no namespace, and the network is off.
    Pairs,
    /// IP, but no named Unix sockets: there is no namespace, and the network is on.
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
    /// The maximum number of processes and threads.
    pub processes: u64,
    /// The maximum size of a written file, in bytes.
    pub file_size: u64,
    /// The maximum number of open files per process.
    pub open_files: u64,
    /// The memory limit of the process tree in bytes, if a cgroup can enforce it.
    pub memory: Option<u64>,
    /// The memory limit of all commands together in bytes, if a cgroup can enforce it; otherwise of each process.
    pub memory_of_all: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { processes: 1024, file_size: 16 << 30, open_files: 4096, memory: None, memory_of_all: None }
    }
}
