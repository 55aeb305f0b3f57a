//! `attachment_save`: saves a file that the user sent into the workspace.

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Port, PortSet, Reply, Result, Tool, ports::Expect, schemars,
    schemars::JsonSchema, serde_json::json,
};
use serde::Deserialize;

/// The largest file that is saved.
const MAX_ATTACHMENT_BYTES: u64 = 50 << 20;

/// Saves a file that the user sent with this turn.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachmentSaveTool {
    /// Which, counted from 0.
    pub index: usize,
    /// Where to.
    pub path: String,
    /// Replace a file that is there.
    #[serde(default)]
    pub overwrite: bool,
}

/// A file that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentSaveOutput {
    /// Where it is.
    pub path: String,
    /// Its type.
    pub mime: String,
    /// Its size.
    pub bytes: usize,
    /// Which one it was.
    pub index: usize,
}

impl Tool for AttachmentSaveTool {
    const NAME: &'static str = "attachment_save";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::Attachments]);
    type Output = AttachmentSaveOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::writes([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<AttachmentSaveOutput> {
        let path = call.check_write(&self.path)?;
        let Some(file) = call.attachment(self.index).await? else {
            return Err(self.missing(call).await?);
        };
        let size = file.bytes.len() as u64;
        if size > MAX_ATTACHMENT_BYTES {
            return Err(Error::file(&path, FileErrorKind::TooLarge { bytes: size, limit: MAX_ATTACHMENT_BYTES }));
        }
        let expect = if self.overwrite { Expect::Anything } else { Expect::Absent };
        match call.host().write(&path, &file.bytes, expect).await {
            Ok(_) => {}
            Err(Error::File { fault: FileErrorKind::Exists, .. }) => {
                return Err(Error::failed(format!(
                    "{path} already exists and was left as it is; choose another `path`, or set `overwrite` to true"
                )));
            }
            Err(other) => return Err(other),
        }
        Ok(AttachmentSaveOutput { path: path.to_string(), mime: file.mime, bytes: file.bytes.len(), index: self.index })
    }
}

impl AttachmentSaveTool {
    /// Says how many there are.
    async fn missing(&self, call: &Call) -> Result<Error> {
        Ok(Error::failed(match call.count_attachments().await? {
            0 => "the user sent no files with this turn; ask for the file".to_owned(),
            1 => format!("there is no attachment {}; the user sent one, number 0", self.index),
            count => {
                format!("there is no attachment {}; the user sent {count}, numbers 0 to {}", self.index, count - 1)
            }
        }))
    }
}

impl From<AttachmentSaveOutput> for Reply {
    fn from(saved: AttachmentSaveOutput) -> Self {
        Self::json(json!({
            "saved": true,
            "path": saved.path,
            "mime_type": saved.mime,
            "bytes_written": saved.bytes,
            "source_index": saved.index,
        }))
    }
}
