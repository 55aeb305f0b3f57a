//! Makers of [`Host`](helve_contract::ports::Host): where files live and programs run.

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

pub use docker::Docker;
pub use e2b::E2b;
pub use kinds::{E2bHost, HostSettings, SshHost};
pub use local::{Local, Spawn};
pub use remote::{Allowed, ForcedCommand, Remote, RemoteHost, Routed, Ssh, host_exec, run_forced, serve};
pub use sandbox::{
    IntegrityEvent, IntegrityListener, IntegrityOutcome, Limits, Net, ProxySocket, Report, Sandbox, SandboxSettings,
    Trial, UnixSockets, Wanted,
};
pub use supervise::{harden, inner_stage, leashed, stage_edition};
pub use tasks::Runner;
