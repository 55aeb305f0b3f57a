//! Records one call: `tool.call` at its start and exactly one `tool.result` at its end.

use std::time::Instant;

use helve_contract::{
    Call, Reply, ReplyFormat, TruncateSide,
    events::{ToolCall, ToolResult},
};
use serde_json::Value;

use super::{EventLog, WritePolicy};
use crate::{Redactor, limits, prepare::PreparedCall};

/// How much of arguments and results goes into an event.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// A call that has begun. Exactly one result follows, even if nobody waits for the answer any more.
pub(crate) struct CallRecord<'a>(Option<OpenCall<'a>>);

struct OpenCall<'a> {
    events: &'a EventLog,
    started: Instant,
    common_fields: About,
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
    pub(crate) fn open(
        &self,
        scrub: &Redactor,
        name: &str,
        ready: &mut PreparedCall<'_>,
        call: &Call,
    ) -> CallRecord<'_> {
        if !self.is_on() {
            return CallRecord(None);
        }
        let tool = ready.tool.map_or(name, |slot| slot.entry.spec.name.as_str());
        let about = About {
            agent: call.session.agent.clone(),
            call: call.uuid.clone(),
            label: call.id.clone(),
            tool: tool.to_owned(),
            task: self.0.as_ref().and_then(|stream| stream.context.task.clone()),
        };
        // Most arguments are small and contain no secrets, so they are written without a copy.
        let args = if limits::fits_json(&ready.args, MAX_FIELD_BYTES) && scrub.is_recordable(&ready.args) {
            ready.args.clone()
        } else {
            scrub.redacted(shorten_value(&ready.args, TruncateSide::KeepHead))
        };
        let event = ToolCall {
            agent_id: about.agent.clone(),
            call_id: about.call.clone(),
            tool_call_id: about.label.clone(),
            tool: about.tool.clone(),
            tool_name: about.tool.clone(),
            task_id: about.task.clone(),
            profile: ready.tool.and_then(|slot| slot.entry.spec.profile),
            params: args.clone(),
            args,
            notes: redact_notes(scrub, &ready.notes),
        };
        // A call with side effects is on record before it starts. A read-only call may be recorded together with its
        // result, before the reply leaves. A slow read-only call is recorded when it starts to wait.
        let only_looks = ready.tool.is_some_and(|slot| slot.entry.spec.effects.is_read_only());
        let recorded = self.put(event.into(), if only_looks { WritePolicy::WithNext } else { WritePolicy::Immediate });
        let failed = recorded.err().map(|error| error.to_string());
        CallRecord(Some(OpenCall {
            events: self,
            started: Instant::now(),
            common_fields: about,
            only_looks,
            denied: false,
            failed,
        }))
    }
}

impl CallRecord<'_> {
    /// The call was refused: by a rule, by the mode, or by whoever was asked. Its result says so.
    pub(crate) fn mark_denied(&mut self) {
        if let Some(open) = &mut self.0 {
            open.denied = true;
        }
    }

    /// The call takes a while: that it began is recorded now.
    pub(crate) fn flush_start(&mut self) {
        if let Some(open) = &mut self.0
            && let Err(error) = open.events.settle()
        {
            open.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// Records how the call ended. The reply has been scrubbed.
    pub(crate) fn finish(mut self, scrub: &Redactor, reply: &mut Reply) {
        let Some(mut open) = self.0.take() else { return };
        let mut result = match &reply.data {
            Some(data) if reply.format == ReplyFormat::Json => shorten_value(data, reply.truncate_side),
            _ => limits::truncate_str(&reply.text, MAX_FIELD_BYTES, reply.truncate_side).into(),
        };
        scrub.remove_canaries(&mut result);
        let mut all_notes = redact_notes(scrub, &reply.repairs);
        all_notes.extend(redact_notes(scrub, &reply.notes));
        let ended = CallEnd { result, is_error: reply.is_error, reply: Some(reply), notes: all_notes };
        let failed = open.write_result(ended);
        if let Some(error) = open.failed.take().or(failed) {
            reply.notes.push(format!("the event could not be recorded: {error}"));
        }
    }
}

/// The caller stopped waiting: nothing will be answered, and that is recorded too.
impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.write_result(CallEnd { result: "cancelled".into(), is_error: true, reply: None, notes: Vec::new() });
        }
    }
}

struct CallEnd<'a> {
    result: Value,
    is_error: bool,
    reply: Option<&'a Reply>,
    notes: Vec<String>,
}

impl OpenCall<'_> {
    /// Says what went wrong with recording, if something did.
    fn write_result(&self, ended: CallEnd<'_>) -> Option<String> {
        let CallEnd { result, is_error, reply, notes } = ended;
        let event = ToolResult {
            agent_id: self.common_fields.agent.clone(),
            call_id: self.common_fields.call.clone(),
            tool_call_id: self.common_fields.label.clone(),
            tool: self.common_fields.tool.clone(),
            tool_name: self.common_fields.tool.clone(),
            task_id: self.common_fields.task.clone(),
            denied: self.denied,
            result,
            is_error,
            duration_ms: self.started.elapsed().as_micros() as f64 / 1000.0,
            exit: reply.and_then(|it| it.exit_code),
            wall: reply.and_then(|it| it.sandbox.clone()),
            notes,
            spill: reply.and_then(|it| it.spill_file.clone()),
        };
        let when = if self.only_looks { WritePolicy::Batched } else { WritePolicy::Immediate };
        self.events.put(event.into(), when).err().map(|error| error.to_string())
    }
}

fn redact_notes(scrub: &Redactor, notes: &[String]) -> Vec<String> {
    notes.iter().map(|note| scrub.redact_text(note).into_owned()).collect()
}

fn shorten_value(value: &Value, keep: TruncateSide) -> Value {
    if limits::fits_json(value, MAX_FIELD_BYTES) {
        value.clone()
    } else {
        limits::shrink_value(value, MAX_FIELD_BYTES, keep)
    }
}
