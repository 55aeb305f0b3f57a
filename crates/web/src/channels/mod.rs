//! Channels: logs, webhooks, mail and Signal, and inbound webhooks.

mod allow;
mod attachments;
mod hmac;
mod inbound;
mod log;
mod mail;
mod outlets;
mod signal;
mod webhook;

pub use attachments::{Attachments, EncodedAttachment};
pub use helve_contract::ports::ChannelSettings as Settings;
pub use hmac::{sign, verify};
pub use inbound::{InboundMessage, InboundWebhook, Refusal, WebhookFormat};
pub use outlets::{ChannelLeftOut, ChannelRegistry};

/// Whether standard output may be written. A stdio server uses it for its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutUse {
    /// Nobody else writes to it.
    Free,
    /// Another protocol goes through it.
    Taken,
}
