//! Sub-agents in `claude`.

use helve_contract::{Error, Reply, Result};
use helve_tools::agents;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Gives a self-contained piece of work to another agent and returns its report. It knows nothing of this conversation. With run_in_background, go on; the reply says how you hear of its end.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct AgentArgs {
    /// 3-5 words
    description: String,
    /// The whole task, and what to report
    prompt: String,
    /// Which kind of agent
    subagent_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<ModelName>,
    /// Id of an agent to go on with
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_in_background: Option<bool>,
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_turns: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    team_name: Option<String>,
    /// Never looser than yours
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<ModeName>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ModelName {
    Sonnet,
    Opus,
    Haiku,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum ModeName {
    AcceptEdits,
    BypassPermissions,
    Default,
    Delegate,
    DontAsk,
    Plan,
}

impl TryFrom<AgentArgs> for agents::AgentStartTool {
    type Error = Error;

    fn try_from(it: AgentArgs) -> Result<Self> {
        let note = matches!(it.mode, Some(ModeName::Delegate)).then(|| {
            "The mode `delegate` needs a team of agents, which does not exist here; the mode `default` was used."
                .to_owned()
        });
        let mode = it.mode.map(|mode| match mode {
            ModeName::AcceptEdits => "acceptEdits",
            ModeName::BypassPermissions => "bypassPermissions",
            ModeName::Default | ModeName::Delegate => "default",
            ModeName::DontAsk => "dontAsk",
            ModeName::Plan => "plan",
        });
        let model = it.model.map(|model| match model {
            ModelName::Sonnet => "sonnet",
            ModelName::Opus => "opus",
            ModelName::Haiku => "haiku",
        });
        Ok(Self {
            title: it.description,
            prompt: it.prompt,
            kind: Some(it.subagent_type),
            model: model.map(str::to_owned),
            resume: it.resume,
            background: it.run_in_background.unwrap_or_default(),
            max_turns: it.max_turns,
            // One supervisor manages all teams; a name identifies a member.
            name: it.name.or(it.team_name),
            mode: mode.map(str::to_owned),
            note,
        })
    }
}

pub(super) fn render_agent(out: agents::AgentStartOutput) -> Reply {
    out.into()
}
