//! A scripted model for tests: a server with OpenAI's wire format. It streams, fails on purpose, validates requests
//! strictly, and records them.

mod check;
mod server;
mod step;
mod wire;

pub use check::validate_request;
pub use server::{MockModelServer, ModelScript};
pub use step::{CallIdPlacement, ScriptStep, ScriptedCall, StreamFault, StreamSplit};
