//! Builds channels from the settings.

use std::{
    io::{IsTerminal as _, stdout},
    sync::Arc,
};

use helve_contract::{Result, ports::Channels};
use helve_web::channels::{Attachments, ChannelRegistry, StdoutUse};

use crate::{config::Settings, remark};

/// Whether the user of a session can send files with a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// The session has turns, and files may arrive with them.
    WithTurns,
    /// The session has no turns: a person or a client calls tools.
    Never,
}

/// The channels of a session. A channel that cannot be opened is reported, and the session has none. Attachments need
/// no channel.
pub fn open(settings: &Settings, files: Files) -> Arc<dyn Channels> {
    let outlets = outlets(settings).unwrap_or_else(|error| {
        remark!("helve: there are no channels: {error}");
        None
    });
    let outlets = outlets.unwrap_or_default();
    Arc::new(match files {
        Files::WithTurns => outlets.with_attachments(Attachments::default()),
        Files::Never => outlets,
    })
}

fn outlets(settings: &Settings) -> Result<Option<ChannelRegistry>> {
    let channels = &settings.config.channels;
    if channels.is_empty() {
        return Ok(None);
    }
    // Without a terminal, a program reads standard output and expects other content there.
    let free = if stdout().is_terminal() { StdoutUse::Free } else { StdoutUse::Taken };
    let outlets = ChannelRegistry::open(channels, free, |name| std::env::var(name).ok())?;
    for left in outlets.left_out() {
        remark!("helve: the channel {} is left out: {}", left.name, left.why);
    }
    match &settings.config.home_channel {
        Some(home) => outlets.with_default_recipient(home).map(Some),
        None => Ok(Some(outlets)),
    }
}
