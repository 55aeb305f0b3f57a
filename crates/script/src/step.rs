//! Steps of a script: what is answered, how it is cut into pieces, and what goes wrong.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

/// One answer of the scripted model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptStep {
    /// Words.
    pub text: String,
    /// Thoughts.
    pub reasoning: String,
    /// Further deltas of the message, sent as they are before the text: fields that only some providers have.
    pub deltas: Vec<Value>,
    /// Calls of tools.
    pub calls: Vec<ScriptedCall>,
    /// `finish_reason`, when it is not the usual one.
    pub finish: Option<String>,
    /// Tokens of the prompt and of the answer; none: the server says nothing about usage.
    pub usage: Option<(u64, u64)>,
    /// How the answer is cut into pieces.
    pub split: StreamSplit,
    /// What goes wrong.
    pub fault: Option<StreamFault>,
    /// Milliseconds until the first byte.
    pub wait: u64,
    /// Another status than 200; `body` is sent with it.
    pub status: Option<u16>,
    /// The whole body, as it is.
    pub body: Option<String>,
    /// More headers.
    pub headers: BTreeMap<String, String>,
    /// Words that the request must contain.
    pub expect: Option<String>,
    /// How many requests get this answer; 0 and 1 are one.
    pub times: u32,
    /// Makes the answer from the request.
    #[serde(skip)]
    pub by: Option<Responder>,
}

/// Makes an answer from a request.
#[derive(Clone)]
pub struct Responder(pub(crate) Arc<dyn Fn(&Value) -> ScriptStep + Send + Sync>);

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("By")
    }
}

/// A call of a tool in an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedCall {
    /// Its id; empty: one is made up.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments; a string is sent as it is, be it JSON or not.
    pub args: Value,
    /// `extra_content` of the call; null: none.
    pub extra: Value,
}

/// How an answer is cut into pieces.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSplit {
    /// Characters of text in a piece.
    pub text: usize,
    /// Pieces of the arguments of a call.
    pub args: usize,
    /// Names come in two pieces.
    pub names: bool,
    /// Where the ids of calls are.
    pub ids: CallIdPlacement,
    /// Pieces of all calls by turns.
    pub interleaved: bool,
    /// Every call is sent a second time when it is complete.
    pub twice: bool,
    /// Pieces do not say which call they belong to.
    pub no_index: bool,
    /// Bytes of a write; 0: an event a write.
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

/// Where the ids of calls are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallIdPlacement {
    /// In the first piece of each call.
    #[default]
    First,
    /// In every piece.
    Every,
    /// Nowhere.
    Missing,
}

/// What goes wrong with a stream. Numbers count events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamFault {
    /// The connection breaks after this many events.
    CutAfter(usize),
    /// The connection breaks in the middle of the first call's arguments.
    CutInArgument,
    /// The stream ends cleanly after this many events, without a word of its end.
    EndAfter(usize),
    /// Nothing more comes after this many events.
    StallAfter(usize),
    /// A line that is no JSON comes after this many events.
    GarbageAfter(usize),
    /// An error object comes after this many events.
    ErrorAfter(usize),
    /// The stream ends without `[DONE]`.
    NoDone,
}

impl ScriptStep {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: Some((10, 5)), ..Self::default() }
    }

    /// Calls of tools.
    pub fn calls(calls: impl IntoIterator<Item = ScriptedCall>) -> Self {
        Self { calls: calls.into_iter().collect(), usage: Some((10, 5)), ..Self::default() }
    }

    /// One call of a tool.
    pub fn call(name: &str, args: impl Into<Value>) -> Self {
        Self::calls([ScriptedCall::new(name, args)])
    }

    /// A status with a body.
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        Self { status: Some(status), body: Some(body.into()), ..Self::default() }
    }

    /// An answer made from the request.
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

    /// Cut into pieces like this.
    pub fn split(mut self, split: StreamSplit) -> Self {
        self.split = split;
        self
    }

    /// With this fault.
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

    /// Without a word about usage.
    pub fn no_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// With this `finish_reason`.
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.to_owned());
        self
    }

    /// The first byte comes after this many milliseconds.
    pub fn delay_ms(mut self, ms: u64) -> Self {
        self.wait = ms;
        self
    }

    /// The request must contain these words.
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
