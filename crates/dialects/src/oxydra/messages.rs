//! Files from the user and to the user in `oxydra`.

use helve_contract::Reply;
use helve_tools::messages as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// Saves a file that the user sent with this turn to /shared or /tmp (at most 50 MiB).
#[derive(Deserialize, JsonSchema)]
pub(super) struct AttachmentSaveArgs {
    /// Which attachment, counted from 0
    index: usize,
    path: String,
    /// Replace an existing file (default false)
    overwrite: Option<bool>,
}

/// Sends a file to the user over their channel.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SendMediaArgs {
    /// File under /shared or /tmp
    path: String,
    media_type: room::MediaType,
    caption: Option<String>,
}

impl From<AttachmentSaveArgs> for room::AttachmentSaveTool {
    fn from(AttachmentSaveArgs { index, path, overwrite }: AttachmentSaveArgs) -> Self {
        Self { index, path, overwrite: overwrite.unwrap_or_default() }
    }
}

pub(super) fn render_attachment(out: room::AttachmentSaveOutput) -> Reply {
    out.into()
}

impl From<SendMediaArgs> for room::SendMediaTool {
    fn from(SendMediaArgs { path, media_type, caption }: SendMediaArgs) -> Self {
        Self { path, media_type, caption }
    }
}

pub(super) fn render_media(out: room::SendMediaOutput) -> Reply {
    out.into()
}
