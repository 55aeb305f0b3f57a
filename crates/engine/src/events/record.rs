//! One call in the record: `tool.call` when it begins, `tool.result` when it ends, however it ends.

use std::{borrow::Cow, time::Instant};

use helve_contract::{Call, Form, Keep, Reply, json::Fields};
use serde_json::Value;

use super::{Events, When};
use crate::{Scrub, limits, prepare::Ready};

/// How much of arguments and results goes into an event.
const BOUND: usize = 16 << 10;

/// A call that has begun. Exactly one result follows, even if nobody waits for the answer any more.
pub(crate) struct Record<'a>(Option<Open<'a>>);

struct Open<'a> {
    events: &'a Events,
    began: Instant,
    /// What both of its events begin with: whose call it is, and of what.
    about: Fields,
    only_looks: bool,
    denied: bool,
    failed: Option<String>,
}

impl Events {
    /// Records that a call begins.
    pub(crate) fn open(&self, scrub: &Scrub, name: &str, ready: &mut Ready<'_>, call: &Call) -> Record<'_> {
        if !self.is_on() {
            return Record(None);
        }
        let tool = ready.slot.map_or(name, |slot| slot.entry.spec.name.as_str());
        let about = Fields::after(Vec::with_capacity(256))
            .text("agentId", call.session.agent.as_str())
            .text("callId", call.id.as_str())
            .text("tool", tool)
            .text("toolName", tool)
            .perhaps("taskId", self.0.as_ref().and_then(|stream| stream.head.task.as_deref()));
        // Most arguments are small and hold no secrets, and are written as they are.
        let args = limits::json_within(&ready.args, BOUND)
            .filter(|_| scrub.is_clean(&ready.args))
            .unwrap_or_else(|| scrub.cleaned(small(&ready.args, Keep::Head)).to_string().into_bytes());
        let profile = ready.slot.and_then(|slot| slot.entry.spec.profile);
        let mut data = about.again(args.len() * 2 + 64).perhaps("profile", profile.map(helve_contract::Profile::name));
        data = data.raw("args", &args).raw("params", &args);
        if !ready.notes.is_empty() {
            data = data.value("notes", &notes(scrub, &ready.notes));
        }
        // What changes something is on record before it begins. What only looks may be recorded in one go with its end,
        // which is before anybody hears of it; one that takes a while is recorded when it begins to wait.
        let only_looks = ready.slot.is_some_and(|slot| slot.entry.spec.effects.is_read_only());
        let recorded = self.put("tool.call", data.done(), if only_looks { When::WithNext } else { When::Now });
        let failed = recorded.err().map(|error| error.to_string());
        Record(Some(Open { events: self, began: Instant::now(), about, only_looks, denied: false, failed }))
    }
}

impl Record<'_> {
    /// The call was refused: by a rule, by the mode, or by whoever was asked. Its result says so.
    pub(crate) fn refused(&mut self) {
        if let Some(open) = &mut self.0 {
            open.denied = true;
        }
    }

    /// The call takes a while: that it began is recorded now.
    pub(crate) fn waits(&mut self) {
        if let Some(open) = &mut self.0
            && let Err(error) = open.events.settle()
        {
            open.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// Records how the call ended. The reply has been scrubbed.
    pub(crate) fn close(mut self, scrub: &Scrub, reply: &mut Reply) {
        let Some(mut open) = self.0.take() else { return };
        let mut result = match &reply.data {
            Some(data) if reply.form == Form::Json => small(data, reply.keep),
            _ => limits::short_text(&reply.text, BOUND, reply.keep).into(),
        };
        scrub.take_baits(&mut result);
        let mut all_notes = notes(scrub, &reply.repairs);
        all_notes.extend(notes(scrub, &reply.notes));
        let ended = Ended { result, is_error: reply.is_error, reply: Some(reply), notes: all_notes };
        let failed = open.end(&ended);
        if let Some(error) = open.failed.take().or(failed) {
            reply.notes.push(format!("the event could not be recorded: {error}"));
        }
    }
}

/// The caller stopped waiting: nothing will be answered, and that is recorded too.
impl Drop for Record<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.end(&Ended { result: "cancelled".into(), is_error: true, reply: None, notes: Vec::new() });
        }
    }
}

struct Ended<'a> {
    result: Value,
    is_error: bool,
    reply: Option<&'a Reply>,
    notes: Vec<Cow<'a, str>>,
}

impl Open<'_> {
    /// Says what went wrong with recording, if something did.
    fn end(&self, ended: &Ended<'_>) -> Option<String> {
        let length = ended.result.as_str().map_or(BOUND / 4, str::len);
        let mut data = self.about.again(length + 256);
        if self.denied {
            data = data.value("denied", &true);
        }
        data = match &ended.result {
            Value::String(text) => data.text("result", text),
            other => data.value("result", other),
        };
        let data = data
            .value("isError", &ended.is_error)
            .value("durationMs", &(self.began.elapsed().as_micros() as f64 / 1000.0))
            .value("exit", &ended.reply.and_then(|it| it.exit))
            .value("wall", &ended.reply.and_then(|it| it.wall.as_ref()))
            .value("notes", &ended.notes)
            .value("spill", &ended.reply.and_then(|it| it.spill.as_ref()));
        let when = if self.only_looks { When::Gathered } else { When::Now };
        self.events.put("tool.result", data.done(), when).err().map(|error| error.to_string())
    }
}

fn notes<'a>(scrub: &Scrub, notes: &'a [String]) -> Vec<Cow<'a, str>> {
    notes.iter().map(|note| scrub.text(note)).collect()
}

fn small(value: &Value, keep: Keep) -> Value {
    if limits::fits(value, BOUND) { value.clone() } else { limits::smaller(value, BOUND, keep) }
}
