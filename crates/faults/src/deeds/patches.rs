//! Workload: several files, changed together by patches.

use std::fs;

use serde_json::json;

use super::{StepOutcome, Workload, classify};
use crate::{BatchProcess, Rng, TestEnv, Violation};

/// Three files that always tell the same number, and a fourth that comes and goes.
#[derive(Debug, Default)]
pub struct PatchWorkload {
    now: u64,
    next: Option<u64>,
}

const NAMES: [&str; 3] = ["one.txt", "sub/two.txt", "three.txt"];

fn text(number: u64) -> String {
    format!("number {number}\n{}", "a line that stays\n".repeat(300))
}

fn transient_file(number: u64) -> String {
    format!("passing-{number}.txt")
}

/// The patch from one number to the next.
fn patch(now: u64) -> String {
    let new = now + 1;
    let mut lines = String::from("*** Begin Patch\n");
    for name in NAMES {
        if now == 0 {
            let body: String = text(1).lines().fold(String::new(), |all, line| all + "+" + line + "\n");
            lines += &format!("*** Add File: {name}\n{body}");
        } else {
            lines += &format!("*** Update File: {name}\n@@\n-number {now}\n+number {new}\n a line that stays\n");
        }
    }
    lines += &format!("*** Add File: {}\n+{new}\n", transient_file(new));
    if now > 0 {
        lines += &format!("*** Delete File: {}\n", transient_file(now));
    }
    lines + "*** End Patch\n"
}

impl Workload for PatchWorkload {
    fn name(&self) -> &'static str {
        "patches"
    }

    fn dialect(&self) -> &'static str {
        "solo"
    }

    fn step(&mut self, hand: &mut BatchProcess, _: &mut Rng) -> anyhow::Result<StepOutcome> {
        self.next = Some(self.now + 1);
        let outcome = classify(hand.call("apply_patch", json!({ "patch": patch(self.now) }))?.as_ref());
        if outcome == StepOutcome::Acknowledged {
            (self.now, self.next) = (self.now + 1, None);
        }
        Ok(outcome)
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let work = desk.path("work");
        let stands = |number: u64| {
            let whole = NAMES.iter().all(|name| {
                let found = fs::read_to_string(work.join(name)).ok();
                found == (number > 0).then(|| text(number))
            });
            let near = [number.wrapping_sub(1), number, number + 1];
            whole && near.iter().all(|it| work.join(transient_file(*it)).exists() == (*it == number && number > 0))
        };
        if stands(self.now) {
            self.next = None;
            return Ok(Vec::new());
        }
        if let Some(next) = self.next.take()
            && stands(next)
        {
            self.now = next;
            return Ok(Vec::new());
        }
        let heads: Vec<String> = NAMES
            .iter()
            .map(|name| {
                fs::read_to_string(work.join(name)).unwrap_or_default().lines().next().unwrap_or("-").to_owned()
            })
            .collect();
        let what = format!("after {} the files say {heads:?}", self.now);
        for name in fs::read_dir(&work)?.flatten().map(|it| it.file_name()) {
            if name.to_string_lossy().starts_with("passing-") {
                _ = fs::remove_file(work.join(name));
            }
        }
        for name in NAMES {
            _ = fs::remove_file(work.join(name));
        }
        self.now = 0;
        Ok(vec![Violation::Partial(what)])
    }
}
