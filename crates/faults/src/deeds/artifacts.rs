//! Workload: artifacts of a planned run, written by a scripted captain.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use anyhow::bail;
use serde_json::{Value, json};

use super::{StepOutcome, Workload, branches::init_repository};
use crate::{
    BatchProcess, Rng, TestEnv, Violation,
    talk::{Shared, locked},
};

/// A spec, a task and a graph, written repeatedly; each contains the step that wrote it.
#[derive(Debug)]
pub struct ArtifactWorkload {
    round: u64,
    /// Steps of this round that were taken note of.
    seen: usize,
    orders: Shared<CaptainScript>,
    now: BTreeMap<&'static str, String>,
}

/// The captain's orders and the acknowledged results.
#[derive(Debug, Default)]
pub(crate) struct CaptainScript {
    round: u64,
    given: Vec<(&'static str, String)>,
    told: Vec<String>,
}

/// Where its artifacts are, beneath a desk.
pub(crate) const PLAN_DIR: &str = "work/.forge/artifacts/plan-1";

/// Orders of a round.
const STEPS_PER_ROUND: usize = 12;

impl ArtifactWorkload {
    /// With the script's book of orders.
    pub(crate) fn new(orders: Shared<CaptainScript>) -> Self {
        Self { round: 0, seen: 0, orders, now: BTreeMap::new() }
    }
}

impl CaptainScript {
    /// The captain's next call after these messages: the tool and its arguments, or none.
    pub(crate) fn next(&mut self, round: u64, told: &[String]) -> Option<(&'static str, Value)> {
        if round != self.round {
            (self.round, self.given, self.told) = (round, Vec::new(), Vec::new());
        }
        self.told.extend(told.iter().skip(self.told.len()).cloned());
        let at = self.told.len();
        if at >= STEPS_PER_ROUND {
            return None;
        }
        let mark = format!("mark-{round}-{at}");
        let body = "A line that stays.\n".repeat(200);
        let (file, tool, args) = match at % 3 {
            0 => (
                "specs/spec.md",
                "create_spec",
                json!({ "filename": "spec.md", "content": format!("# {mark}\n{body}") }),
            ),
            1 => {
                let front = format!(
                    "---\nid: task-001\ntitle: {mark}\ntype: 2\ndependencies: []\nacceptance_criteria:\n  - it is \
                     there\nestimated_complexity: small\n---\n"
                );
                let content = format!("{front}## Description\n{body}## Context\ny\n## Instructions\nz\n");
                ("tasks/task-001.md", "create_task", json!({ "taskId": "task-001", "content": content }))
            }
            _ => {
                let node = json!({ "id": mark, "type": "task", "agentType": 1, "dependencies": [] });
                ("dag.json", "set_dag", json!({ "dag": { "nodes": [node] } }))
            }
        };
        // The same request may come twice, after a lost answer.
        self.given.truncate(at);
        self.given.push((file, mark));
        Some((tool, args))
    }
}

/// The mark in a file that is whole.
fn step_marker(file: &str, text: &str) -> Option<String> {
    let found = match file {
        "dag.json" => serde_json::from_str::<Value>(text).ok()?["nodes"][0]["id"].as_str()?.to_owned(),
        "specs/spec.md" => text.lines().next()?.strip_prefix("# ")?.to_owned(),
        _ => text.lines().find_map(|it| it.strip_prefix("title: "))?.to_owned(),
    };
    let whole = file == "dag.json" || text.lines().filter(|it| *it == "A line that stays.").count() == 200;
    whole.then_some(found)
}

impl Workload for ArtifactWorkload {
    fn name(&self) -> &'static str {
        "artifacts"
    }

    fn dialect(&self) -> &'static str {
        "forge"
    }

    fn args(&self) -> Vec<String> {
        ["forge", "plan", "--run", "plan-1"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("round {}", self.round)])
            .collect()
    }

    fn prepare(&mut self, desk: &TestEnv) -> anyhow::Result<()> {
        init_repository(desk)?;
        self.round += 1;
        self.seen = 0;
        Ok(())
    }

    fn step(&mut self, hand: &mut BatchProcess, _: &mut Rng) -> anyhow::Result<StepOutcome> {
        if self.seen >= STEPS_PER_ROUND {
            return Ok(StepOutcome::Finished);
        }
        for _ in 0..12_000 {
            // In this order: everything read before the exit is known after it.
            let gone = hand.has_exited();
            let orders = locked(&self.orders);
            if orders.round == self.round
                && let Some(told) = orders.told.get(self.seen)
                && let Some((file, mark)) = orders.given.get(self.seen)
            {
                self.seen += 1;
                let answer: Value = serde_json::from_str(told).unwrap_or_default();
                if answer.get("path").is_none() {
                    return Ok(StepOutcome::Refused(told.clone()));
                }
                self.now.insert(file, mark.clone());
                return Ok(StepOutcome::Acknowledged);
            }
            drop(orders);
            if gone {
                return Ok(StepOutcome::NoResponse);
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("the captain does not come to its end")
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let folder = desk.path(PLAN_DIR);
        let mut wrong = Vec::new();
        for file in ["specs/spec.md", "tasks/task-001.md", "dag.json"] {
            let orders = locked(&self.orders);
            let last = self.now.get(file).cloned();
            // Orders after the last acknowledged one may be present as well.
            let since = orders.given.iter().rposition(|(_, mark)| Some(mark) == last.as_ref()).map_or(0, |at| at + 1);
            let open: Vec<&String> =
                orders.given.iter().skip(since).filter(|(name, _)| *name == file).map(|(_, mark)| mark).collect();
            let text = match fs::read_to_string(folder.join(file)) {
                Ok(text) => text,
                Err(_) if last.is_none() => continue,
                Err(error) => {
                    wrong.push(Violation::Lost(format!("{file}: {error}")));
                    continue;
                }
            };
            match step_marker(file, &text) {
                None => wrong.push(Violation::Partial(format!("{file} says `{text:.60}…`"))),
                Some(mark) if Some(&mark) == last.as_ref() || open.contains(&&mark) => _ = self.now.insert(file, mark),
                Some(mark) => {
                    wrong.push(Violation::Lost(format!("{file} says {mark}, and neither {last:?} nor {open:?}")));
                    self.now.insert(file, mark);
                }
            }
        }
        Ok(wrong)
    }
}
