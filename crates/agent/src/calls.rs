//! Runs the calls of one answer: read-only ones concurrently, others alone; each gets one result.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt, stream};
use helve_contract::{
    Call, Limit, Refusal, Reply, Result,
    ports::{MessagePart, MessageRole, TokenUsage},
};

use crate::{
    AgentEvent, TurnStopReason,
    circles::{CallObservation, LoopVerdict},
    model::ToolCall,
    turn::{Turn, progress_fn},
};

/// Calls of one answer that run at most.
const MAX_CALLS_PER_RESPONSE: usize = 64;
/// How many run side by side.
const MAX_PARALLEL_CALLS: usize = 10;
/// The maximum result for a model: a dialect may allow more than a context window holds. It exceeds the limit of any
/// command.
const MAX_RESULT: Limit = Limit::chars(120_000);
/// What a call says that had not begun when the user spoke.
const SKIPPED_RESULT: &str = "Skipped due to user interrupt.";

/// A call that has ended.
struct CompletedCall {
    call: ToolCall,
    reply: Reply,
    took: Duration,
}

impl Turn<'_> {
    /// Runs the calls of an answer in order. Results are stored before the next call starts.
    pub(crate) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<Option<TurnStopReason>> {
        self.loop_detector.begin_response();
        let mut rest: Vec<ToolCall> = calls;
        let mut done = 0;
        let mut stop: Option<String> = None;
        while !rest.is_empty() {
            let instead = self.skip_reason(stop.as_deref(), done);
            let later = match &instead {
                Some(_) => Vec::new(),
                None => rest.split_off(self.parallel_group_len(&rest).min(MAX_CALLS_PER_RESPONSE - done)),
            };
            let ran = match instead {
                Some(words) => self.skip_calls(rest, &words),
                None => self.run_group(rest).await,
            };
            done += ran.len();
            let verdict = self.store_results(ran).await?;
            stop = stop.or(verdict);
            rest = later;
        }
        Ok(stop.map(TurnStopReason::LoopDetected))
    }

    /// What the calls that are left are told instead of being run.
    fn skip_reason(&self, stop: Option<&str>, done: usize) -> Option<String> {
        if self.cancel.is_cancelled() {
            return Some(self.agent.engine.dialect().templates.cancelled.to_owned());
        }
        if self.agent.handle.has_steering() {
            return Some(SKIPPED_RESULT.to_owned());
        }
        if let Some(why) = stop {
            return Some(format!("not run, because the turn ends here: {why}"));
        }
        (done >= MAX_CALLS_PER_RESPONSE).then(|| {
            format!(
                "not run: at most {MAX_CALLS_PER_RESPONSE} calls of one answer are. Call again in your next answer if it is still needed."
            )
        })
    }

    /// How many of the next calls run side by side.
    fn parallel_group_len(&self, calls: &[ToolCall]) -> usize {
        let beside = calls.iter().take_while(|it| self.agent.engine.is_parallel_safe(&it.name)).count();
        beside.max(1)
    }

    fn skip_calls(&self, calls: Vec<ToolCall>, words: &str) -> Vec<CompletedCall> {
        let refused = calls.into_iter().map(|call| {
            self.emit_call_started(&call);
            let ran = CompletedCall { call, reply: self.agent.engine.failed(words), took: Duration::ZERO };
            self.emit_call_finished(&ran);
            ran
        });
        refused.collect()
    }

    async fn run_group(&mut self, calls: Vec<ToolCall>) -> Vec<CompletedCall> {
        self.calls += calls.len() as u32;
        let this = &*self;
        let work = calls.into_iter().map(|call| async move {
            this.emit_call_started(&call);
            let begun = Instant::now();
            let mut asked = Call::new(call.id.clone(), this.agent.session.clone());
            asked.cancel = this.cancel.clone();
            asked.progress = Some(progress_fn(this.agent, &call.id));
            asked.max_reply = Some(MAX_RESULT);
            let reply = this.agent.engine.run(&call.name, call.input.as_str(), asked).await;
            let ran = CompletedCall { call, reply, took: begun.elapsed() };
            this.emit_call_finished(&ran);
            ran
        });
        stream::iter(work).buffered(MAX_PARALLEL_CALLS).collect().await
    }

    fn emit_call_started(&self, call: &ToolCall) {
        self.emit(AgentEvent::ToolCallStarted {
            id: call.id.clone(),
            name: call.name.clone(),
            input: call.input.clone(),
        });
    }

    fn emit_call_finished(&self, ran: &CompletedCall) {
        self.emit(AgentEvent::ToolCallFinished {
            id: ran.call.id.clone(),
            name: ran.call.name.clone(),
            reply: ran.reply.clone(),
            took: ran.took,
        });
    }

    /// Keeps results. Answers why the turn must end, if it must.
    async fn store_results(&mut self, ran: Vec<CompletedCall>) -> Result<Option<String>> {
        let mut stop = None;
        let mut parts = Vec::new();
        for CompletedCall { call, mut reply, took } in ran {
            if reply.refusal.is_some_and(Refusal::leaves_work) {
                self.refused += 1;
            }
            let entry = self.agent.engine.get(&call.name);
            let done = CallObservation {
                name: &call.name,
                input: &call.input,
                content: &reply.text,
                failed: reply.is_error,
                may_have_changed: entry.is_none_or(|it| !it.spec.effects.is_read_only()),
                duration: took,
            };
            let verdict = self.loop_detector.observe(&done);
            if let Some(notes) = reply.notes_text() {
                reply.text.push_str(&format!("\n{notes}"));
            }
            match verdict {
                LoopVerdict::Continue => {}
                LoopVerdict::Warn(words) => reply.text.push_str(&format!("\n\n[{words}]")),
                LoopVerdict::Stop(words) => stop = stop.or(Some(words)),
            }
            let from = format!("{} {}", call.name, call.id);
            parts.push(MessagePart::ToolResult {
                tool_call_id: call.id,
                name: call.name,
                content: reply.text,
                is_error: reply.is_error,
            });
            parts.extend(reply.media.into_iter().map(|it| MessagePart::Binary {
                path: from.clone(),
                mime_type: it.mime,
                data: STANDARD.encode(it.bytes),
            }));
        }
        self.history.add(MessageRole::Tool, parts, TokenUsage::default()).await?;
        Ok(stop)
    }
}
