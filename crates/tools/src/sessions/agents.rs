//! `agents_list`: the agent that speaks here.

use helve_contract::{Call, Effects, Reply, Result, Tool, ports::OwnAgent};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Tells which agent speaks here, with which model, and whether it is at work.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Agents {}

/// The agent that speaks here.
#[derive(Clone, Debug)]
pub struct AgentsOut(
    /// What is known of it.
    pub OwnAgent,
);

impl Tool for Agents {
    const NAME: &'static str = "agents_list";
    const EFFECTS: Effects = Effects::READS;
    type Output = AgentsOut;

    async fn run(self, call: &Call) -> Result<AgentsOut> {
        Ok(AgentsOut(call.agents().own(call).await?))
    }
}

impl From<AgentsOut> for Reply {
    /// 000's line: `name=main model=… status=active`.
    fn from(AgentsOut(OwnAgent { name, model, is_working }): AgentsOut) -> Self {
        let status = match is_working {
            Some(true) => "active",
            Some(false) => "idle",
            None => "unknown",
        };
        let text = format!("name={name} model={model} status={status}");
        Self { text, data: Some(json!([{ "name": name, "model": model, "status": status }])), ..Self::default() }
    }
}
