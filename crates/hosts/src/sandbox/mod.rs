//! The walls around commands: which there are on this machine, and how a command is put behind them.

mod bwrap;
mod denials;
pub(crate) mod environment;
mod identity;
mod made;
mod protect;
mod report;
mod settings;
mod spawn;
mod view;
mod witness;

pub(crate) use denials::Denials;
pub use report::{Report, Trial};
pub use settings::{Limits, Net, ProxySocket, SandboxSettings, Wanted};
pub use spawn::Sandbox;
pub(crate) use witness::Witness;
