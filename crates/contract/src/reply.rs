//! What comes back from a call: words, data, media, and how it went.

use serde_json::Value;

use crate::{Error, Limit, Origin, count_lines};

/// What the model gets back. The engine bounds it before it leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The words. The engine truncates them to a limit.
    pub text: String,
    /// Text directly before `text` that is never truncated: an exit code, a status.
    pub before: String,
    /// Lines after `text` that are never truncated: totals, how a command ended, how to go on.
    pub after: String,
    /// How much of `text`, or of each string in JSON data, this call asked for. Without it the dialect's limit holds. A
    /// tool that sets it hands over the whole text, so that the file with the full output is complete.
    pub limit: Option<Limit>,
    /// The same as data, where the tool has a shape for it.
    pub data: Option<Value>,
    /// Pictures and the like.
    pub media: Vec<Media>,
    /// Whether the call failed.
    pub is_error: bool,
    /// Exit code, where a program ran.
    pub exit_code: Option<i32>,
    /// Which end of the text matters when not all of it fits.
    pub truncate_side: TruncateSide,
    /// Whether `text` is prose or the JSON of `data`.
    pub format: ReplyFormat,
    /// Name of the file that holds the whole output, when the text was cut. A tool that wrote one itself sets it.
    pub spill_file: Option<String>,
    /// A text that the engine saves to a file beside the reply, which then names the file.
    pub saved: Option<SavedText>,
    /// What was left out, once something was.
    pub truncation: Option<Truncation>,
    /// Bytes of the whole output, where `text` shows some of them in another form: escaped, or left out as a command to
    /// a terminal. A note about a truncation then tells this size, and not how much of it the text shows.
    pub source_bytes: Option<u64>,
    /// The sandbox that held the call, as one short word ("L3"), where a program ran.
    pub sandbox: Option<String>,
    /// Where the words are from, when they are a stranger's. The engine marks them as data.
    pub origin: Option<Origin>,
    /// Why the call was not made, where the gate refused it.
    pub refusal: Option<Refusal>,
    /// Remarks about the call itself, for events and callers: a file that could not be saved, an internal error.
    pub notes: Vec<String>,
    /// Everything that was repaired in the arguments, for records and logs. Those repairs that could change the meaning of
    /// the call are in `model_notes` too.
    pub repairs: Vec<String>,
    /// What the model must know about its own arguments: a parameter that was ignored, renamed or guessed. The engine
    /// moves them into a field `notes` where the reply is a JSON object; otherwise whoever sends the reply adds
    /// [`Reply::notes_text`] after it.
    pub model_notes: Vec<String>,
}

/// Why the gate refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A rule or a policy denies it.
    Rule,
    /// The session is in plan mode.
    PlanMode,
    /// The mode asks for an approval, and nobody gave one.
    Approval,
    /// A rule or a policy asks for an approval in every mode, and nobody gave one.
    AskRule,
}

impl Refusal {
    /// Whether work was left undone that another setting or an approval would have let pass. Plan mode refuses on
    /// purpose.
    #[must_use]
    pub fn leaves_work(self) -> bool {
        self != Self::PlanMode
    }
}

/// Which end of a text matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TruncateSide {
    /// The beginning: files, listings, matches.
    #[default]
    KeepHead,
    /// The end: what a command printed last.
    KeepTail,
}

/// What `text` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyFormat {
    /// Prose.
    #[default]
    Text,
    /// The JSON of `data`; a cut keeps it valid JSON.
    Json,
}

/// What a cut left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Bytes of the whole text.
    pub bytes: u64,
    /// Lines of the whole text.
    pub lines: u64,
}

/// A text that is too long for the reply, such as one long line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedText {
    /// What it is, in a few words. The reply says `[what: file]`.
    pub what: String,
    /// The text.
    pub text: String,
}

impl Truncation {
    /// The measures of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { bytes: text.len() as u64, lines: count_lines(text) as u64 }
    }
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
        Self { text: data.to_string(), data: Some(data), format: ReplyFormat::Json, ..Self::default() }
    }

    /// The whole text as a model reads it: what stands before it, the text, and the lines after it.
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

    /// A failure, in words for the model.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// Appends a text that starts on a line of its own.
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
