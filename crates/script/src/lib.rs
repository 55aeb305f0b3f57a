//! A model that follows a script: a server in OpenAI's wire format for tests. It streams, it fails on purpose, it is as
//! strict as the strictest provider, and it remembers what it was asked.

mod check;
mod server;
mod step;
mod wire;

pub use check::validate_request;
pub use server::{MockModelServer, ModelScript};
pub use step::{CallIdPlacement, ScriptStep, ScriptedCall, StreamFault, StreamSplit};
