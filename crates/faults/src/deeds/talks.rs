//! Workload: a session with a scripted model, turn by turn.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{StepOutcome, Workload, has_table, integrity_violations, open_store};
use crate::{BatchProcess, Rng, TestEnv, Violation};

/// Completed turns of one session. A turn is acknowledged when the program reports the session's length.
#[derive(Debug, Default)]
pub struct ConversationWorkload {
    count: u64,
    session: Option<String>,
    told: BTreeSet<u64>,
}

impl Workload for ConversationWorkload {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn dialect(&self) -> &'static str {
        "solo"
    }

    fn args(&self) -> Vec<String> {
        let words = ["chat", "--dialect", "solo", "--mode", "bypassPermissions"].map(str::to_owned);
        let which = self.session.iter().flat_map(|id| ["--session".to_owned(), id.clone()]);
        words.into_iter().chain(which).collect()
    }

    fn prepare(&mut self, desk: &TestEnv) -> anyhow::Result<()> {
        if self.session.is_none()
            && let Some(connection) = open_store(desk)?
            && has_table(&connection, "messages")?
        {
            let sql = "SELECT session FROM messages WHERE parts LIKE '%say %' ORDER BY created LIMIT 1";
            self.session = connection.query_row(sql, [], |row| row.get(0)).ok();
        }
        Ok(())
    }

    fn step(&mut self, hand: &mut BatchProcess, _: &mut Rng) -> anyhow::Result<StepOutcome> {
        self.count += 1;
        // The last of these is answered in any case.
        if !hand.send_line(&format!("say {}\n/cost\n/todos\n", self.count)) {
            return Ok(StepOutcome::NoResponse);
        }
        let (answer, mut is_heard, mut is_kept, mut all) = (format!("heard {}", self.count), false, false, Vec::new());
        while let Some(line) = hand.read_line()? {
            is_heard |= line.trim() == answer;
            is_kept |= line.starts_with("this conversation: ");
            if line.starts_with("the to-do list is empty") {
                if is_heard && is_kept {
                    self.told.insert(self.count);
                    return Ok(StepOutcome::Acknowledged);
                }
                return Ok(StepOutcome::Refused(all.join("\n")));
            }
            all.push(line);
        }
        Ok(StepOutcome::NoResponse)
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        self.prepare(desk)?;
        let Some(connection) = open_store(desk)? else { return Ok(Vec::new()) };
        let mut wrong = integrity_violations(&connection)?;
        let Some(session) = &self.session else {
            wrong.extend(self.told.iter().map(|at| Violation::Lost(format!("turn {at}, with its conversation"))));
            self.told.clear();
            return Ok(wrong);
        };
        let rows: Vec<(i64, String, String)> = connection
            .prepare("SELECT seq, role, parts FROM messages WHERE session = ?1 ORDER BY seq")?
            .query_map([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let counted: i64 =
            connection.query_row("SELECT messages FROM sessions WHERE id = ?1", [session], |row| row.get(0))?;
        if counted != rows.len() as i64 || rows.iter().zip(1..).any(|(row, at)| row.0 != at) {
            wrong.push(Violation::Partial(format!("{counted} messages are counted, {} are there", rows.len())));
        }
        if let Some((seq, ..)) = rows.iter().find(|row| serde_json::from_str::<Value>(&row.2).is_err()) {
            wrong.push(Violation::Partial(format!("message {seq} is no JSON")));
        }
        for turn in &self.told {
            let at = |role: &str, words: String| {
                let words = format!("\"{words}\"");
                rows.iter().find(|row| row.1 == role && row.2.contains(&words)).map(|row| row.0)
            };
            let (asked, answered) = (at("user", format!("say {turn}")), at("assistant", format!("heard {turn}")));
            if asked.is_none() || answered.is_none() || asked > answered {
                wrong.push(Violation::Lost(format!("turn {turn}: {asked:?} and {answered:?}")));
            }
        }
        Ok(wrong)
    }
}
