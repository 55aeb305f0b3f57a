//! Conversations of the same user: which there are, what was said in them, words to them; and the agents behind them.

mod agents;
mod history;
mod list;
mod running;
mod send;
mod spawn;
mod status;

pub use agents::{AgentsListOutput, AgentsListTool};
pub use history::{SessionsHistoryOutput, SessionsHistoryTool};
pub use list::{SessionsListOutput, SessionsListTool};
pub use running::{SubagentsOutput, SubagentsTool};
pub use send::{SessionsSendOutput, SessionsSendTool};
pub use spawn::{SessionsSpawnOutput, SessionsSpawnTool};
pub use status::{SessionsStatusOutput, SessionsStatusTool};

use helve_contract::{Call, Error, Result, ports::SessionRecord};

/// A conversation that this call may see: one of its own user.
async fn find_visible(call: &Call, id: &str) -> Result<Option<SessionRecord>> {
    let found = call.store().get_session(id).await?;
    Ok(found.filter(|record| record.user == call.session.user))
}

/// Somebody else's conversation is as unknown as one that never was.
fn unknown_session_error(id: &str) -> Error {
    Error::failed(format!("there is no session `{id}`; list the sessions to see their ids"))
}

/// A text as one field of a line: no tabs, no breaks.
fn single_line(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}
