//! The person at the other end: questions, the to-do list, plans, settings.

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Call, Error, Result};

/// The person at the other end, if there is one.
#[async_trait]
pub trait User: Send + Sync {
    /// Whether somebody can be asked at all.
    fn is_available(&self) -> bool {
        true
    }
    /// Whether settings can be read.
    fn has_settings(&self) -> bool {
        true
    }
    /// Puts questions, and waits for the answers: the question's text, and the label chosen or the words written
    /// (several labels joined by ", "). An error at once where nobody can answer.
    async fn ask(&self, call: &Call, questions: &[Question]) -> Result<BTreeMap<String, String>>;
    /// Shows the to-do list as it is now.
    async fn show_todos(&self, call: &Call, todos: &[Todo]);
    /// Whether the session is in plan mode, where only looking is allowed. A maker that cannot know says yes, and is asked.
    async fn is_planning(&self, _: &Call) -> bool {
        true
    }
    /// Shows a plan, and asks whether to go on with it. After a yes the session is in the mode that it had before, or
    /// in the one that accepts edits.
    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<PlanDecision>;
    /// A setting of the session that a model may see. `None`: there is none of this name.
    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>>;
    /// Changes a setting that a model may change; answers the value before. An error names those it may.
    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value>;
}

/// A question with a few answers to choose from. Free words are always possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// The whole question
    pub question: String,
    /// A label for it, at most 12 characters
    #[schemars(length(max = 12))]
    pub header: String,
    /// 2 to 4 answers to choose from; the user can always write another
    #[schemars(length(min = 2, max = 4))]
    pub options: Vec<QuestionOption>,
    /// Several may be chosen
    #[serde(default)]
    pub multi_select: bool,
}

/// An answer to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionOption {
    /// What the user sees and chooses
    pub label: String,
    /// What choosing it means
    pub description: String,
}

/// An item of the to-do list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Todo {
    /// What to do, as an order
    #[schemars(length(min = 1))]
    pub content: String,
    /// How it stands
    pub status: TodoStatus,
    /// The same while it is done: "Running tests"
    #[schemars(length(min = 1))]
    pub active_form: String,
}

/// How an item of the to-do list stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Now.
    InProgress,
    /// Done.
    Completed,
}

/// What the user says to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanDecision {
    /// Go on.
    Approved,
    /// Go on, and changes of files need no approval from now on.
    YesAcceptEdits,
    /// Not like this; what should be different.
    Rejected(String),
}

/// Nobody: answers at once that no one can be asked.
pub struct NoUser;

#[async_trait]
impl User for NoUser {
    fn is_available(&self) -> bool {
        false
    }
    fn has_settings(&self) -> bool {
        false
    }
    async fn ask(&self, _: &Call, _: &[Question]) -> Result<BTreeMap<String, String>> {
        Err(Error::failed("nobody can be asked here; decide yourself, and say in your answer what you assumed"))
    }
    async fn show_todos(&self, _: &Call, _: &[Todo]) {}
    async fn approve_plan(&self, _: &Call, _: &str) -> Result<PlanDecision> {
        Err(Error::failed("nobody can approve a plan here; end your turn with the plan as your answer"))
    }
    async fn setting(&self, _: &Call, _: &str) -> Result<Option<Value>> {
        Ok(None)
    }
    async fn set_setting(&self, _: &Call, _: &str, _: Value) -> Result<Value> {
        Err(Error::failed("no setting can be changed in this session"))
    }
}
