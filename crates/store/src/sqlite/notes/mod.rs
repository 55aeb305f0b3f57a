//! Memory: notes of a user, memory files of a place and what was said in conversations, in one index.

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
    Error, Result,
    jiff::Timestamp,
    ports::{FileMark, NewNote, Note, NoteOrigin, Notes, Recall, Recalled},
};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use self::{
    index::{Passage, Read},
    shelf::{Kind, Library},
};
use super::{Sqlite, kept, told};
use crate::embed::{Builtin, Embedder};

/// The longest note.
const LONGEST: usize = 256 << 10;

/// How memory is searched.
#[derive(Clone)]
pub struct Memory {
    /// Makes vectors; the model inside the program unless told otherwise.
    pub embedder: Arc<dyn Embedder>,
    /// What likeness of meaning counts.
    pub meaning: f32,
    /// What the words themselves count.
    pub words: f32,
}

impl Default for Memory {
    fn default() -> Self {
        Self { embedder: Arc::new(Builtin), meaning: 0.7, words: 0.3 }
    }
}

/// How memory is searched, and what of it lies ready.
#[derive(Default)]
pub(super) struct Desk {
    memory: Memory,
    library: Mutex<Library>,
}

impl Desk {
    /// The two weights, brought to a sum of one.
    fn weights(&self) -> (f32, f32) {
        let (meaning, words) = (self.memory.meaning.max(0.0), self.memory.words.max(0.0));
        let sum = meaning + words;
        if sum.is_finite() && sum > 0.0 { (meaning / sum, words / sum) } else { (0.7, 0.3) }
    }
}

impl Sqlite {
    /// The same store, with memory searched in another way.
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.desk = Arc::new(Desk { memory, library: Mutex::default() });
        self
    }
}

#[async_trait]
impl Notes for Sqlite {
    async fn save_note(&self, user: &str, note: &NewNote, now: Timestamp) -> Result<Note> {
        bounded(&note.text)?;
        let passages = self.read_passages(cut::note(&note.text)).await;
        let note = Note {
            id: format!("note-{}", uuid()?),
            text: note.text.clone(),
            tags: note.tags.clone().unwrap_or_default(),
            origin: note.origin.clone(),
            held: matches!(note.origin, NoteOrigin::Stranger(_)),
            created: now,
            updated: now,
        };
        let (user, saved) = (user.to_owned(), note.clone());
        self.write(move |t| {
            t.prepare_cached(
                "INSERT INTO notes (id, user, text, tags, created, updated, origin, held) VALUES (?1,?2,?3,?4,?5,?5,?6,?7)",
            )?
            .execute(params![
                note.id,
                user,
                note.text,
                serde_json::to_string(&note.tags)?,
                kept(now),
                note.origin.to_string(),
                note.held
            ])?;
            label(t, &note)?;
            if note.held {
                return Ok(());
            }
            index::put(t, shelf::id(t, Kind::Notes, &user)?, &note.id, kept(now), &passages)
        })
        .await?;
        Ok(saved)
    }

    async fn update_note(&self, user: &str, id: &str, note: &NewNote, now: Timestamp) -> Result<Option<Note>> {
        bounded(&note.text)?;
        let passages = self.read_passages(cut::note(&note.text)).await;
        let (user, id, new) = (user.to_owned(), id.to_owned(), note.clone());
        self.write(move |t| {
            let Some(mut note) = find(t, &user, &id)? else { return Ok(None) };
            note.text = new.text;
            note.tags = new.tags.unwrap_or(note.tags);
            note.updated = now.max(note.created);
            t.prepare_cached("UPDATE notes SET text = ?2, tags = ?3, updated = ?4 WHERE id = ?1")?.execute(params![
                note.id,
                note.text,
                serde_json::to_string(&note.tags)?,
                kept(note.updated)
            ])?;
            t.prepare_cached("DELETE FROM note_tags WHERE note = ?1")?.execute([&note.id])?;
            label(t, &note)?;
            let shelf = shelf::id(t, Kind::Notes, &user)?;
            index::drop(t, shelf, &note.id)?;
            if !note.held {
                index::put(t, shelf, &note.id, kept(note.created), &passages)?;
            }
            Ok(Some(note))
        })
        .await
    }

    async fn forget_note(&self, user: &str, id: &str) -> Result<bool> {
        let (user, id) = (user.to_owned(), id.to_owned());
        self.write(move |t| {
            let gone =
                t.prepare_cached("DELETE FROM notes WHERE id = ?1 AND user = ?2")?.execute(params![id, user])? > 0;
            if gone {
                index::drop(t, shelf::id(t, Kind::Notes, &user)?, &id)?;
            }
            Ok(gone)
        })
        .await
    }

    async fn release_note(&self, user: &str, id: &str) -> Result<bool> {
        let (owner, wanted) = (user.to_owned(), id.to_owned());
        let found = self.read(move |t| find(t, &owner, &wanted)).await?;
        let Some(note) = found.filter(|note| note.held) else { return Ok(false) };
        let passages = self.read_passages(cut::note(&note.text)).await;
        let user = user.to_owned();
        self.write(move |t| {
            // The text is compared too: what the user let go is what is found.
            let freed = t
                .prepare_cached("UPDATE notes SET held = 0 WHERE id = ?1 AND user = ?2 AND held = 1 AND text = ?3")?
                .execute(params![note.id, user, note.text])?;
            if freed > 0 {
                index::put(t, shelf::id(t, Kind::Notes, &user)?, &note.id, kept(note.created), &passages)?;
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
                .prepare_cached("SELECT count(*) FROM notes WHERE user = ?1")?
                .query_row([&user], |row| row.get::<_, u64>(0))?;
            let mut page = t.prepare_cached(
                "SELECT id, text, tags, created, updated, origin, held FROM notes WHERE user = ?1 \
                 ORDER BY updated DESC, id LIMIT ?2 OFFSET ?3",
            )?;
            let notes = page.query_map(params![user, most, offset], note)?.collect::<Result<_, _>>()?;
            Ok((notes, total))
        })
        .await
    }

    async fn sync_files(&self, place: &str, files: &[FileMark]) -> Result<Vec<String>> {
        self.sync_memory_files(place, files).await
    }

    async fn keep_file(&self, place: &str, file: &FileMark, text: &str, now: Timestamp) -> Result<()> {
        self.keep_memory_file(place, file, text, now).await
    }

    async fn recall(&self, question: &Recall) -> Result<Vec<Recalled>> {
        self.recall_passages(question).await
    }
}

impl Sqlite {
    /// Makes passages ready for the index. A model that does not answer is asked again when something is looked for.
    async fn read_passages(&self, passages: Vec<Passage>) -> Vec<Read> {
        let embedder = &*self.desk.memory.embedder;
        let texts: Vec<&str> = passages.iter().map(|it| it.text.as_str()).collect();
        let vectors = index::vectors(embedder, &texts).await.unwrap_or_default();
        index::read(passages, vectors, embedder.id())
    }
}

fn bounded(text: &str) -> Result<()> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    Err(Error::failed(format!(
        "a note has at most {LONGEST} bytes, and this one has {}; save a file instead",
        text.len()
    )))
}

fn label(t: &Transaction<'_>, note: &Note) -> anyhow::Result<()> {
    let mut add = t.prepare_cached("INSERT OR IGNORE INTO note_tags (tag, note) VALUES (?1, ?2)")?;
    for tag in &note.tags {
        add.execute(params![tag, note.id])?;
    }
    Ok(())
}

fn find(t: &Transaction<'_>, user: &str, id: &str) -> anyhow::Result<Option<Note>> {
    Ok(t.prepare_cached(
        "SELECT id, text, tags, created, updated, origin, held FROM notes WHERE id = ?1 AND user = ?2",
    )?
    .query_row(params![id, user], note)
    .optional()?)
}

fn note(row: &Row<'_>) -> rusqlite::Result<Note> {
    Ok(Note {
        id: row.get(0)?,
        text: row.get(1)?,
        tags: serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default(),
        created: told(row.get(3)?),
        updated: told(row.get(4)?),
        origin: row.get::<_, String>(5)?.as_str().into(),
        held: row.get(6)?,
    })
}

/// A random UUID (version 4).
fn uuid() -> Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Internal(anyhow::anyhow!("no random numbers: {error}")))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}
