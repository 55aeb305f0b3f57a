//! Memory: notes of the user and memory files of the workspace, kept from one conversation to the next.

mod delete;
mod files;
mod get;
mod save;
mod search;
mod tags;
mod update;

pub use delete::{Delete, Deleted};
pub use get::Get;
pub use save::{Save, Saved};
pub use search::{Hits, Search};
pub use tags::in_order as tags_in_order;
pub use update::{Update, Updated};

use helve_contract::{Call, Error, Result, ports::NoteOrigin};

/// Whose memory it is. Never from the arguments.
fn owner(call: &Call) -> Result<&str> {
    let user = call.session.user.as_str();
    if user.is_empty() { Err(Error::failed("user context is not available")) } else { Ok(user) }
}

/// What to remember, if it is anything.
fn content(text: &str) -> Result<()> {
    if text.trim().is_empty() {
        Err(Error::failed("there is nothing to remember: the content is empty"))
    } else {
        Ok(())
    }
}

/// Whose words a note is that is saved now.
fn origin(call: &Call) -> NoteOrigin {
    match call.session.taint.origins().pop() {
        Some(place) => NoteOrigin::Stranger(place),
        None => NoteOrigin::Agent,
    }
}

fn not_found(id: &str) -> Error {
    Error::failed(format!("note {id} not found"))
}
