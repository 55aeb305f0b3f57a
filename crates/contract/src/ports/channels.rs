//! The `Channels` port: messages and files to people, and the attachments of a turn.

use async_trait::async_trait;

use super::Attachment;
use crate::{Call, Error, Media, Result};

/// Channels to people. The operator configures each channel; a model only names one.
#[async_trait]
pub trait Channels: Send + Sync {
    /// The configured channels: `signal`, `mail`.
    fn names(&self) -> Vec<String>;
    /// Whether files can be sent to the session's user without an address.
    fn has_home(&self) -> bool {
        !self.names().is_empty()
    }
    /// Whether the user can send files with a turn.
    fn takes_attachments(&self) -> bool {
        false
    }
    /// Sends a text message.
    async fn send(&self, call: &Call, to: &ChannelAddress, text: &str) -> Result<()>;
    /// Sends a file.
    async fn send_media(&self, call: &Call, to: Option<&ChannelAddress>, file: &OutgoingFile) -> Result<()>;
    /// The file number `index`, from 0, that the user sent with the turn of this call. `None` if there is no such file.
    async fn attachment(&self, call: &Call, index: usize) -> Result<Option<Media>>;
    /// Replaces the files of a session's current turn. The caller that starts a turn calls this, also without files. A
    /// port without attachments ignores it.
    fn set_attachments(&self, _session: &str, _files: Vec<Attachment>) {}
}

/// The destination of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelAddress {
    /// The channel, such as `signal`.
    pub channel: String,
    /// The address in the channel, such as `+15551234567`.
    pub address: String,
}

impl ChannelAddress {
    /// Parses `channel:address`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some((channel, address)) if !channel.trim().is_empty() && !address.trim().is_empty() => {
                Ok(Self { channel: channel.trim().to_owned(), address: address.trim().to_owned() })
            }
            _ => Err(Error::failed(format!(
                "`{text}` is not an address; write channel:address, as in signal:+15551234567"
            ))),
        }
    }
}

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingFile {
    /// Its name.
    pub name: String,
    /// `photo`, `audio`, `document`, `voice` or `video`.
    pub kind: String,
    /// Type and bytes.
    pub media: Media,
    /// The caption of the file.
    pub caption: Option<String>,
}

/// No channels.
pub struct NoChannels;

#[async_trait]
impl Channels for NoChannels {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
    async fn send(&self, _: &Call, to: &ChannelAddress, _: &str) -> Result<()> {
        Err(Error::failed(format!("unsupported channel: {}; no channels are configured here", to.channel)))
    }
    async fn send_media(&self, _: &Call, _: Option<&ChannelAddress>, _: &OutgoingFile) -> Result<()> {
        Err(Error::failed("files cannot be sent from this session; no channels are configured here"))
    }
    async fn attachment(&self, _: &Call, _: usize) -> Result<Option<Media>> {
        Ok(None)
    }
}
