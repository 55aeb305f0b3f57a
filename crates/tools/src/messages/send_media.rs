//! `send_media`: sends a file of the workspace to the user.

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Media, Port, PortSet, Reply, Result, Tool,
    ports::{OutgoingFile, Span},
    schemars,
    schemars::JsonSchema,
    sniff_mime,
};
use serde::Deserialize;

use crate::fs::with_suggestions;

/// The largest file that is read for sending. A channel may take less.
const MAX_MEDIA_BYTES: u64 = 50 << 20;

/// Sends a file of the workspace to the user, over the channel that they write from.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMediaTool {
    /// The file.
    pub path: String,
    /// What it is to be shown as.
    pub media_type: MediaType,
    /// Words beneath it.
    pub caption: Option<String>,
}

/// What a file is to be shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MediaType {
    /// A picture.
    Photo,
    /// Music or speech.
    Audio,
    /// A file as it is.
    Document,
    /// A voice message.
    Voice,
    /// A film.
    Video,
}

impl MediaType {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Photo => "photo",
            Self::Audio => "audio",
            Self::Document => "document",
            Self::Voice => "voice",
            Self::Video => "video",
        }
    }

    /// Whether bytes of this type can be shown so.
    fn fits(self, mime: &str) -> bool {
        match self {
            Self::Photo => mime.starts_with("image/"),
            Self::Audio | Self::Voice => mime.starts_with("audio/") || matches!(mime, "video/mp4" | "video/webm"),
            Self::Video => mime.starts_with("video/"),
            Self::Document => true,
        }
    }
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendMediaOutput {
    /// The file, as the model knows it.
    pub path: String,
    /// How it was shown.
    pub media_type: MediaType,
    /// Its type.
    pub mime: String,
    /// Its size.
    pub bytes: usize,
}

impl Tool for SendMediaTool {
    const NAME: &'static str = "send_media";
    const EFFECTS: Effects = Effects::READS.union(Effects::NETWORK).union(Effects::SENDS);
    const NEEDS: PortSet = PortSet::of(&[Port::HomeChannel]);
    type Output = SendMediaOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<SendMediaOutput> {
        let path = call.check_read(&self.path)?;
        if path.is_in_vault() {
            return Err(Error::denied(format!("{path} is in the vault, and what is there is not sent to anybody")));
        }
        let file = match call.host().read(&path, Span::first(MAX_MEDIA_BYTES)).await {
            Ok(file) => file,
            Err(error) => return Err(with_suggestions(call, &path, error).await),
        };
        if file.size > MAX_MEDIA_BYTES {
            return Err(Error::file(&path, FileErrorKind::TooLarge { bytes: file.size, limit: MAX_MEDIA_BYTES }));
        }
        if file.bytes.is_empty() {
            return Err(Error::failed(format!("{path} is empty; there is nothing to send")));
        }
        let name = path.relative().file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let (kind, bytes) = (self.media_type, file.bytes.len());
        let mime = sniff_mime(&name, &file.bytes).to_owned();
        if !kind.fits(&mime) {
            return Err(Error::failed(format!(
                "{path} is {mime}, which cannot be shown as {}; send it as a document",
                kind.name()
            )));
        }
        let media = Media { mime: mime.clone(), bytes: file.bytes };
        let caption = self.caption.filter(|it| !it.trim().is_empty());
        let file = OutgoingFile { name, kind: kind.name().to_owned(), media, caption };
        call.channels().send_media(call, None, &file).await?;
        Ok(SendMediaOutput { path: path.to_string(), media_type: kind, mime, bytes })
    }
}

impl From<SendMediaOutput> for Reply {
    fn from(sent: SendMediaOutput) -> Self {
        format!("sent {} as {} ({}, {} bytes)", sent.path, sent.media_type.name(), sent.mime, sent.bytes).into()
    }
}
