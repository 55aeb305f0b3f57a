//! `/api/memory`: lists and changes notes.

use helve_contract::ports::{MemoryHit, MemoryQuery, MemorySource, NewNote, Note, NoteOrigin};
use helve_tools::memory::tags_in_order;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    routes::{QueryParams, parse_body, query_number},
    say::ApiError,
    site::AppState,
};

/// How many passages of memory.
const MAX_HITS: usize = 20;
/// Bytes of a note.
const MAX_NOTE_BYTES: usize = 64 << 10;

/// A note as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteBody {
    text: String,
    tags: Option<Vec<String>>,
}

impl NoteBody {
    fn note(self) -> Result<NewNote, ApiError> {
        if self.text.trim().is_empty() {
            return Err(ApiError::bad_request("text must say something"));
        }
        if self.text.len() > MAX_NOTE_BYTES {
            return Err(ApiError::bad_request(format!("text has {MAX_NOTE_BYTES} bytes at most")));
        }
        let tags = self.tags.map(|it| tags_in_order(&it)).transpose();
        let tags = tags.map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(NewNote { text: self.text, tags, origin: NoteOrigin::User })
    }
}

impl AppState {
    /// Notes that match a query; without one, the newest notes.
    pub(super) async fn memory(&self, query: &QueryParams) -> Result<Value, ApiError> {
        let store = self.runtime.store();
        let question = query.get("q").map(|it| it.trim()).unwrap_or_default();
        if question.is_empty() {
            let offset = query_number(query, "offset", 0)?.min(i64::MAX as u64);
            let (notes, total) = store.notes(&self.user(), offset, MAX_HITS as u64).await?;
            return Ok(json!({ "total": total, "found": notes.iter().map(note_json).collect::<Vec<_>>() }));
        }
        if question.len() > 2000 {
            return Err(ApiError::bad_request("q has 2000 bytes at most"));
        }
        let recall = MemoryQuery {
            text: question.to_owned(),
            user: Some(self.user()),
            include_sessions: true,
            limit: MAX_HITS,
            ..MemoryQuery::default()
        };
        let found: Vec<_> = store.search_memory(&recall).await?.iter().map(hit_json).collect();
        Ok(json!({ "total": found.len(), "found": found }))
    }

    /// Keeps a note of the user's own.
    pub(super) async fn create_note(&self, body: &[u8]) -> Result<Value, ApiError> {
        let note = parse_body::<NoteBody>(body)?.note()?;
        let note = NewNote { tags: note.tags.or_else(|| Some(Vec::new())), ..note };
        let kept = self.runtime.store().save_note(&self.user(), &note).await?;
        Ok(json!({ "id": kept.id }))
    }

    /// Replaces a note.
    pub(super) async fn update_note(&self, id: &str, body: &[u8]) -> Result<Value, ApiError> {
        let note = parse_body::<NoteBody>(body)?.note()?;
        let changed = self.runtime.store().update_note(&self.user(), id, &note).await?;
        changed.as_ref().map(note_json).ok_or_else(note_not_found)
    }

    /// Forgets a note.
    pub(super) async fn delete_note(&self, id: &str) -> Result<Value, ApiError> {
        let gone = self.runtime.store().delete_note(&self.user(), id).await?;
        if gone { Ok(json!({ "id": id })) } else { Err(note_not_found()) }
    }

    /// Releases a quarantined note.
    pub(super) async fn release_note(&self, id: &str) -> Result<Value, ApiError> {
        let there = self.runtime.store().release_note(&self.user(), id).await?;
        if there { Ok(json!({ "id": id })) } else { Err(note_not_found()) }
    }
}

fn note_not_found() -> ApiError {
    ApiError::not_found("there is no such note; /api/memory lists them")
}

fn note_json(note: &Note) -> Value {
    json!({
        "source": { "note": note.id }, "text": note.text, "tags": note.tags, "score": null,
        "origin": note.origin.to_string(), "held": note.is_quarantined, "created": note.created, "updated": note.updated,
    })
}

fn hit_json(found: &MemoryHit) -> Value {
    let source = match &found.source {
        MemorySource::Note(id) => json!({ "note": id }),
        MemorySource::File { path, first, last } => json!({ "file": path, "first": first, "last": last }),
        MemorySource::Session { session, seq } => json!({ "session": session, "seq": seq }),
    };
    json!({
        "source": source, "text": found.text, "tags": found.tags, "score": found.score,
        "origin": found.origin.as_ref().map(ToString::to_string), "held": false,
        "created": found.created, "updated": found.updated,
    })
}
