//! The calls of one answer: those that only look run side by side, every other one alone, and each is answered once.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt, stream};
use helve_contract::{
    Call, Limit, Refusal, Reply, Result,
    ports::{Part, Speaker, Spent},
};

use crate::{
    Ended, Event,
    circles::{Done, Verdict},
    model::Use,
    turn::{Turn, progress},
};

/// Calls of one answer that run at most.
const MOST: usize = 64;
/// How many run side by side.
const SIDE_BY_SIDE: usize = 10;
/// The most of a result that a model is shown: a dialect may allow more than any context window holds. It is more than
/// the limit of any command.
const MAX_RESULT: Limit = Limit::chars(120_000);
/// What a call says that had not begun when the user spoke.
const SKIPPED: &str = "Skipped due to user interrupt.";

/// A call that has ended.
struct Ran {
    call: Use,
    reply: Reply,
    took: Duration,
}

impl Turn<'_> {
    /// Runs the calls of an answer, in order. Results are kept before the next call begins.
    pub(crate) async fn run_calls(&mut self, calls: Vec<Use>) -> Result<Option<Ended>> {
        self.circles.next_answer();
        let mut rest: Vec<Use> = calls;
        let mut done = 0;
        let mut stop: Option<String> = None;
        while !rest.is_empty() {
            let instead = self.instead(stop.as_deref(), done);
            let later = match &instead {
                Some(_) => Vec::new(),
                None => rest.split_off(self.together(&rest).min(MOST - done)),
            };
            let ran = match instead {
                Some(words) => self.refuse(rest, &words),
                None => self.run_group(rest).await,
            };
            done += ran.len();
            let verdict = self.keep(ran).await?;
            stop = stop.or(verdict);
            rest = later;
        }
        Ok(stop.map(Ended::Circles))
    }

    /// What the calls that are left are told instead of being run.
    fn instead(&self, stop: Option<&str>, done: usize) -> Option<String> {
        if self.cancel.is_cancelled() {
            return Some(self.agent.engine.dialect().words.cancelled.to_owned());
        }
        if self.agent.handle.has_steering() {
            return Some(SKIPPED.to_owned());
        }
        if let Some(why) = stop {
            return Some(format!("not run, because the turn ends here: {why}"));
        }
        (done >= MOST).then(|| {
            format!(
                "not run: at most {MOST} calls of one answer are. Call again in your next answer if it is still needed."
            )
        })
    }

    /// How many of the next calls run side by side.
    fn together(&self, calls: &[Use]) -> usize {
        let beside = calls.iter().take_while(|it| self.agent.engine.runs_beside_others(&it.name)).count();
        beside.max(1)
    }

    fn refuse(&self, calls: Vec<Use>, words: &str) -> Vec<Ran> {
        let refused = calls.into_iter().map(|call| {
            self.announce(&call);
            let ran = Ran { call, reply: self.agent.engine.failed(words), took: Duration::ZERO };
            self.report(&ran);
            ran
        });
        refused.collect()
    }

    async fn run_group(&mut self, calls: Vec<Use>) -> Vec<Ran> {
        self.calls += calls.len() as u32;
        let this = &*self;
        let work = calls.into_iter().map(|call| async move {
            this.announce(&call);
            let begun = Instant::now();
            let mut asked = Call::new(call.id.clone(), this.agent.session.clone());
            asked.cancel = this.cancel.clone();
            asked.progress = Some(progress(this.agent, &call.id));
            asked.max_reply = Some(MAX_RESULT);
            let reply = this.agent.engine.run(&call.name, call.input.as_str(), asked).await;
            let ran = Ran { call, reply, took: begun.elapsed() };
            this.report(&ran);
            ran
        });
        stream::iter(work).buffered(SIDE_BY_SIDE).collect().await
    }

    fn announce(&self, call: &Use) {
        self.tell(Event::Calling { id: call.id.clone(), name: call.name.clone(), input: call.input.clone() });
    }

    fn report(&self, ran: &Ran) {
        self.tell(Event::Called {
            id: ran.call.id.clone(),
            name: ran.call.name.clone(),
            reply: ran.reply.clone(),
            took: ran.took,
        });
    }

    /// Keeps results. Answers why the turn must end, if it must.
    async fn keep(&mut self, ran: Vec<Ran>) -> Result<Option<String>> {
        let mut stop = None;
        let mut parts = Vec::new();
        for Ran { call, mut reply, took } in ran {
            if reply.refusal.is_some_and(Refusal::leaves_work) {
                self.refused += 1;
            }
            let entry = self.agent.engine.get(&call.name);
            let done = Done {
                name: &call.name,
                input: &call.input,
                content: &reply.text,
                failed: reply.is_error,
                changes: entry.is_none_or(|it| !it.spec.effects.is_read_only()),
                took,
            };
            let verdict = self.circles.judge(&done);
            if let Some(notes) = reply.notes_text() {
                reply.text.push_str(&format!("\n{notes}"));
            }
            match verdict {
                Verdict::Fine => {}
                Verdict::Warn(words) => reply.text.push_str(&format!("\n\n[{words}]")),
                Verdict::Stop(words) => stop = stop.or(Some(words)),
            }
            let from = format!("{} {}", call.name, call.id);
            parts.push(Part::ToolResult {
                tool_call_id: call.id,
                name: call.name,
                content: reply.text,
                is_error: reply.is_error,
            });
            parts.extend(reply.media.into_iter().map(|it| Part::Binary {
                path: from.clone(),
                mime_type: it.mime,
                data: STANDARD.encode(it.bytes),
            }));
        }
        self.history.add(Speaker::Tool, parts, Spent::default()).await?;
        Ok(stop)
    }
}
