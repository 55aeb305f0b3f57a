//! The `Notes` port, the agent's memory: a user's notes and the Markdown files of a workspace, in one index.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use super::store::{NoStore, no_store_error};
use crate::Result;

/// Memory that outlives a session. Nobody else sees a user's notes.
#[async_trait]
pub trait Notes: Send + Sync {
    /// Stores a note.
    async fn save_note(&self, user: &str, note: &NewNote) -> Result<Note>;
    /// Replaces a note's text, and its tags if given; `created` stays. `None`: no such note.
    async fn update_note(&self, user: &str, id: &str, note: &NewNote) -> Result<Option<Note>>;
    /// Deletes a note. Returns whether it existed.
    async fn delete_note(&self, user: &str, id: &str) -> Result<bool>;
    /// Releases a quarantined note, so that searches find it. Returns whether it existed.
    async fn release_note(&self, user: &str, id: &str) -> Result<bool>;
    /// The user's notes, newest first, and their number. Includes quarantined notes.
    async fn notes(&self, user: &str, offset: u64, most: u64) -> Result<(Vec<Note>, u64)>;
    /// Reports the current files of a place to this user's index, which drops files that are gone. Returns the paths
    /// whose content the caller must pass to [`index_file`](Self::index_file).
    async fn sync_files(&self, user: &str, place: &str, files: &[FileRevision]) -> Result<Vec<String>>;
    /// Replaces the indexed content of a memory file.
    async fn index_file(&self, user: &str, place: &str, file: &FileRevision, text: &str) -> Result<()>;
    /// Searches memory, best matches first.
    async fn search_memory(&self, question: &MemoryQuery) -> Result<Vec<MemoryHit>>;
}

/// A new note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewNote {
    /// The text to remember.
    pub text: String,
    /// The tags: trimmed, lower case, without duplicates. `None` in an update keeps the old ones.
    pub tags: Option<Vec<String>>,
    /// The author.
    pub origin: NoteOrigin,
}

/// The author of a note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NoteOrigin {
    /// The user.
    User,
    /// The agent.
    #[default]
    Agent,
    /// The agent, after it had read untrusted content from this origin. Such a note is quarantined until the user
    /// releases it.
    Untrusted(String),
}

impl NoteOrigin {
    const UNTRUSTED_PREFIX: &str = "stranger: ";
}

impl fmt::Display for NoteOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Agent => f.write_str("agent"),
            Self::Untrusted(name) => write!(f, "{}{name}", Self::UNTRUSTED_PREFIX),
        }
    }
}

impl From<&str> for NoteOrigin {
    fn from(text: &str) -> Self {
        match (text, text.strip_prefix(Self::UNTRUSTED_PREFIX)) {
            (_, Some(name)) => Self::Untrusted(name.to_owned()),
            ("user", None) => Self::User,
            _ => Self::Agent,
        }
    }
}

/// A stored note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `note-` and a UUID.
    pub id: String,
    /// The text to remember.
    pub text: String,
    /// Labels.
    pub tags: Vec<String>,
    /// The author.
    pub origin: NoteOrigin,
    /// Whether the note is quarantined: searches find it only after the user releases it.
    pub is_quarantined: bool,
    /// When it was first saved.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// The current revision of a memory file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRevision {
    /// Its path in the workspace.
    pub path: String,
    /// A hash or a file stamp; it changes with the content.
    pub revision: String,
}

/// A query to memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryQuery {
    /// The query text.
    pub text: String,
    /// Search the notes of this user.
    pub user: Option<String>,
    /// Search the memory files of this place, in the user's index.
    pub workspace: Option<String>,
    /// Also search the messages of this user's sessions.
    pub include_sessions: bool,
    /// Return only notes that have all of these tags.
    pub tags: Vec<String>,
    /// The maximum number of hits.
    pub limit: usize,
    /// The minimum score, from 0 to 1.
    pub min_score: f32,
}

/// A hit of a memory query.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryHit {
    /// Its source.
    pub source: MemorySource,
    /// The matching passage.
    pub text: String,
    /// How well it matches, from 0 to 1; the same scale for every query.
    pub score: f32,
    /// The tags of a note.
    pub tags: Vec<String>,
    /// The author of a note; unknown for files and sessions.
    pub origin: Option<NoteOrigin>,
    /// When it was first saved.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// The source of a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// A note, by its id.
    Note(String),
    /// Lines of a memory file, counted from 1.
    File {
        /// Its path in the workspace.
        path: String,
        /// First line.
        first: u64,
        /// Last line.
        last: u64,
    },
    /// A message of a session.
    Session {
        /// The session.
        session: String,
        /// The message's number.
        seq: u64,
    },
}

#[async_trait]
impl Notes for NoStore {
    async fn save_note(&self, _: &str, _: &NewNote) -> Result<Note> {
        no_store_error()
    }
    async fn update_note(&self, _: &str, _: &str, _: &NewNote) -> Result<Option<Note>> {
        no_store_error()
    }
    async fn delete_note(&self, _: &str, _: &str) -> Result<bool> {
        Ok(false)
    }
    async fn release_note(&self, _: &str, _: &str) -> Result<bool> {
        Ok(false)
    }
    async fn notes(&self, _: &str, _: u64, _: u64) -> Result<(Vec<Note>, u64)> {
        Ok((Vec::new(), 0))
    }
    async fn sync_files(&self, _: &str, _: &str, _: &[FileRevision]) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    async fn index_file(&self, _: &str, _: &str, _: &FileRevision, _: &str) -> Result<()> {
        no_store_error()
    }
    async fn search_memory(&self, _: &MemoryQuery) -> Result<Vec<MemoryHit>> {
        Ok(Vec::new())
    }
}
