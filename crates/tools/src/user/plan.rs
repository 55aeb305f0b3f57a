//! `user_exit_plan`: shows the plan, and ends plan mode if the user approves it.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Reply, Result, Tool,
    ports::{MessagePart, MessageRole, PlanDecision},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// How many messages are looked through for the plan.
const MAX_MESSAGES: usize = 20;
/// How many rules and commands are shown and approved with a plan.
const MAX_LISTED: usize = 20;

/// Shows the plan to the user. If he approves it, plan mode ends and the work can begin.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct UserExitPlanTool {
    /// The plan; without it, the last words of the model.
    #[serde(default)]
    pub plan: Option<String>,
    /// Command rules, such as `Bash(cargo test:*)`. With the user's yes they hold until the work of the plan ends.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Other commands that it will need, in words. The user sees them with the plan; each is still asked when it runs.
    #[serde(default)]
    pub commands: Vec<String>,
}

/// What the user said to the plan.
#[derive(Clone, Debug)]
pub struct UserExitPlanOutput {
    /// The plan.
    pub plan: String,
    /// What the user said.
    pub verdict: PlanDecision,
    /// Whether a sub-agent asks, not the main session.
    pub by_agent: bool,
}

impl Tool for UserExitPlanTool {
    const NAME: &'static str = "user_exit_plan";
    const EFFECTS: Effects = Effects::BLOCKS;
    const NEEDS: PortSet = PortSet::of(&[Port::User]);
    const TIMEOUT: Duration = Duration::MAX;
    type Output = UserExitPlanOutput;

    async fn run(self, call: &Call) -> Result<UserExitPlanOutput> {
        if !call.user().is_planning(call).await {
            return Err(Error::failed(
                "this session is not in plan mode, so there is nothing to approve; begin the work",
            ));
        }
        let plan = match self.plan.filter(|plan| !plan.trim().is_empty()) {
            Some(plan) => plan,
            None => last_assistant_text(call).await?.ok_or_else(|| {
                Error::failed("there is no plan yet; write it down in your message, and call this together with it")
            })?,
        };
        let mut shown = plan.clone();
        let rules: Vec<String> = self.rules.into_iter().take(MAX_LISTED).collect();
        if !rules.is_empty() {
            let listed = rules.join("\n- ");
            shown.push_str(&format!("\n\nAllowed without asking while the plan is carried out:\n- {listed}"));
        }
        if !self.commands.is_empty() {
            let commands: Vec<&str> = self.commands.iter().take(MAX_LISTED).map(String::as_str).collect();
            shown.push_str(&format!("\n\nIt will also ask for:\n- {}", commands.join("\n- ")));
        }
        let verdict = super::unless_cancelled(call, call.user().approve_plan(call, &shown)).await?;
        if !matches!(verdict, PlanDecision::Rejected(_)) {
            call.session.set_plan_rules(rules);
        }
        Ok(UserExitPlanOutput { plan, verdict, by_agent: call.session.agent != "main" })
    }
}

/// The last text of the model in this session.
async fn last_assistant_text(call: &Call) -> Result<Option<String>> {
    let messages = call.store().messages(&call.session.id, None, MAX_MESSAGES).await?;
    let said = messages.iter().rev().filter(|message| message.role == MessageRole::Assistant).map(|message| {
        let texts = message.parts.iter().filter_map(|part| match part {
            MessagePart::Text { text } => Some(text.trim()),
            _ => None,
        });
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
    });
    Ok(said.into_iter().find(|text| !text.is_empty()))
}

impl From<UserExitPlanOutput> for Reply {
    fn from(UserExitPlanOutput { plan, verdict, by_agent }: UserExitPlanOutput) -> Self {
        let edits = if verdict == PlanDecision::YesAcceptEdits { " Changes of files need no approval." } else { "" };
        match verdict {
            PlanDecision::Approved | PlanDecision::YesAcceptEdits => Self {
                text: format!("The user approved the plan, and plan mode has ended. Begin the work.{edits}"),
                data: Some(json!({ "plan": plan, "isAgent": by_agent })),
                ..Self::default()
            },
            PlanDecision::Rejected(wish) => {
                let wish = match wish.trim() {
                    "" => "The user did not approve the plan; ask what should be different.".to_owned(),
                    wish => format!("The user did not approve the plan: {wish}"),
                };
                Self::error(format!("{wish}\nPlan mode stays on: look, change the plan, and show it again."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Tool, ports::PlanDecision};

    use super::UserExitPlanTool;
    use crate::user::testing::{FakeUser, call};

    async fn ask(person: FakeUser, plan: Option<&str>) -> String {
        let tool = UserExitPlanTool { plan: plan.map(str::to_owned), ..UserExitPlanTool::default() };
        let reply: Reply = tool.run(&call(person)).await.map_or_else(Into::into, Into::into);
        format!("{}{}", if reply.is_error { "error: " } else { "" }, reply.text)
    }

    #[tokio::test]
    async fn the_user_says_yes_or_what_to_change() {
        let planning = |verdict| FakeUser { planning: true, verdict, ..FakeUser::default() };
        assert_eq!(
            ask(planning(PlanDecision::Approved), Some("1. Look")).await,
            "The user approved the plan, and plan mode has ended. Begin the work."
        );
        assert_eq!(
            ask(planning(PlanDecision::Rejected("tests first".into())), Some("1. Look")).await,
            "error: The user did not approve the plan: tests first\n\
             Plan mode stays on: look, change the plan, and show it again."
        );
        assert_eq!(
            ask(planning(PlanDecision::Approved), Some(" ")).await,
            "error: there is no plan yet; write it down in your message, and call this together with it"
        );
        assert_eq!(
            ask(FakeUser::default(), Some("1. Look")).await,
            "error: this session is not in plan mode, so there is nothing to approve; begin the work"
        );
    }
}
