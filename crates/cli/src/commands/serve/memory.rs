//! `/api/memory`: what is remembered, and the user's own changes of it.

use helve_contract::ports::{NewNote, Note, NoteOrigin, Recall, Recalled, Source};
use helve_tools::memory::tags_in_order;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    routes::{Query, number, parsed},
    say::No,
    site::Site,
};

/// How many passages of memory.
const PASSAGES: usize = 20;
/// Bytes of a note.
const LONGEST: usize = 64 << 10;

/// A note as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    text: String,
    tags: Option<Vec<String>>,
}

impl Written {
    fn note(self) -> Result<NewNote, No> {
        if self.text.trim().is_empty() {
            return Err(No::bad("text must say something"));
        }
        if self.text.len() > LONGEST {
            return Err(No::bad(format!("text has {LONGEST} bytes at most")));
        }
        let tags = self.tags.map(|it| tags_in_order(&it)).transpose();
        let tags = tags.map_err(|error| No::bad(error.to_string()))?;
        Ok(NewNote { text: self.text, tags, origin: NoteOrigin::User })
    }
}

impl Site {
    /// What fits a question; without one, the newest notes.
    pub(super) async fn memory(&self, query: &Query) -> Result<Value, No> {
        let store = self.bench.store();
        let question = query.get("q").map(|it| it.trim()).unwrap_or_default();
        if question.is_empty() {
            let offset = number(query, "offset", 0)?.min(i64::MAX as u64);
            let (notes, total) = store.notes(&self.user(), offset, PASSAGES as u64).await?;
            return Ok(json!({ "total": total, "found": notes.iter().map(shown).collect::<Vec<_>>() }));
        }
        if question.len() > 2000 {
            return Err(No::bad("q has 2000 bytes at most"));
        }
        let recall = Recall {
            text: question.to_owned(),
            user: Some(self.user()),
            conversations: true,
            most: PASSAGES,
            ..Recall::default()
        };
        let found: Vec<_> = store.recall(&recall).await?.iter().map(passage).collect();
        Ok(json!({ "total": found.len(), "found": found }))
    }

    /// Keeps a note of the user's own.
    pub(super) async fn keep_note(&self, body: &[u8]) -> Result<Value, No> {
        let note = parsed::<Written>(body)?.note()?;
        let note = NewNote { tags: note.tags.or_else(|| Some(Vec::new())), ..note };
        let kept = self.bench.store().save_note(&self.user(), &note).await?;
        Ok(json!({ "id": kept.id }))
    }

    /// Replaces a note.
    pub(super) async fn change_note(&self, id: &str, body: &[u8]) -> Result<Value, No> {
        let note = parsed::<Written>(body)?.note()?;
        let changed = self.bench.store().update_note(&self.user(), id, &note).await?;
        changed.as_ref().map(shown).ok_or_else(missing)
    }

    /// Forgets a note.
    pub(super) async fn forget_note(&self, id: &str) -> Result<Value, No> {
        let gone = self.bench.store().forget_note(&self.user(), id).await?;
        if gone { Ok(json!({ "id": id })) } else { Err(missing()) }
    }

    /// Lets a note be found that a stranger's words may be in.
    pub(super) async fn release_note(&self, id: &str) -> Result<Value, No> {
        let there = self.bench.store().release_note(&self.user(), id).await?;
        if there { Ok(json!({ "id": id })) } else { Err(missing()) }
    }
}

fn missing() -> No {
    No::missing("there is no such note; /api/memory lists them")
}

fn shown(note: &Note) -> Value {
    json!({
        "source": { "note": note.id }, "text": note.text, "tags": note.tags, "score": null,
        "origin": note.origin.to_string(), "held": note.held, "created": note.created, "updated": note.updated,
    })
}

fn passage(found: &Recalled) -> Value {
    let source = match &found.source {
        Source::Note(id) => json!({ "note": id }),
        Source::File { path, first, last } => json!({ "file": path, "first": first, "last": last }),
        Source::Conversation { session, seq } => json!({ "session": session, "seq": seq }),
    };
    json!({
        "source": source, "text": found.text, "tags": found.tags, "score": found.score,
        "origin": found.origin.as_ref().map(ToString::to_string), "held": false,
        "created": found.created, "updated": found.updated,
    })
}
