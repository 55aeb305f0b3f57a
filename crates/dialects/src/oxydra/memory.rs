//! `memory_*`: notes of the user.

use helve_contract::Reply;
use helve_tools::memory;
use schemars::JsonSchema;
use serde::Deserialize;

/// Searches the user's saved notes by words and meaning. Returns a JSON list, best first.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MemorySearchArgs {
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
pub(super) struct MemorySaveArgs {
    content: String,
    /// At most 16
    tags: Option<Vec<String>>,
}

/// Replaces the content of a note; tags too, if given.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MemoryUpdateArgs {
    note_id: String,
    content: String,
    tags: Option<Vec<String>>,
}

/// Deletes a note.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MemoryDeleteArgs {
    note_id: String,
}

impl From<MemorySearchArgs> for memory::MemorySearchTool {
    fn from(it: MemorySearchArgs) -> Self {
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

impl From<MemorySaveArgs> for memory::MemorySaveTool {
    fn from(MemorySaveArgs { content, tags }: MemorySaveArgs) -> Self {
        Self { content, tags: tags.unwrap_or_default() }
    }
}

impl From<MemoryUpdateArgs> for memory::MemoryUpdateTool {
    fn from(MemoryUpdateArgs { note_id, content, tags }: MemoryUpdateArgs) -> Self {
        Self { id: note_id, content, tags }
    }
}

impl From<MemoryDeleteArgs> for memory::MemoryDeleteTool {
    fn from(MemoryDeleteArgs { note_id }: MemoryDeleteArgs) -> Self {
        Self { id: note_id }
    }
}

pub(super) fn render_search(hits: memory::MemorySearchOutput) -> Reply {
    hits.with_untrusted_origin(Reply::json(hits.objects()))
}

pub(super) fn render_plain<T: Into<Reply>>(out: T) -> Reply {
    out.into()
}
