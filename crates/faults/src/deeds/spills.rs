//! Workload: spill files of truncated output.

use std::{fs, path::PathBuf};

use serde_json::json;

use super::{StepOutcome, Workload, classify};
use crate::{BatchProcess, Rng, TestEnv, Violation};

/// Long outputs of commands, and where each of them was said to be.
#[derive(Debug, Default)]
pub struct SpillWorkload {
    told: Vec<(PathBuf, u64)>,
}

impl Workload for SpillWorkload {
    fn name(&self) -> &'static str {
        "outputs"
    }

    fn dialect(&self) -> &'static str {
        "claude"
    }

    fn step(&mut self, hand: &mut BatchProcess, dice: &mut Rng) -> anyhow::Result<StepOutcome> {
        let last = 20_000 + dice.below(20_000);
        let answer = hand.call("Bash", json!({ "command": format!("seq 1 {last}") }))?;
        if let Some(place) = answer.as_ref().and_then(|it| it.whole["spill"].as_str()) {
            self.told.push((place.into(), last));
        }
        Ok(classify(answer.as_ref()))
    }

    fn verify(&mut self, _: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let mut wrong = Vec::new();
        for (place, last) in self.told.drain(..) {
            match fs::read_to_string(&place) {
                Err(error) => wrong.push(Violation::Lost(format!("{}: {error}", place.display()))),
                // A full disk is said in the file itself.
                Ok(text) if text.contains(" bytes were not kept here]\n") => {}
                Ok(text) if text.lines().count() as u64 != last || !text.ends_with(&format!("\n{last}\n")) => {
                    wrong.push(Violation::Partial(format!("{} ends before {last}", place.display())));
                }
                Ok(_) => {}
            }
            // They would fill a small disk by themselves.
            _ = fs::remove_file(&place);
        }
        Ok(wrong)
    }
}
