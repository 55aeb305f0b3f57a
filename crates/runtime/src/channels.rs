//! Channels by the settings.

use std::{
    io::{IsTerminal as _, stdout},
    sync::Arc,
};

use helve_contract::{
    Result,
    ports::{Channels, NoChannels},
};
use helve_web::channels::{Outlets, Stdout};

use crate::{config::Settings, remark};

/// The channels of a session. What cannot be opened is said, and leaves the session without any.
pub fn open(settings: &Settings) -> Arc<dyn Channels> {
    match outlets(settings) {
        Ok(Some(outlets)) => Arc::new(outlets),
        Ok(None) => Arc::new(NoChannels),
        Err(error) => {
            remark!("helve: there are no channels: {error}");
            Arc::new(NoChannels)
        }
    }
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
