//! Ways out to people, and the way in for machines: logs, webhooks, mail, Signal.

mod allow;
mod attachments;
mod hmac;
mod inbound;
mod log;
mod mail;
mod outlets;
mod settings;
mod signal;
mod webhook;

pub use attachments::Attachments;
pub use hmac::{sign, verify};
pub use inbound::{Format, Inbound, Taken};
pub use outlets::Outlets;
pub use settings::{Settings, Stdout};
