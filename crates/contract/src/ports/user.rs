//! The `User` port: questions, the to-do list, plans and settings.

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Call, Error, Result};

/// The user of a session, if there is one.
#[async_trait]
pub trait User: Send + Sync {
    /// Whether a user can answer questions.
    fn is_available(&self) -> bool {
        true
    }
    /// Whether settings can be read.
    fn has_settings(&self) -> bool {
        true
    }
    /// Asks questions and waits for the answers. Maps each question's text to the chosen label or the entered text
    /// (several labels joined by ", "). Returns an error at once if nobody can answer.
    async fn ask(&self, call: &Call, questions: &[Question]) -> Result<BTreeMap<String, String>>;
    /// Shows the current to-do list.
    async fn show_todos(&self, call: &Call, todos: &[Todo]);
    /// Whether the session is in plan mode, which allows only reading. Implementations that cannot know return true.
    async fn is_planning(&self, _: &Call) -> bool {
        true
    }
    /// Shows a plan and asks for approval. After an approval the session returns to its previous mode, or changes to
    /// the mode that accepts edits.
    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<PlanDecision>;
    /// A session setting that a model may read. `None` if the name is unknown.
    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>>;
    /// Changes a setting that a model may change, and returns the old value. The error lists the allowed settings.
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

/// The user's decision about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanDecision {
    /// The plan is approved.
    Approved,
    /// The plan is approved, and file changes need no approval from now on.
    YesAcceptEdits,
    /// The plan is rejected, with this feedback.
    Rejected(String),
}

/// No user: every question fails at once.
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
