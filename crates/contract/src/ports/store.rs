//! Records that outlive a call: sessions, notes, schedules and the slates of a session. One store keeps them all.

use super::{notes::Notes, schedules::Schedules, sessions::Sessions, slates::SessionState};

/// Everything that is kept. Every maker of it passes one suite of tests.
pub trait Store: Sessions + Notes + Schedules + SessionState {}

impl<T: Sessions + Notes + Schedules + SessionState> Store for T {}

/// Keeps nothing: for sessions without a state folder. Whatever is saved is refused.
pub struct NoStore;

/// What a tool hears when nothing is kept.
pub(super) fn no_store_error<T>() -> crate::Result<T> {
    Err(crate::Error::failed("nothing is kept between calls in this session, so this cannot be done here"))
}
