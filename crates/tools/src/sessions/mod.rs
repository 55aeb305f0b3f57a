//! Sessions of the same user: list, history, messages and agents.

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

/// A session of the call's user.
async fn find_visible(call: &Call, id: &str) -> Result<Option<SessionRecord>> {
    let found = call.store().get_session(id).await?;
    Ok(found.filter(|record| record.user == call.session.user))
}

/// Another user's session looks as if it did not exist.
fn unknown_session_error(id: &str) -> Error {
    Error::failed(format!("there is no session `{id}`; list the sessions to see their ids"))
}

/// A text as one field of a line: no tabs, no breaks.
fn single_line(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}
