//! Ways out to people, and the way in for machines: logs, webhooks, mail, Signal.

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

/// Whether standard output is free to be written to. A server that speaks through it has it taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutUse {
    /// Nobody else writes to it.
    Free,
    /// Another protocol goes through it.
    Taken,
}
