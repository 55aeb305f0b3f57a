//! Messages in `solo`.

use helve_contract::Reply;
use helve_tools::messages as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// Sends a message to somebody outside.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MessageArgs {
    /// channel:address, such as signal:+15551234567
    to: String,
    content: String,
}

impl From<MessageArgs> for room::MessageTool {
    fn from(MessageArgs { to, content }: MessageArgs) -> Self {
        Self { to, content }
    }
}

pub(super) fn render_message(out: room::MessageOutput) -> Reply {
    out.into()
}
