//! Makers of [`Host`](helve_contract::ports::Host): where files live and programs run.

mod local;

pub use local::{Local, Spawn};
