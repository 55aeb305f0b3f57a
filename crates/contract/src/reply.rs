//! What comes back from a call: words, data, media, and how it went.

use serde_json::Value;

use crate::{Error, Origin};

/// What the model gets back. The engine bounds it before it leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The words.
    pub text: String,
    /// The same as data, where the tool has a shape for it.
    pub data: Option<Value>,
    /// Pictures and the like.
    pub media: Vec<Media>,
    /// Whether the call failed.
    pub is_error: bool,
    /// Exit code, where a program ran.
    pub exit: Option<i32>,
    /// Which end of the text matters when not all of it fits.
    pub keep: Keep,
    /// Whether `text` is prose or the JSON of `data`.
    pub form: Form,
    /// Name of the file that holds the whole output, when the text was cut. A tool that wrote one itself sets it.
    pub spill: Option<String>,
    /// What was left out, once something was.
    pub cut: Option<Cut>,
    /// The sandbox that held the call, as one short word ("L3"), where a program ran.
    pub wall: Option<String>,
    /// Where the words are from, when they are a stranger's. The engine marks them as data.
    pub origin: Option<Origin>,
    /// Why the call was not made, where the gate refused it.
    pub refusal: Option<Refusal>,
    /// Remarks about the call itself: a mended argument, an unknown field that was ignored. For events and callers.
    pub notes: Vec<String>,
}

/// Why the gate refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A rule or a policy denies it.
    Rule,
    /// The session is in plan mode.
    PlanMode,
    /// It needs an approval, and nobody gave one.
    Approval,
}

/// Which end of a text matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The beginning: files, listings, matches.
    #[default]
    Head,
    /// The end: what a command printed last.
    Tail,
}

/// What `text` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Prose.
    #[default]
    Text,
    /// The JSON of `data`; a cut keeps it valid JSON.
    Json,
}

/// What a cut left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the whole text.
    pub bytes: u64,
    /// Lines of the whole text.
    pub lines: u64,
}

/// A picture or another binary part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// MIME type, sniffed from the bytes.
    pub mime: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Reply {
    /// A reply that is data; its words are the data's JSON.
    #[must_use]
    pub fn json(data: Value) -> Self {
        Self { text: data.to_string(), data: Some(data), form: Form::Json, ..Self::default() }
    }

    /// A failure, in words for the model.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        "done".into()
    }
}

impl From<Value> for Reply {
    fn from(data: Value) -> Self {
        Self::json(data)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::failed(error.to_string())
    }
}
