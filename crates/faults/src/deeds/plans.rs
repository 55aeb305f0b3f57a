//! Workload: schedules that are created and deleted.

use std::collections::BTreeSet;

use serde_json::json;

use super::{StepOutcome, Workload, classify, has_table, integrity_violations, open_store};
use crate::{BatchProcess, Rng, TestEnv, Violation};

/// Schedules that were acknowledged, and those of which it was acknowledged that they are gone.
#[derive(Debug, Default)]
pub struct ScheduleWorkload {
    count: u64,
    kept: BTreeSet<String>,
    gone: BTreeSet<String>,
}

impl Workload for ScheduleWorkload {
    fn name(&self) -> &'static str {
        "schedules"
    }

    fn dialect(&self) -> &'static str {
        "oxydra"
    }

    fn step(&mut self, hand: &mut BatchProcess, dice: &mut Rng) -> anyhow::Result<StepOutcome> {
        self.count += 1;
        let old = self.kept.iter().nth(dice.below(self.kept.len() as u64) as usize).cloned();
        if let Some(id) = old
            && (self.kept.len() > 30 || dice.below(3) == 0)
        {
            self.kept.remove(&id);
            let outcome = classify(hand.call("schedule_delete", json!({ "schedule_id": id }))?.as_ref());
            if outcome == StepOutcome::Acknowledged {
                self.gone.insert(id);
            }
            return Ok(outcome);
        }
        let args = json!({
            "goal": format!("look at number {}", self.count), "cadence_type": "interval", "cadence_value": "86400",
            "name": format!("plan {}", self.count),
        });
        let answer = hand.call("schedule_create", args)?;
        let outcome = classify(answer.as_ref());
        if outcome == StepOutcome::Acknowledged
            && let Some(id) = answer.as_ref().and_then(|it| it.whole["data"]["schedule_id"].as_str())
        {
            self.kept.insert(id.to_owned());
        }
        Ok(outcome)
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let Some(connection) = open_store(desk)? else { return Ok(Vec::new()) };
        let mut wrong = integrity_violations(&connection)?;
        if !has_table(&connection, "schedules")? {
            return Ok(wrong);
        }
        let found: BTreeSet<String> = connection
            .prepare("SELECT id FROM schedules WHERE goal LIKE 'look at number %' AND next IS NOT NULL")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        wrong.extend(self.kept.difference(&found).map(|id| Violation::Lost(format!("schedule {id}"))));
        wrong.extend(self.gone.intersection(&found).map(|id| Violation::Lost(format!("the end of schedule {id}"))));
        self.kept = found;
        self.gone.clear();
        Ok(wrong)
    }
}
