//! Files that came with what the user said last, by session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use helve_contract::Media;

/// Files that came with a user's turn. Whoever drives the conversation puts them here at its beginning; clones share
/// them.
#[derive(Clone, Default)]
pub struct Attachments(Arc<Mutex<HashMap<String, Vec<Media>>>>);

impl Attachments {
    /// These came with the turn that begins now; those of the last turn are gone.
    pub fn set(&self, session: &str, files: Vec<Media>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.is_empty() {
            all.remove(session);
        } else {
            all.insert(session.to_owned(), files);
        }
    }

    /// The file of this number.
    #[must_use]
    pub fn get(&self, session: &str, index: usize) -> Option<Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(session)?.get(index).cloned()
    }
}
