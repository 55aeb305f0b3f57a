//! `memory_*`: notes of the user.

use helve_contract::Reply;
use helve_tools::memory;
use schemars::JsonSchema;
use serde::Deserialize;

/// Searches the user's saved notes by words and meaning. Returns a JSON list, best first.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Search {
    query: String,
    /// Default 5
    #[schemars(range(min = 1, max = 20))]
    top_k: Option<usize>,
    /// Also what was said in past conversations
    include_conversation: Option<bool>,
    /// Only notes that have all of these
    tags: Option<Vec<String>>,
}

/// Saves a durable fact, preference, decision or corrected procedure. Returns its note_id.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Save {
    content: String,
    /// At most 16
    tags: Option<Vec<String>>,
}

/// Replaces the content of a note; tags too, if given.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Update {
    note_id: String,
    content: String,
    tags: Option<Vec<String>>,
}

/// Deletes a note.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Delete {
    note_id: String,
}

impl From<Search> for memory::Search {
    fn from(it: Search) -> Self {
        Self {
            query: it.query,
            most: Some(it.top_k.unwrap_or(5).min(20)),
            least: None,
            files: false,
            conversations: it.include_conversation.unwrap_or_default(),
            tags: it.tags.unwrap_or_default(),
        }
    }
}

impl From<Save> for memory::Save {
    fn from(Save { content, tags }: Save) -> Self {
        Self { content, tags: tags.unwrap_or_default() }
    }
}

impl From<Update> for memory::Update {
    fn from(Update { note_id, content, tags }: Update) -> Self {
        Self { id: note_id, content, tags }
    }
}

impl From<Delete> for memory::Delete {
    fn from(Delete { note_id }: Delete) -> Self {
        Self { id: note_id }
    }
}

pub(super) fn found(hits: memory::Hits) -> Reply {
    hits.told(Reply::json(hits.objects()))
}

pub(super) fn plain<T: Into<Reply>>(out: T) -> Reply {
    out.into()
}
