//! Implementations of [`Host`](helve_contract::ports::Host): where files are and where programs run.

mod docker;
mod e2b;
mod kinds;
mod local;
pub mod memory;
mod parting;
mod remote;
mod sandbox;
mod supervise;
mod tasks;

pub use docker::DockerConfig;
pub use e2b::E2bConfig;
pub use kinds::{E2bHost, HostSettings, SshHost};
pub use local::{LocalHost, Spawn};
pub use remote::{
    CommandAllowlist, ForcedCommand, RemoteClient, RemoteHost, SshConfig, SshRoutedHost, check_forced_command,
    exec_forced_command, serve,
};
pub use sandbox::{
    IntegrityEvent, IntegrityListener, IntegrityOutcome, LevelPolicy, LevelProbe, NetworkPolicy, ProxySocket,
    ResourceLimits, Sandbox, SandboxConfig, SandboxReport, UnixSockets,
};
pub use supervise::{harden, helper_build_id, kill_on_exit, run_helper_if_requested};
pub use tasks::TaskRunner;
