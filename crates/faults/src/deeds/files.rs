//! Workload: one file, written and edited in turn.

use std::fs;

use serde_json::json;

use super::{StepOutcome, Workload, classify};
use crate::{BatchProcess, CallResult, Rng, TestEnv, Violation};

/// Writes and edits of one file. Its first line tells the step, the rest which write it comes from.
#[derive(Debug, Default)]
pub struct FileWorkload {
    now: Option<(u64, u64)>,
    next: Option<(u64, u64)>,
}

const NAME: &str = "story.txt";

fn text((step, body): (u64, u64)) -> String {
    let line = format!("the text of write {body}, all of it\n");
    format!("step {step} of the story\n{}end of {body}\n", line.repeat(200 + (body % 17) as usize * 150))
}

impl Workload for FileWorkload {
    fn name(&self) -> &'static str {
        "files"
    }

    fn dialect(&self) -> &'static str {
        "solo"
    }

    fn step(&mut self, hand: &mut BatchProcess, dice: &mut Rng) -> anyhow::Result<StepOutcome> {
        let step = self.now.map_or(1, |it| it.0 + 1);
        let answer = match self.now {
            Some(now) if dice.below(2) == 0 => {
                self.next = Some((step, now.1));
                let [old, new] = [now.0, step].map(|it| format!("step {it} of the story\n"));
                hand.call("edit", json!({ "path": NAME, "old_text": old, "new_text": new }))?
            }
            _ => {
                self.next = Some((step, step));
                hand.call("write", json!({ "path": NAME, "content": text((step, step)) }))?
            }
        };
        let outcome = classify(answer.as_ref());
        match outcome {
            StepOutcome::Acknowledged => self.now = self.next.take(),
            // Refused after the rename: the new text may be there. Read it again, as a model would.
            StepOutcome::Refused(_) => self.record(hand.call("read", json!({ "path": NAME, "limit": 1 }))?),
            StepOutcome::NoResponse | StepOutcome::Finished => {}
        }
        Ok(outcome)
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let found = fs::read_to_string(desk.path("work").join(NAME)).ok();
        let fits = |state: Option<(u64, u64)>| found == state.map(text);
        if fits(self.now) {
            self.next = None;
            return Ok(Vec::new());
        }
        if self.next.is_some() && fits(self.next) {
            self.now = self.next.take();
            return Ok(Vec::new());
        }
        let head = found.as_deref().and_then(|it| it.lines().next()).unwrap_or("nothing").to_owned();
        let what = format!("{NAME} is `{head}…`, and neither {:?} nor {:?}", self.now, self.next);
        (self.now, self.next) = (None, None);
        _ = fs::remove_file(desk.path("work").join(NAME));
        Ok(vec![if found.is_none() { Violation::Lost(what) } else { Violation::Partial(what) }])
    }
}

impl FileWorkload {
    fn record(&mut self, answer: Option<CallResult>) {
        let Some((answer, next)) = answer.zip(self.next) else { return };
        if !answer.is_error && answer.text.contains(&format!("step {} of the story", next.0)) {
            self.now = self.next.take();
        }
    }
}
