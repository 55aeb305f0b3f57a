//! Files from the user and to the user in `oxydra`.

use helve_contract::Reply;
use helve_tools::messages as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// Saves a file that the user sent with this turn to /shared or /tmp (at most 50 MiB).
#[derive(Deserialize, JsonSchema)]
pub(super) struct AttachmentSave {
    /// Which attachment, counted from 0
    index: usize,
    path: String,
    /// Replace an existing file (default false)
    overwrite: Option<bool>,
}

/// Sends a file to the user over their channel.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SendMedia {
    /// File under /shared or /tmp
    path: String,
    media_type: room::MediaType,
    caption: Option<String>,
}

impl From<AttachmentSave> for room::AttachmentSave {
    fn from(AttachmentSave { index, path, overwrite }: AttachmentSave) -> Self {
        Self { index, path, overwrite: overwrite.unwrap_or_default() }
    }
}

pub(super) fn saved(out: room::Saved) -> Reply {
    out.into()
}

impl From<SendMedia> for room::SendMedia {
    fn from(SendMedia { path, media_type, caption }: SendMedia) -> Self {
        Self { path, media_type, caption }
    }
}

pub(super) fn sent(out: room::MediaSent) -> Reply {
    out.into()
}
