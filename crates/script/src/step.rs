//! Steps of a script: the answer, how it is split into chunks, and which failure occurs.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

/// One answer of the scripted model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptStep {
    /// The text.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
    /// Further deltas of the message, sent unchanged before the text: fields that only some providers have.
    pub deltas: Vec<Value>,
    /// The tool calls.
    pub calls: Vec<ScriptedCall>,
    /// `finish_reason`, if it is not the usual one.
    pub finish: Option<String>,
    /// Tokens of the prompt and the answer; `None` sends no usage.
    pub usage: Option<(u64, u64)>,
    /// How the answer is split into chunks.
    pub split: StreamSplit,
    /// The failure.
    pub fault: Option<StreamFault>,
    /// The delay of the first byte in milliseconds.
    pub wait: u64,
    /// A status other than 200, sent with `body`.
    pub status: Option<u16>,
    /// The whole body, sent unchanged.
    pub body: Option<String>,
    /// More headers.
    pub headers: BTreeMap<String, String>,
    /// Text that the request must contain.
    pub expect: Option<String>,
    /// The number of requests that get this answer; 0 means 1.
    pub times: u32,
    /// Computes the answer from the request.
    #[serde(skip)]
    pub by: Option<Responder>,
}

/// Computes an answer from a request.
#[derive(Clone)]
pub struct Responder(pub(crate) Arc<dyn Fn(&Value) -> ScriptStep + Send + Sync>);

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("By")
    }
}

/// A tool call in an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedCall {
    /// Its id; generated if empty.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments; a string is sent unchanged, valid JSON or not.
    pub args: Value,
    /// `extra_content` of the call; null: none.
    pub extra: Value,
}

/// How an answer is split into chunks.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSplit {
    /// The number of characters of text in a chunk.
    pub text: usize,
    /// The number of chunks of a call's arguments.
    pub args: usize,
    /// Names are sent in two chunks.
    pub names: bool,
    /// Which chunks contain the ids of calls.
    pub ids: CallIdPlacement,
    /// Chunks of all calls are interleaved.
    pub interleaved: bool,
    /// Every call is sent again when it is complete.
    pub twice: bool,
    /// Chunks do not say which call they belong to.
    pub no_index: bool,
    /// The number of bytes of a write; 0 writes one event at a time.
    pub bytes: usize,
    /// Lines end with CR LF.
    pub crlf: bool,
}

impl Default for StreamSplit {
    fn default() -> Self {
        Self {
            text: 12,
            args: 3,
            names: false,
            ids: CallIdPlacement::First,
            interleaved: false,
            twice: false,
            no_index: false,
            bytes: 0,
            crlf: false,
        }
    }
}

/// Which chunks contain the ids of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallIdPlacement {
    /// The first chunk of each call.
    #[default]
    First,
    /// Every chunk.
    Every,
    /// None.
    Missing,
}

/// A failure of a stream. Numbers count events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamFault {
    /// The connection breaks after this many events.
    CutAfter(usize),
    /// The connection breaks in the middle of the first call's arguments.
    CutInArgument,
    /// The stream ends after this many events without an end marker.
    EndAfter(usize),
    /// The stream stalls after this many events.
    StallAfter(usize),
    /// An invalid JSON line follows after this many events.
    GarbageAfter(usize),
    /// An error object comes after this many events.
    ErrorAfter(usize),
    /// The stream ends without `[DONE]`.
    NoDone,
}

impl ScriptStep {
    /// An answer with text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: Some((10, 5)), ..Self::default() }
    }

    /// An answer with tool calls.
    pub fn calls(calls: impl IntoIterator<Item = ScriptedCall>) -> Self {
        Self { calls: calls.into_iter().collect(), usage: Some((10, 5)), ..Self::default() }
    }

    /// An answer with one tool call.
    pub fn call(name: &str, args: impl Into<Value>) -> Self {
        Self::calls([ScriptedCall::new(name, args)])
    }

    /// A status with a body.
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        Self { status: Some(status), body: Some(body.into()), ..Self::default() }
    }

    /// An answer computed from the request.
    pub fn computed(make: impl Fn(&Value) -> Self + Send + Sync + 'static) -> Self {
        Self { by: Some(Responder(Arc::new(make))), ..Self::default() }
    }

    /// With this delta before the text.
    pub fn delta(mut self, delta: impl Into<Value>) -> Self {
        self.deltas.push(delta.into());
        self
    }

    /// With these words before the calls.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// With these thoughts.
    pub fn with_reasoning(mut self, text: impl Into<String>) -> Self {
        self.reasoning = text.into();
        self
    }

    /// Splits the answer into chunks like this.
    pub fn split(mut self, split: StreamSplit) -> Self {
        self.split = split;
        self
    }

    /// Adds this failure.
    pub fn fault(mut self, fault: StreamFault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// With this header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With this usage.
    pub fn usage(mut self, prompt: u64, completion: u64) -> Self {
        self.usage = Some((prompt, completion));
        self
    }

    /// Sends no usage.
    pub fn no_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// With this `finish_reason`.
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.to_owned());
        self
    }

    /// Delays the first byte by this many milliseconds.
    pub fn delay_ms(mut self, ms: u64) -> Self {
        self.wait = ms;
        self
    }

    /// Requires this text in the request.
    pub fn expect(mut self, words: &str) -> Self {
        self.expect = Some(words.to_owned());
        self
    }

    /// For this many requests.
    pub fn repeat(mut self, times: u32) -> Self {
        self.times = times;
        self
    }
}

impl ScriptedCall {
    /// A call.
    pub fn new(name: &str, args: impl Into<Value>) -> Self {
        Self { id: String::new(), name: name.to_owned(), args: args.into(), extra: Value::Null }
    }

    /// With this id.
    pub fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// The arguments as they are sent.
    pub(crate) fn args_text(&self) -> String {
        match &self.args {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            args => args.to_string(),
        }
    }
}
