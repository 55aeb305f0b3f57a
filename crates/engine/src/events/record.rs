//! One call in the record: `tool.call` when it begins, `tool.result` when it ends, however it ends.

use std::time::Instant;

use helve_contract::{Call, Keep, Reply};
use serde_json::{Map, Value, json};

use super::Events;
use crate::{Scrub, limits, prepare::Ready};

/// How much of arguments and results goes into an event.
const BOUND: usize = 16 << 10;

/// A call that has begun. Exactly one result follows, even if nobody waits for the answer any more.
pub(crate) struct Record<'a>(Option<Open<'a>>);

struct Open<'a> {
    events: &'a Events,
    began: Instant,
    about: Map<String, Value>,
    failed: Option<String>,
}

impl Events {
    /// Records that a call begins.
    pub(crate) fn open(&self, scrub: &Scrub, name: &str, ready: &mut Ready<'_>, call: &Call) -> Record<'_> {
        if !self.is_on() {
            return Record(None);
        }
        let tool = ready.slot.map_or(name, |slot| slot.entry.spec.name.as_str());
        let mut about = Map::new();
        about.insert("agentId".into(), call.session.agent.as_str().into());
        about.insert("callId".into(), call.id.as_str().into());
        about.insert("tool".into(), tool.into());
        about.insert("toolName".into(), tool.into());
        if let Some(task) = self.0.as_ref().and_then(|stream| stream.task.as_deref()) {
            about.insert("taskId".into(), task.into());
        }

        let args = scrub.cleaned(small(&ready.args, Keep::Head));
        let mut data = about.clone();
        data.insert("args".into(), args.clone());
        data.insert("params".into(), args);
        if !ready.notes.is_empty() {
            data.insert("notes".into(), notes(scrub, &ready.notes));
        }
        let failed = self.emit("tool.call", Value::Object(data)).err().map(|error| error.to_string());
        Record(Some(Open { events: self, began: Instant::now(), about, failed }))
    }
}

impl Record<'_> {
    /// The call was refused: by a rule, by the mode, or by whoever was asked. Its result says so.
    pub(crate) fn refused(&mut self) {
        if let Some(open) = &mut self.0 {
            open.about.insert("denied".into(), true.into());
        }
    }

    /// Records how the call ended. The reply has been scrubbed.
    pub(crate) fn close(mut self, scrub: &Scrub, reply: &mut Reply) {
        let Some(mut open) = self.0.take() else { return };
        let result = match &reply.data {
            Some(data) if reply.form == helve_contract::Form::Json => small(data, reply.keep),
            _ => small(&Value::String(reply.text.clone()), reply.keep),
        };
        let result = scrub.without_baits(result);
        let ended = Ended { result, is_error: reply.is_error, reply: Some(reply), notes: notes(scrub, &reply.notes) };
        let failed = open.end(ended);
        if let Some(error) = open.failed.take().or(failed) {
            reply.notes.push(format!("the event could not be recorded: {error}"));
        }
    }
}

/// The caller stopped waiting: nothing will be answered, and that is recorded too.
impl Drop for Record<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.end(Ended { result: "cancelled".into(), is_error: true, reply: None, notes: Value::Null });
        }
    }
}

struct Ended<'a> {
    result: Value,
    is_error: bool,
    reply: Option<&'a Reply>,
    notes: Value,
}

impl Open<'_> {
    /// Says what went wrong with recording, if something did.
    fn end(&self, ended: Ended<'_>) -> Option<String> {
        let mut data = self.about.clone();
        data.insert("result".into(), ended.result);
        data.insert("isError".into(), ended.is_error.into());
        data.insert("durationMs".into(), json!(self.began.elapsed().as_micros() as f64 / 1000.0));
        data.insert("exit".into(), ended.reply.and_then(|it| it.exit).into());
        data.insert("wall".into(), ended.reply.and_then(|it| it.wall.clone()).into());
        data.insert("notes".into(), if ended.notes.is_null() { json!([]) } else { ended.notes });
        data.insert("spill".into(), ended.reply.and_then(|it| it.spill.clone()).into());
        self.events.emit("tool.result", Value::Object(data)).err().map(|error| error.to_string())
    }
}

fn notes(scrub: &Scrub, notes: &[String]) -> Value {
    notes.iter().map(|note| Value::from(scrub.text(note))).collect()
}

fn small(value: &Value, keep: Keep) -> Value {
    if limits::fits(value, BOUND) { value.clone() } else { limits::smaller(value, BOUND, keep) }
}
