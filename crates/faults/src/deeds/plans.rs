//! Schedules: made and deleted.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Deed, Outcome, has_table, outcome, store, unsound};
use crate::{Desk, Dice, Hand, Wrong};

/// Schedules that were acknowledged, and those of which it was acknowledged that they are gone.
#[derive(Debug, Default)]
pub struct Plans {
    count: u64,
    kept: BTreeSet<String>,
    gone: BTreeSet<String>,
}

impl Deed for Plans {
    fn name(&self) -> &'static str {
        "schedules"
    }

    fn dialect(&self) -> &'static str {
        "oxydra"
    }

    fn act(&mut self, hand: &mut Hand, dice: &mut Dice) -> anyhow::Result<Outcome> {
        self.count += 1;
        let old = self.kept.iter().nth(dice.roll(self.kept.len() as u64) as usize).cloned();
        if let Some(id) = old
            && (self.kept.len() > 30 || dice.roll(3) == 0)
        {
            self.kept.remove(&id);
            let outcome = outcome(hand.call("schedule_delete", json!({ "schedule_id": id }))?.as_ref());
            if outcome == Outcome::Acknowledged {
                self.gone.insert(id);
            }
            return Ok(outcome);
        }
        let args = json!({
            "goal": format!("look at number {}", self.count), "cadence_type": "interval", "cadence_value": "86400",
            "name": format!("plan {}", self.count),
        });
        let answer = hand.call("schedule_create", args)?;
        let outcome = outcome(answer.as_ref());
        if outcome == Outcome::Acknowledged
            && let Some(id) = answer.as_ref().and_then(|it| it.whole["data"]["schedule_id"].as_str())
        {
            self.kept.insert(id.to_owned());
        }
        Ok(outcome)
    }

    fn check(&mut self, desk: &Desk) -> anyhow::Result<Vec<Wrong>> {
        let Some(connection) = store(desk)? else { return Ok(Vec::new()) };
        let mut wrong = unsound(&connection)?;
        if !has_table(&connection, "schedules")? {
            return Ok(wrong);
        }
        let found: BTreeSet<String> = connection
            .prepare("SELECT id FROM schedules WHERE goal LIKE 'look at number %' AND next IS NOT NULL")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        wrong.extend(self.kept.difference(&found).map(|id| Wrong::Lost(format!("schedule {id}"))));
        wrong.extend(self.gone.intersection(&found).map(|id| Wrong::Lost(format!("the end of schedule {id}"))));
        self.kept = found;
        self.gone.clear();
        Ok(wrong)
    }
}
