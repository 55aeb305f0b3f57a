//! Channels by the settings.

use std::{
    io::{IsTerminal as _, stdout},
    sync::Arc,
};

use helve_contract::{Result, ports::Channels};
use helve_web::channels::{Outlets, Stdout};

use crate::{config::Settings, remark};

/// The channels of a session. What cannot be opened is said, and leaves the session without any. Attachments of the
/// user's turns need no channel.
pub fn open(settings: &Settings) -> Arc<dyn Channels> {
    let outlets = outlets(settings).unwrap_or_else(|error| {
        remark!("helve: there are no channels: {error}");
        None
    });
    Arc::new(outlets.unwrap_or_default())
}

fn outlets(settings: &Settings) -> Result<Option<Outlets>> {
    let channels = &settings.config.channels;
    if channels.is_empty() {
        return Ok(None);
    }
    // Where nobody looks on, standard output is read by a program that wants something else from it.
    let free = if stdout().is_terminal() { Stdout::Free } else { Stdout::Taken };
    let outlets = Outlets::open(channels, free, |name| std::env::var(name).ok())?;
    match &settings.config.home_channel {
        Some(home) => outlets.with_home(home).map(Some),
        None => Ok(Some(outlets)),
    }
}
