//! Messages in `solo`.

use helve_contract::Reply;
use helve_tools::messages as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// Sends a message to somebody outside.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Message {
    /// channel:address, such as signal:+15551234567
    to: String,
    content: String,
}

impl From<Message> for room::Message {
    fn from(Message { to, content }: Message) -> Self {
        Self { to, content }
    }
}

pub(super) fn sent(out: room::Sent) -> Reply {
    out.into()
}
