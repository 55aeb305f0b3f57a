//! One call in the record: `tool.call` when it begins, `tool.result` when it ends, however it ends.

use std::time::Instant;

use helve_contract::{
    Call, Form, Keep, Reply,
    events::{ToolCall, ToolResult},
};
use serde_json::Value;

use super::{EventLog, When};
use crate::{Scrub, limits, prepare::Ready};

/// How much of arguments and results goes into an event.
const BOUND: usize = 16 << 10;

/// A call that has begun. Exactly one result follows, even if nobody waits for the answer any more.
pub(crate) struct Record<'a>(Option<Open<'a>>);

struct Open<'a> {
    events: &'a EventLog,
    began: Instant,
    about: About,
    only_looks: bool,
    denied: bool,
    failed: Option<String>,
}

/// What both events of a call begin with.
struct About {
    agent: String,
    call: String,
    label: String,
    tool: String,
    task: Option<String>,
}

impl EventLog {
    /// Records that a call begins.
    pub(crate) fn open(&self, scrub: &Scrub, name: &str, ready: &mut Ready<'_>, call: &Call) -> Record<'_> {
        if !self.is_on() {
            return Record(None);
        }
        let tool = ready.slot.map_or(name, |slot| slot.entry.spec.name.as_str());
        let about = About {
            agent: call.session.agent.clone(),
            call: call.uuid.clone(),
            label: call.id.clone(),
            tool: tool.to_owned(),
            task: self.0.as_ref().and_then(|stream| stream.head.task.clone()),
        };
        // Most arguments are small and hold no secrets, and are written as they are.
        let args = if limits::fits(&ready.args, BOUND) && scrub.is_clean(&ready.args) {
            ready.args.clone()
        } else {
            scrub.cleaned(small(&ready.args, Keep::Head))
        };
        let event = ToolCall {
            agent_id: about.agent.clone(),
            call_id: about.call.clone(),
            tool_call_id: about.label.clone(),
            tool: about.tool.clone(),
            tool_name: about.tool.clone(),
            task_id: about.task.clone(),
            profile: ready.slot.and_then(|slot| slot.entry.spec.profile),
            params: args.clone(),
            args,
            notes: notes(scrub, &ready.notes),
        };
        // What changes something is on record before it begins. What only looks may be recorded in one go with its end,
        // which is before anybody hears of it; one that takes a while is recorded when it begins to wait.
        let only_looks = ready.slot.is_some_and(|slot| slot.entry.spec.effects.is_read_only());
        let recorded = self.put(event.into(), if only_looks { When::WithNext } else { When::Now });
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
            open.end(Ended { result: "cancelled".into(), is_error: true, reply: None, notes: Vec::new() });
        }
    }
}

struct Ended<'a> {
    result: Value,
    is_error: bool,
    reply: Option<&'a Reply>,
    notes: Vec<String>,
}

impl Open<'_> {
    /// Says what went wrong with recording, if something did.
    fn end(&self, ended: Ended<'_>) -> Option<String> {
        let Ended { result, is_error, reply, notes } = ended;
        let event = ToolResult {
            agent_id: self.about.agent.clone(),
            call_id: self.about.call.clone(),
            tool_call_id: self.about.label.clone(),
            tool: self.about.tool.clone(),
            tool_name: self.about.tool.clone(),
            task_id: self.about.task.clone(),
            denied: self.denied,
            result,
            is_error,
            duration_ms: self.began.elapsed().as_micros() as f64 / 1000.0,
            exit: reply.and_then(|it| it.exit),
            wall: reply.and_then(|it| it.wall.clone()),
            notes,
            spill: reply.and_then(|it| it.spill.clone()),
        };
        let when = if self.only_looks { When::Gathered } else { When::Now };
        self.events.put(event.into(), when).err().map(|error| error.to_string())
    }
}

fn notes(scrub: &Scrub, notes: &[String]) -> Vec<String> {
    notes.iter().map(|note| scrub.text(note).into_owned()).collect()
}

fn small(value: &Value, keep: Keep) -> Value {
    if limits::fits(value, BOUND) { value.clone() } else { limits::smaller(value, BOUND, keep) }
}
