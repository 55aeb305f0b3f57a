//! Memory: notes of a user, and Markdown files of a workspace, in one index.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use super::store::{NoStore, no_store_error};
use crate::Result;

/// What an agent knows tomorrow. A user's notes are seen by nobody else.
#[async_trait]
pub trait Notes: Send + Sync {
    /// Keeps a note.
    async fn save_note(&self, user: &str, note: &NewNote) -> Result<Note>;
    /// Replaces a note's text, and its tags where some are given; `created` stays. `None`: there is no such note.
    async fn update_note(&self, user: &str, id: &str, note: &NewNote) -> Result<Option<Note>>;
    /// Forgets a note. Whether there was one.
    async fn delete_note(&self, user: &str, id: &str) -> Result<bool>;
    /// Lets a note that was held back be found. Whether there was one.
    async fn release_note(&self, user: &str, id: &str) -> Result<bool>;
    /// The user's notes, newest first, and how many there are. Those that are held back are among them.
    async fn notes(&self, user: &str, offset: u64, most: u64) -> Result<(Vec<Note>, u64)>;
    /// Tells which files of a place exist now, for this user's index of them. Those gone are forgotten; the paths whose content must be handed over
    /// with [`keep_file`](Self::keep_file) come back.
    async fn sync_files(&self, user: &str, place: &str, files: &[FileRevision]) -> Result<Vec<String>>;
    /// Takes in the content of a memory file, instead of what it was before.
    async fn index_file(&self, user: &str, place: &str, file: &FileRevision, text: &str) -> Result<()>;
    /// Looks for what fits a question, best first.
    async fn search_memory(&self, question: &MemoryQuery) -> Result<Vec<MemoryHit>>;
}

/// A note to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewNote {
    /// What to remember.
    pub text: String,
    /// Labels, already in order: trimmed, lower-case, each once. `None` in an update keeps what is there.
    pub tags: Option<Vec<String>>,
    /// Whose words they are.
    pub origin: NoteOrigin,
}

/// Whose words a note is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NoteOrigin {
    /// The user's own.
    User,
    /// The agent's.
    #[default]
    Agent,
    /// The agent's, after a stranger's words had come in: from there. Such a note is held back until the user lets it go.
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

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `note-` and a UUID.
    pub id: String,
    /// What to remember.
    pub text: String,
    /// Labels.
    pub tags: Vec<String>,
    /// Whose words they are.
    pub origin: NoteOrigin,
    /// Whether it is found only after the user has let it go.
    pub is_quarantined: bool,
    /// When it was first saved.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// A memory file in its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRevision {
    /// Its path in the workspace.
    pub path: String,
    /// Changes when its content does: a hash, or a stamp of the file system.
    pub revision: String,
}

/// A question to memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryQuery {
    /// The words.
    pub text: String,
    /// Notes of this user.
    pub user: Option<String>,
    /// Memory files of this place, in the user's index.
    pub workspace: Option<String>,
    /// Also what was said in this user's conversations.
    pub include_sessions: bool,
    /// Only notes that have all of these tags.
    pub tags: Vec<String>,
    /// How many hits at most.
    pub limit: usize,
    /// The least score, from 0 to 1.
    pub min_score: f32,
}

/// Something that fits a question.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryHit {
    /// Where it is from.
    pub source: MemorySource,
    /// The passage.
    pub text: String,
    /// How well it fits, from 0 to 1; the same scale for every question.
    pub score: f32,
    /// Labels of a note.
    pub tags: Vec<String>,
    /// Whose words a note is; of files and conversations nobody keeps that.
    pub origin: Option<NoteOrigin>,
    /// When it was first saved.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// Where something recalled is from.
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
    /// A message of a conversation.
    Session {
        /// The conversation.
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
