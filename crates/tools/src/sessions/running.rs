//! `subagents`: the agents that this session started and that still work.

use helve_contract::{Call, Effects, Reply, Result, Tool, jiff::Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::field;

/// Lists the agents that this session started and that still work.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Running {}

/// Agents at work: id, title, and since when.
#[derive(Clone, Debug)]
pub struct RunningOut(
    /// One each.
    pub Vec<(String, String, Timestamp)>,
);

impl Tool for Running {
    const NAME: &'static str = "subagents";
    const EFFECTS: Effects = Effects::READS;
    type Output = RunningOut;

    async fn run(self, call: &Call) -> Result<RunningOut> {
        let (now, running) = (call.now(), call.agents().running(call).await);
        let since = |ran| now.checked_sub(ran).unwrap_or(now);
        Ok(RunningOut(running.into_iter().map(|it| (it.id, it.title, since(it.ran))).collect()))
    }
}

impl From<RunningOut> for Reply {
    /// 000's lines: `id`, `title`, `started=…`, with tabs between.
    fn from(RunningOut(running): RunningOut) -> Self {
        if running.is_empty() {
            return "No active sub-agents".into();
        }
        let lines: Vec<_> =
            running.iter().map(|(id, title, since)| format!("{id}\t{}\tstarted={since}", field(title))).collect();
        let data = running.iter().map(|(id, title, since)| json!({ "id": id, "title": title, "started_at": since }));
        Self { text: lines.join("\n"), data: Some(data.collect::<Value>()), ..Self::default() }
    }
}
