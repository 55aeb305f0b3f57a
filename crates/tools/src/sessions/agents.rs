//! `agents_list`: the current agent.

use helve_contract::{Call, Effects, Reply, Result, Tool, ports::CurrentAgent};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Tells which agent speaks here, with which model, and whether it is at work.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct AgentsListTool {}

/// The current agent.
#[derive(Clone, Debug)]
pub struct AgentsListOutput(
    /// Its description.
    pub CurrentAgent,
);

impl Tool for AgentsListTool {
    const NAME: &'static str = "agents_list";
    const EFFECTS: Effects = Effects::READS;
    type Output = AgentsListOutput;

    async fn run(self, call: &Call) -> Result<AgentsListOutput> {
        Ok(AgentsListOutput(call.agents().current(call).await?))
    }
}

impl From<AgentsListOutput> for Reply {
    /// 000's line: `name=main model=… status=active`.
    fn from(AgentsListOutput(CurrentAgent { name, model, activity }): AgentsListOutput) -> Self {
        let (status, model) = (activity.name(), model.as_deref().unwrap_or("unknown"));
        let text = format!("name={name} model={model} status={status}");
        Self { text, data: Some(json!([{ "name": name, "model": model, "status": status }])), ..Self::default() }
    }
}
