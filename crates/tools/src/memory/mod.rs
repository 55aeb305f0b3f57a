//! Memory: notes of the user and memory files of the workspace, kept from one session to the next.

mod delete;
mod files;
mod get;
mod save;
mod search;
mod tags;
mod update;

pub use delete::{MemoryDeleteOutput, MemoryDeleteTool};
pub use get::MemoryGetTool;
pub use save::{MemorySaveOutput, MemorySaveTool};
pub use search::{MemorySearchOutput, MemorySearchTool};
pub use tags::normalize_tags as tags_in_order;
pub use update::{MemoryUpdateOutput, MemoryUpdateTool};

use helve_contract::{Call, Error, Result, ports::NoteOrigin};

/// The owner of the memory. Never taken from the arguments.
fn owner(call: &Call) -> Result<&str> {
    let user = call.session.user.as_str();
    if user.is_empty() { Err(Error::failed("user context is not available")) } else { Ok(user) }
}

/// What to remember, if it is anything.
fn check_content(text: &str) -> Result<()> {
    if text.trim().is_empty() {
        Err(Error::failed("there is nothing to remember: the content is empty"))
    } else {
        Ok(())
    }
}

/// The origin of a note that is saved now.
fn origin(call: &Call) -> NoteOrigin {
    match call.session.taint.origins().pop() {
        Some(place) => NoteOrigin::Untrusted(place),
        None => NoteOrigin::Agent,
    }
}

fn not_found(id: &str) -> Error {
    Error::failed(format!("note {id} not found"))
}
