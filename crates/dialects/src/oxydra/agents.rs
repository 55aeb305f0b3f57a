//! Sub-agents in `oxydra`.

use helve_contract::Reply;
use helve_tools::agents;
use schemars::JsonSchema;
use serde::Deserialize;

/// Gives a goal to a named specialist agent and returns its answer. It knows only the goal and the key facts. An unknown name gets the list of names.
#[derive(Deserialize, JsonSchema)]
pub(super) struct DelegateToAgentArgs {
    agent_name: String,
    goal: String,
    /// What it must know
    key_facts: Option<Vec<String>>,
    #[schemars(range(min = 1))]
    max_turns: Option<u32>,
    /// US dollars
    max_cost: Option<f64>,
}

impl From<DelegateToAgentArgs> for agents::AgentDelegateTool {
    fn from(it: DelegateToAgentArgs) -> Self {
        Self {
            agent: it.agent_name,
            goal: it.goal,
            facts: it.key_facts.unwrap_or_default(),
            max_turns: it.max_turns,
            max_cost: it.max_cost,
            timeout: None,
        }
    }
}

pub(super) fn render_delegate(out: agents::AgentDelegateOutput) -> Reply {
    let mut reply: Reply = out.into();
    if reply.is_error {
        reply.text.insert_str(0, "Tool execution failed: ");
    }
    reply
}
