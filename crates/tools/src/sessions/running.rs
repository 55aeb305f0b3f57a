//! `subagents`: the agents that this session started and that still work.

use helve_contract::{Call, Effects, Reply, Result, Tool, jiff::Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::single_line;

/// Lists the agents that this session started and that still work.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct SubagentsTool {}

/// Agents at work: id, title, and since when.
#[derive(Clone, Debug)]
pub struct SubagentsOutput(
    /// One each.
    pub Vec<(String, String, Timestamp)>,
);

impl Tool for SubagentsTool {
    const NAME: &'static str = "subagents";
    const EFFECTS: Effects = Effects::READS;
    type Output = SubagentsOutput;

    async fn run(self, call: &Call) -> Result<SubagentsOutput> {
        let (now, running) = (call.now(), call.agents().running(call).await);
        let since = |ran| now.checked_sub(ran).unwrap_or(now);
        Ok(SubagentsOutput(running.into_iter().map(|it| (it.id, it.title, since(it.elapsed))).collect()))
    }
}

impl From<SubagentsOutput> for Reply {
    /// 000's lines: `id`, `title`, `started=…`, with tabs between.
    fn from(SubagentsOutput(running): SubagentsOutput) -> Self {
        if running.is_empty() {
            return "No active sub-agents".into();
        }
        let lines: Vec<_> =
            running.iter().map(|(id, title, since)| format!("{id}\t{}\tstarted={since}", single_line(title))).collect();
        let data = running.iter().map(|(id, title, since)| json!({ "id": id, "title": title, "started_at": since }));
        Self { text: lines.join("\n"), data: Some(data.collect::<Value>()), ..Self::default() }
    }
}
