//! `Reply`: the result of a call as text, data and media, with its status.

use serde_json::Value;

use crate::{Error, Limit, Origin, count_lines};

/// The result that the model gets. The engine truncates it before it is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The text. The engine truncates it to a limit.
    pub text: String,
    /// Text directly before `text` that is never truncated, such as an exit code or a status.
    pub before: String,
    /// Lines after `text` that are never truncated: totals, the end of a command, how to continue.
    pub after: String,
    /// The limit for `text`, or for each string in JSON data, that this call requests. The default is the dialect's
    /// limit. A tool that sets it returns the whole text, so that the spill file is complete.
    pub limit: Option<Limit>,
    /// The result as data, if the tool defines a structure.
    pub data: Option<Value>,
    /// Images and other media.
    pub media: Vec<Media>,
    /// Whether the call failed.
    pub is_error: bool,
    /// The exit code of the program, if one ran.
    pub exit_code: Option<i32>,
    /// Which end of the text to keep when it is truncated.
    pub truncate_side: TruncateSide,
    /// Whether `text` is plain text or the JSON of `data`.
    pub format: ReplyFormat,
    /// The name of the spill file, if the text was truncated. A tool that wrote the file itself sets it.
    pub spill_file: Option<String>,
    /// A text that the engine saves to a file; the reply then names the file.
    pub saved: Option<SavedText>,
    /// The original size, if the text was truncated.
    pub truncation: Option<Truncation>,
    /// The size of the whole output, if `text` shows parts of it escaped or without terminal sequences. A truncation
    /// note then states this size.
    pub source_bytes: Option<u64>,
    /// The sandbox level of the call ("L3"), if a program ran.
    pub sandbox: Option<String>,
    /// The origin of untrusted text. The engine tags such text as data.
    pub origin: Option<Origin>,
    /// Why the gate refused the call, if it did.
    pub refusal: Option<Refusal>,
    /// Remarks about the call for events and callers: a file that could not be saved, an internal error.
    pub notes: Vec<String>,
    /// All repairs of the arguments, for records and logs. Repairs that could change the meaning are also in
    /// `model_notes`.
    pub repairs: Vec<String>,
    /// Notes for the model about its arguments: a parameter that was ignored, renamed or guessed. For a JSON object,
    /// the engine moves them into a field `notes`. Otherwise the sender of the reply appends [`Reply::notes_text`].
    pub model_notes: Vec<String>,
}

/// Why the gate refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A rule or a policy denied it.
    Rule,
    /// The session is in plan mode.
    PlanMode,
    /// The mode requires an approval, and nobody gave one.
    Approval,
    /// A rule or a policy requires an approval in every mode, and nobody gave one.
    AskRule,
}

impl Refusal {
    /// Whether the refusal left work undone that another setting or an approval would have allowed. Plan mode refuses
    /// on purpose, so it does not count.
    #[must_use]
    pub fn leaves_work(self) -> bool {
        self != Self::PlanMode
    }
}

/// Which end of a text to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TruncateSide {
    /// The beginning: for files, listings, matches.
    #[default]
    KeepHead,
    /// The end: for the output of commands.
    KeepTail,
}

/// The format of `text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyFormat {
    /// Plain text.
    #[default]
    Text,
    /// The JSON of `data`; truncation keeps it valid.
    Json,
}

/// The original size of a truncated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Bytes of the whole text.
    pub bytes: u64,
    /// Lines of the whole text.
    pub lines: u64,
}

/// A text too long for the reply, such as a long line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedText {
    /// A short description. The reply contains `[what: file]`.
    pub what: String,
    /// The text.
    pub text: String,
}

impl Truncation {
    /// The size of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { bytes: text.len() as u64, lines: count_lines(text) as u64 }
    }
}

/// An image or another binary part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// MIME type, sniffed from the bytes.
    pub mime: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Reply {
    /// A reply with data; its text is the JSON of the data.
    #[must_use]
    pub fn json(data: Value) -> Self {
        Self { text: data.to_string(), data: Some(data), format: ReplyFormat::Json, ..Self::default() }
    }

    /// The whole text that a model reads: `before`, `text` and `after`.
    #[must_use]
    pub fn full_text(&self) -> String {
        let mut text = format!("{}{}", self.before, self.text);
        push_line(&mut text, &self.after);
        text
    }

    /// The notes for the model, one per line; `None` when there are none.
    #[must_use]
    pub fn notes_text(&self) -> Option<String> {
        let lines: Vec<String> = self.model_notes.iter().map(|note| format!("[Note: {note}]")).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// A failure with a text for the model.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// Appends a text on a new line.
pub(crate) fn push_line(text: &mut String, line: &str) {
    if line.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
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
        Self::error(error.to_string())
    }
}
