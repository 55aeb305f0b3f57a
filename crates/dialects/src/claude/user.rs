//! Questions, plans and settings of the user in `claude`.

use std::collections::BTreeMap;

use helve_contract::{
    Reply,
    ports::{Question, Todo},
};
use helve_engine::Rule;
use helve_tools::user;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// In plan mode: shows the plan in your message to the user, and ends plan mode if it is approved.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct ExitPlanModeArgs {
    /// The plan, if your message does not say it
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    /// Commands that it will need: a rule such as Bash(cargo test:*) is approved with the plan, other text is only shown
    #[serde(rename = "allowedPrompts")]
    #[schemars(rename = "allowedPrompts")]
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<Vec<AllowedPrompt>>,
    /// This and the next three come from clients that move a plan to another machine. They have no effect here.
    #[serde(rename = "pushToRemote", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    push_to_remote: Option<bool>,
    #[serde(rename = "remoteSessionId", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    remote_session_id: Option<String>,
    #[serde(rename = "remoteSessionUrl", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    remote_session_url: Option<String>,
    #[serde(rename = "remoteSessionTitle", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    remote_session_title: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct AllowedPrompt {
    tool: OnlyBash,
    prompt: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
enum OnlyBash {
    Bash,
}

/// Replaces the to-do list that the user sees. Use it for work of three steps or more; keep one item in_progress.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct TodoWriteArgs {
    todos: Vec<Todo>,
}

/// Asks the user 1-4 questions and waits for the answers.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct AskUserQuestionArgs {
    #[schemars(length(min = 1, max = 4))]
    questions: Vec<Question>,
    /// Answers known already, by question
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<BTreeMap<String, String>>,
}

/// Reads a setting of this session, or sets it to value.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct ConfigArgs {
    /// Such as "model" or "theme"
    setting: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Scalar>,
}

/// A text, a number, or true or false.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Scalar {
    Flag(bool),
    Number(serde_json::Number),
    Text(String),
}

impl From<ExitPlanModeArgs> for user::UserExitPlanTool {
    fn from(ExitPlanModeArgs { plan, allowed, .. }: ExitPlanModeArgs) -> Self {
        let (mut rules, mut commands) = (Vec::new(), Vec::new());
        for AllowedPrompt { tool: OnlyBash::Bash, prompt } in allowed.unwrap_or_default() {
            match command_rule(&prompt) {
                Some(rule) => rules.push(rule),
                None => commands.push(prompt),
            }
        }
        Self { plan, rules, commands }
    }
}

/// The rule of an entry in `allowedPrompts`: `Bash(cargo test:*)`, `npm run *`, `cargo test`. A description such as
/// "run the tests" gives no rule, nor does a rule that allows every command.
fn command_rule(prompt: &str) -> Option<String> {
    let prompt = prompt.trim();
    let (content, is_written_as_rule) = match prompt.strip_prefix("Bash(") {
        Some(rest) => (rest.strip_suffix(')')?, true),
        None => (prompt, prompt.ends_with(":*") || prompt.ends_with(" *")),
    };
    let rule = Rule::parse(&format!("Bash({})", content.trim())).ok()?;
    let is_rule = if is_written_as_rule { rule.names_a_command() } else { rule.names_a_known_command() };
    is_rule.then(|| rule.source().to_owned())
}

pub(super) fn render_exit_plan(out: user::UserExitPlanOutput) -> Reply {
    out.into()
}

impl From<TodoWriteArgs> for user::UserTodosTool {
    fn from(TodoWriteArgs { todos }: TodoWriteArgs) -> Self {
        Self { todos }
    }
}

pub(super) fn render_todos(out: user::UserTodosOutput) -> Reply {
    out.into()
}

impl From<AskUserQuestionArgs> for user::UserAskTool {
    fn from(AskUserQuestionArgs { questions, answers }: AskUserQuestionArgs) -> Self {
        Self { questions, answers: answers.unwrap_or_default() }
    }
}

pub(super) fn render_answers(out: user::UserAskOutput) -> Reply {
    out.into()
}

impl From<ConfigArgs> for user::UserSettingTool {
    fn from(ConfigArgs { setting, value }: ConfigArgs) -> Self {
        let value = value.map(|value| match value {
            Scalar::Flag(flag) => Value::Bool(flag),
            Scalar::Number(number) => Value::Number(number),
            Scalar::Text(text) => Value::String(text),
        });
        Self { name: setting, value }
    }
}

pub(super) fn render_config(out: user::UserSettingOutput) -> Reply {
    out.into()
}

#[cfg(test)]
mod tests {
    use super::command_rule;

    #[test]
    fn only_a_rule_for_named_commands_is_a_rule() {
        for (prompt, rule) in [
            ("Bash(cargo test:*)", Some("Bash(cargo test:*)")),
            (" Bash( git status ) ", Some("Bash(git status)")),
            ("cargo test:*", Some("Bash(cargo test:*)")),
            ("npm run *", Some("Bash(npm run *)")),
            ("cargo test -p store", Some("Bash(cargo test -p store)")),
            ("run the tests", None),
            ("install dependencies", None),
            ("Bash", None),
            ("Bash(*)", None),
            (":*", None),
            ("Bash(:*)", None),
            ("Bash(cargo test && rm -r /)", None),
            ("Bash(cargo test", None),
            ("FileWrite(src/**)", None),
        ] {
            assert_eq!(command_rule(prompt).as_deref(), rule, "{prompt}");
        }
    }
}
