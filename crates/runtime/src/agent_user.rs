//! The user port of sub-agents.

use std::{collections::BTreeMap, sync::Arc};

use helve_contract::{
    Call, Error, Result, async_trait,
    ports::{PlanDecision, Question, Todo, User},
};
use serde_json::Value;

/// The user of the parent session, without plan approvals: approving a plan ends the plan mode of the parent session,
/// which the user sees.
pub(crate) struct AgentUser(pub(crate) Arc<dyn User>);

#[async_trait]
impl User for AgentUser {
    fn is_available(&self) -> bool {
        self.0.is_available()
    }
    fn has_settings(&self) -> bool {
        self.0.has_settings()
    }
    async fn ask(&self, call: &Call, questions: &[Question]) -> Result<BTreeMap<String, String>> {
        self.0.ask(call, questions).await
    }
    async fn show_todos(&self, call: &Call, todos: &[Todo]) {
        self.0.show_todos(call, todos).await;
    }
    /// The refusal of [`approve_plan`](User::approve_plan) says what to do in either case.
    async fn is_planning(&self, _: &Call) -> bool {
        true
    }
    async fn approve_plan(&self, _: &Call, _: &str) -> Result<PlanDecision> {
        Err(Error::denied(
            "a sub-agent cannot end plan mode: only the main session can. End your turn with the plan as your answer",
        ))
    }
    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>> {
        self.0.setting(call, name).await
    }
    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value> {
        self.0.set_setting(call, name, value).await
    }
}
