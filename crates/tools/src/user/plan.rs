//! `user_exit_plan`: shows the plan, and ends plan mode if the user approves it.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Reply, Result, Tool,
    ports::{Part, Speaker, Verdict},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// How many messages are looked through for the plan.
const LOOKED_AT: usize = 20;
/// How many rules and commands are shown and approved with a plan.
const MAX_LISTED: usize = 20;

/// Shows the plan to the user. If he approves it, plan mode ends and the work can begin.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct ExitPlan {
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
pub struct PlanJudged {
    /// The plan.
    pub plan: String,
    /// What the user said.
    pub verdict: Verdict,
    /// Whether an agent and not the main conversation asks.
    pub by_agent: bool,
}

impl Tool for ExitPlan {
    const NAME: &'static str = "user_exit_plan";
    const EFFECTS: Effects = Effects::BLOCKS;
    const NEEDS: PortSet = PortSet::of(&[Port::User]);
    const TIMEOUT: Duration = Duration::MAX;
    type Output = PlanJudged;

    async fn run(self, call: &Call) -> Result<PlanJudged> {
        if !call.user().planning(call).await {
            return Err(Error::failed(
                "this session is not in plan mode, so there is nothing to approve; begin the work",
            ));
        }
        let plan = match self.plan.filter(|plan| !plan.trim().is_empty()) {
            Some(plan) => plan,
            None => last_words(call).await?.ok_or_else(|| {
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
        if !matches!(verdict, Verdict::No(_)) {
            call.session.set_plan_rules(rules);
        }
        Ok(PlanJudged { plan, verdict, by_agent: call.session.agent != "main" })
    }
}

/// The last words that the model said in this conversation.
async fn last_words(call: &Call) -> Result<Option<String>> {
    let messages = call.store().messages(&call.session.id, None, LOOKED_AT).await?;
    let said = messages.iter().rev().filter(|message| message.role == Speaker::Assistant).map(|message| {
        let texts = message.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.trim()),
            _ => None,
        });
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
    });
    Ok(said.into_iter().find(|text| !text.is_empty()))
}

impl From<PlanJudged> for Reply {
    fn from(PlanJudged { plan, verdict, by_agent }: PlanJudged) -> Self {
        let edits = if verdict == Verdict::YesAcceptEdits { " Changes of files need no approval." } else { "" };
        match verdict {
            Verdict::Yes | Verdict::YesAcceptEdits => Self {
                text: format!("The user approved the plan, and plan mode has ended. Begin the work.{edits}"),
                data: Some(json!({ "plan": plan, "isAgent": by_agent })),
                ..Self::default()
            },
            Verdict::No(wish) => {
                let wish = match wish.trim() {
                    "" => "The user did not approve the plan; ask what should be different.".to_owned(),
                    wish => format!("The user did not approve the plan: {wish}"),
                };
                Self::failed(format!("{wish}\nPlan mode stays on: look, change the plan, and show it again."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Tool, ports::Verdict};

    use super::ExitPlan;
    use crate::user::testing::{Person, call};

    async fn ask(person: Person, plan: Option<&str>) -> String {
        let tool = ExitPlan { plan: plan.map(str::to_owned), ..ExitPlan::default() };
        let reply: Reply = tool.run(&call(person)).await.map_or_else(Into::into, Into::into);
        format!("{}{}", if reply.is_error { "error: " } else { "" }, reply.text)
    }

    #[tokio::test]
    async fn the_user_says_yes_or_what_to_change() {
        let planning = |verdict| Person { planning: true, verdict, ..Person::default() };
        assert_eq!(
            ask(planning(Verdict::Yes), Some("1. Look")).await,
            "The user approved the plan, and plan mode has ended. Begin the work."
        );
        assert_eq!(
            ask(planning(Verdict::No("tests first".into())), Some("1. Look")).await,
            "error: The user did not approve the plan: tests first\n\
             Plan mode stays on: look, change the plan, and show it again."
        );
        assert_eq!(
            ask(planning(Verdict::Yes), Some(" ")).await,
            "error: there is no plan yet; write it down in your message, and call this together with it"
        );
        assert_eq!(
            ask(Person::default(), Some("1. Look")).await,
            "error: this session is not in plan mode, so there is nothing to approve; begin the work"
        );
    }
}
