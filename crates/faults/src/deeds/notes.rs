//! Workload: notes that are saved, changed and deleted.

use std::collections::BTreeMap;

use serde_json::json;

use super::{StepOutcome, Workload, classify, has_table, integrity_violations, open_store};
use crate::{BatchProcess, Rng, TestEnv, Violation};

/// Notes, each with the text that was acknowledged last.
#[derive(Debug, Default)]
pub struct NoteWorkload {
    count: u64,
    kept: BTreeMap<String, String>,
    /// The step in progress: an id, if any, and the new text; none for a deletion.
    open: Option<(Option<String>, Option<String>)>,
}

impl Workload for NoteWorkload {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn dialect(&self) -> &'static str {
        "oxydra"
    }

    fn step(&mut self, hand: &mut BatchProcess, dice: &mut Rng) -> anyhow::Result<StepOutcome> {
        self.count += 1;
        let text = format!("note {} {}", self.count, "of words ".repeat(dice.below(400) as usize)).trim().to_owned();
        let old = self.kept.keys().nth(dice.below(self.kept.len() as u64) as usize).cloned();
        let (open, answer) = match (dice.below(4), old) {
            (0, Some(id)) => {
                let answer = hand.call("memory_delete", json!({ "note_id": id }))?;
                ((Some(id), None), answer)
            }
            (1 | 2, Some(id)) => {
                let answer = hand.call("memory_update", json!({ "note_id": id, "content": text }))?;
                ((Some(id), Some(text)), answer)
            }
            _ => {
                let answer = hand.call("memory_save", json!({ "content": text }))?;
                let id = answer.as_ref().and_then(|it| it.whole["data"]["note_id"].as_str()).map(str::to_owned);
                ((id, Some(text)), answer)
            }
        };
        let outcome = classify(answer.as_ref());
        match (&outcome, open) {
            (StepOutcome::Acknowledged, (Some(id), Some(text))) => _ = self.kept.insert(id, text),
            (StepOutcome::Acknowledged, (Some(id), None)) => _ = self.kept.remove(&id),
            // The step in progress has an unknown result, and is left alone until the next verification.
            (_, open) => {
                if let Some(id) = &open.0 {
                    self.kept.remove(id);
                }
                self.open = Some(open);
            }
        }
        Ok(outcome)
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let Some(connection) = open_store(desk)? else { return Ok(Vec::new()) };
        let mut wrong = integrity_violations(&connection)?;
        if !has_table(&connection, "notes")? {
            return Ok(wrong);
        }
        let found: BTreeMap<String, String> = connection
            .prepare("SELECT id, text FROM notes")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (id, text) in &self.kept {
            match found.get(id) {
                Some(there) if there == text => {}
                Some(_) => wrong.push(Violation::Lost(format!("the change of {id} to `{text:.12}…`"))),
                None => wrong.push(Violation::Lost(format!("{id} `{text:.12}…`"))),
            }
        }
        let torn = |text: &str| !text.starts_with("note ") || text.chars().count() > 20 && !text.ends_with("words");
        wrong.extend(
            found.values().filter(|it| torn(it)).map(|it| Violation::Partial(format!("a note says `{it:.40}`"))),
        );
        let lone: i64 = connection.query_row(
            "SELECT count(*) FROM notes WHERE text <> '' AND id NOT IN (SELECT source FROM passages)",
            [],
            |row| row.get(0),
        )?;
        if lone > 0 {
            wrong.push(Violation::Partial(format!("{lone} notes are in no index")));
        }
        self.kept = found;
        self.open = None;
        Ok(wrong)
    }
}
