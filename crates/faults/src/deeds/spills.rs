//! Whole outputs that did not fit into an answer.

use std::{fs, path::PathBuf};

use serde_json::json;

use super::{Deed, Outcome, outcome};
use crate::{Desk, Dice, Hand, Wrong};

/// Long outputs of commands, and where each of them was said to be.
#[derive(Debug, Default)]
pub struct Spills {
    told: Vec<(PathBuf, u64)>,
}

impl Deed for Spills {
    fn name(&self) -> &'static str {
        "outputs"
    }

    fn dialect(&self) -> &'static str {
        "claude"
    }

    fn act(&mut self, hand: &mut Hand, dice: &mut Dice) -> anyhow::Result<Outcome> {
        let last = 20_000 + dice.roll(20_000);
        let answer = hand.call("Bash", json!({ "command": format!("seq 1 {last}") }))?;
        if let Some(place) = answer.as_ref().and_then(|it| it.whole["spill"].as_str()) {
            self.told.push((place.into(), last));
        }
        Ok(outcome(answer.as_ref()))
    }

    fn check(&mut self, _: &Desk) -> anyhow::Result<Vec<Wrong>> {
        let mut wrong = Vec::new();
        for (place, last) in self.told.drain(..) {
            match fs::read_to_string(&place) {
                Err(error) => wrong.push(Wrong::Lost(format!("{}: {error}", place.display()))),
                // A full disk is said in the file itself.
                Ok(text) if text.contains(" bytes were not kept here]\n") => {}
                Ok(text) if text.lines().count() as u64 != last || !text.ends_with(&format!("\n{last}\n")) => {
                    wrong.push(Wrong::Partial(format!("{} ends before {last}", place.display())));
                }
                Ok(_) => {}
            }
            // They would fill a small disk by themselves.
            _ = fs::remove_file(&place);
        }
        Ok(wrong)
    }
}
