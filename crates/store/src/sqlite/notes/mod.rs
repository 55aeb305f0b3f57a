//! Memory: a user's notes, memory files of a workspace and session messages, in one index.

mod cut;
mod files;
mod index;
mod query;
mod rank;
mod recall;
mod shelf;
mod talk;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use helve_contract::{
    Error, Result, ids,
    ports::{FileRevision, MemoryHit, MemoryQuery, NewNote, Note, NoteOrigin, Notes},
};
use rusqlite::{OptionalExtension, Row, params};

use self::{
    index::{IndexedPassage, Passage},
    shelf::{IndexCache, Key},
};
use super::{SqliteStore, Tx, from_micros, to_micros};
use crate::embed::{BuiltinEmbedder, Embedder};

/// The longest note.
const MAX_NOTE_BYTES: usize = 256 << 10;

/// The settings of memory search.
#[derive(Clone)]
pub struct MemoryConfig {
    /// Creates vectors; by default the built-in model.
    pub embedder: Arc<dyn Embedder>,
    /// The weight of semantic similarity.
    pub semantic_weight: f32,
    /// The weight of lexical matches.
    pub lexical_weight: f32,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { embedder: Arc::new(BuiltinEmbedder), semantic_weight: 0.7, lexical_weight: 0.3 }
    }
}

/// The search settings and the cached partitions.
#[derive(Default)]
pub(super) struct MemorySearcher {
    memory: MemoryConfig,
    indexes: Mutex<IndexCache>,
}

impl MemorySearcher {
    /// The same way of searching, with nothing ready.
    pub(super) fn afresh(&self) -> Arc<Self> {
        Arc::new(Self { memory: self.memory.clone(), indexes: Mutex::default() })
    }

    /// The two weights, brought to a sum of one.
    fn weights(&self) -> (f32, f32) {
        let (meaning, words) = (self.memory.semantic_weight.max(0.0), self.memory.lexical_weight.max(0.0));
        let sum = meaning + words;
        if sum.is_finite() && sum > 0.0 { (meaning / sum, words / sum) } else { (0.7, 0.3) }
    }
}

impl SqliteStore {
    /// The same store, with memory searched in another way.
    pub fn with_memory(mut self, memory: MemoryConfig) -> Self {
        self.search = Arc::new(MemorySearcher { memory, indexes: Mutex::default() });
        self
    }
}

#[async_trait]
impl Notes for SqliteStore {
    async fn save_note(&self, user: &str, note: &NewNote) -> Result<Note> {
        check_length(&note.text)?;
        let passages = self.read_passages(cut::chunk_note(&note.text)).await;
        let now = self.clock.now();
        let mut note = Note {
            id: format!("note-{}", ids::new_id()),
            text: note.text.clone(),
            tags: note.tags.clone().unwrap_or_default(),
            origin: note.origin.clone(),
            is_quarantined: matches!(note.origin, NoteOrigin::Untrusted(_)),
            created: now,
            updated: now,
        };
        let user = user.to_owned();
        self.write(move |t| {
            (note.created, note.updated) = (from_micros(to_micros(t.now)), from_micros(to_micros(t.now)));
            t.prepare_cached(
                "INSERT INTO notes (id, user, text, tags, created, updated, origin, held, tenant) \
                 VALUES (?1,?2,?3,?4,?5,?5,?6,?7,?8)",
            )?
            .execute(params![
                note.id,
                user,
                note.text,
                serde_json::to_string(&note.tags)?,
                to_micros(t.now),
                note.origin.to_string(),
                note.is_quarantined,
                t.tenant
            ])?;
            store_tags(t, &user, &note)?;
            if !note.is_quarantined {
                index::insert(t, shelf::id(t, &Key::notes(&user))?, &note.id, to_micros(t.now), &passages)?;
            }
            Ok(note)
        })
        .await
    }

    async fn update_note(&self, user: &str, id: &str, note: &NewNote) -> Result<Option<Note>> {
        check_length(&note.text)?;
        let passages = self.read_passages(cut::chunk_note(&note.text)).await;
        let (user, id, new) = (user.to_owned(), id.to_owned(), note.clone());
        self.write(move |t| {
            let Some(mut note) = find(t, &user, &id)? else { return Ok(None) };
            note.text = new.text;
            note.tags = new.tags.unwrap_or(note.tags);
            note.updated = from_micros(to_micros(t.now)).max(note.created);
            t.prepare_cached(
                "UPDATE notes SET text = ?4, tags = ?5, updated = ?6 WHERE tenant = ?1 AND user = ?2 AND id = ?3",
            )?
            .execute(params![
                t.tenant,
                user,
                note.id,
                note.text,
                serde_json::to_string(&note.tags)?,
                to_micros(note.updated)
            ])?;
            t.prepare_cached("DELETE FROM note_tags WHERE tenant = ?1 AND user = ?2 AND note = ?3")?
                .execute(params![t.tenant, user, note.id])?;
            store_tags(t, &user, &note)?;
            let shelf = shelf::id(t, &Key::notes(&user))?;
            index::remove(t, shelf, &note.id)?;
            if !note.is_quarantined {
                index::insert(t, shelf, &note.id, to_micros(note.created), &passages)?;
            }
            Ok(Some(note))
        })
        .await
    }

    async fn delete_note(&self, user: &str, id: &str) -> Result<bool> {
        let (user, id) = (user.to_owned(), id.to_owned());
        self.write(move |t| {
            let gone = t
                .prepare_cached("DELETE FROM notes WHERE tenant = ?1 AND user = ?2 AND id = ?3")?
                .execute(params![t.tenant, user, id])?
                > 0;
            if gone {
                index::remove(t, shelf::id(t, &Key::notes(&user))?, &id)?;
            }
            Ok(gone)
        })
        .await
    }

    async fn release_note(&self, user: &str, id: &str) -> Result<bool> {
        let (owner, wanted) = (user.to_owned(), id.to_owned());
        let found = self.read(move |t| find(t, &owner, &wanted)).await?;
        let Some(note) = found.filter(|note| note.is_quarantined) else { return Ok(false) };
        let passages = self.read_passages(cut::chunk_note(&note.text)).await;
        let user = user.to_owned();
        self.write(move |t| {
            // The text is compared too: what the user let go is what is found.
            let freed = t
                .prepare_cached(
                    "UPDATE notes SET held = 0 WHERE tenant = ?1 AND user = ?2 AND id = ?3 AND held = 1 AND text = ?4",
                )?
                .execute(params![t.tenant, user, note.id, note.text])?;
            if freed > 0 {
                index::insert(t, shelf::id(t, &Key::notes(&user))?, &note.id, to_micros(note.created), &passages)?;
            }
            Ok(freed > 0)
        })
        .await
    }

    async fn notes(&self, user: &str, offset: u64, most: u64) -> Result<(Vec<Note>, u64)> {
        let user = user.to_owned();
        let (offset, most) = (offset.min(i64::MAX as u64), most.min(i64::MAX as u64));
        self.read(move |t| {
            let total = t
                .prepare_cached("SELECT count(*) FROM notes WHERE tenant = ?1 AND user = ?2")?
                .query_row(params![t.tenant, user], |row| row.get::<_, u64>(0))?;
            let mut page = t.prepare_cached(
                "SELECT id, text, tags, created, updated, origin, held FROM notes WHERE tenant = ?1 AND user = ?2 \
                 ORDER BY updated DESC, id LIMIT ?3 OFFSET ?4",
            )?;
            let notes = page.query_map(params![t.tenant, user, most, offset], note)?.collect::<Result<_, _>>()?;
            Ok((notes, total))
        })
        .await
    }

    async fn sync_files(&self, user: &str, place: &str, files: &[FileRevision]) -> Result<Vec<String>> {
        self.sync_memory_files(user, place, files).await
    }

    async fn index_file(&self, user: &str, place: &str, file: &FileRevision, text: &str) -> Result<()> {
        self.index_memory_file(user, place, file, text).await
    }

    async fn search_memory(&self, question: &MemoryQuery) -> Result<Vec<MemoryHit>> {
        self.recall_passages(question).await
    }
}

impl SqliteStore {
    /// Makes passages ready for the index. A model that does not answer is asked again when something is looked for.
    async fn read_passages(&self, passages: Vec<Passage>) -> Vec<IndexedPassage> {
        let embedder = &*self.search.memory.embedder;
        let texts: Vec<&str> = passages.iter().map(|it| it.text.as_str()).collect();
        let vectors = index::vectors(embedder, &texts).await.unwrap_or_default();
        index::embed_passages(passages, vectors, embedder.id())
    }
}

fn check_length(text: &str) -> Result<()> {
    if text.len() <= MAX_NOTE_BYTES {
        return Ok(());
    }
    Err(Error::failed(format!(
        "a note has at most {MAX_NOTE_BYTES} bytes, and this one has {}; save a file instead",
        text.len()
    )))
}

fn store_tags(t: &Tx<'_>, user: &str, note: &Note) -> anyhow::Result<()> {
    let mut add =
        t.prepare_cached("INSERT OR IGNORE INTO note_tags (tenant, user, tag, note) VALUES (?1, ?2, ?3, ?4)")?;
    for tag in &note.tags {
        add.execute(params![t.tenant, user, tag, note.id])?;
    }
    Ok(())
}

fn find(t: &Tx<'_>, user: &str, id: &str) -> anyhow::Result<Option<Note>> {
    Ok(t.prepare_cached(
        "SELECT id, text, tags, created, updated, origin, held FROM notes WHERE tenant = ?1 AND user = ?2 AND id = ?3",
    )?
    .query_row(params![t.tenant, user, id], note)
    .optional()?)
}

fn note(row: &Row<'_>) -> rusqlite::Result<Note> {
    Ok(Note {
        id: row.get(0)?,
        text: row.get(1)?,
        tags: serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default(),
        created: from_micros(row.get(3)?),
        updated: from_micros(row.get(4)?),
        origin: row.get::<_, String>(5)?.as_str().into(),
        is_quarantined: row.get(6)?,
    })
}
