//! The `Store` port: sessions, notes, schedules and session state in one store.

use super::{notes::Notes, schedules::Schedules, sessions::Sessions, slates::SessionState};

/// All records. Every implementation passes the same test suite.
pub trait Store: Sessions + Notes + Schedules + SessionState {}

impl<T: Sessions + Notes + Schedules + SessionState> Store for T {}

/// Stores nothing, for sessions without a state directory. Every write is refused.
pub struct NoStore;

/// The error of a tool that needs a store.
pub(super) fn no_store_error<T>() -> crate::Result<T> {
    Err(crate::Error::failed("nothing is kept between calls in this session, so this cannot be done here"))
}
