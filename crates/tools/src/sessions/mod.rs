//! Conversations of the same user: which there are, what was said in them, words to them; and the agents behind them.

mod agents;
mod history;
mod list;
mod running;
mod send;
mod spawn;
mod status;

pub use agents::{Agents, AgentsOut};
pub use history::{History, HistoryOut};
pub use list::{List, ListOut};
pub use running::{Running, RunningOut};
pub use send::{Send, Sent};
pub use spawn::{Spawn, Spawned};
pub use status::{Status, StatusOut};

use helve_contract::{Call, Error, Result, ports::SessionRecord};

/// A conversation that this call may see: one of its own user.
async fn visible(call: &Call, id: &str) -> Result<Option<SessionRecord>> {
    let found = call.store().conversation(id).await?;
    Ok(found.filter(|record| record.user == call.session.user))
}

/// Somebody else's conversation is as unknown as one that never was.
fn unknown(id: &str) -> Error {
    Error::failed(format!("there is no session `{id}`; list the sessions to see their ids"))
}

/// A text as one field of a line: no tabs, no breaks.
fn field(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}
