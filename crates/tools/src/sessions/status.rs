//! `sessions_status`: the state of the current session.

use helve_contract::{Call, Effects, Reply, Result, Tool, ports::SessionRecord};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{find_visible, single_line};

/// Tells how the present conversation stands: messages, tokens, cost.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct SessionsStatusTool {}

/// The state of the current session.
#[derive(Clone, Debug)]
pub struct SessionsStatusOutput {
    /// Its id.
    pub id: String,
    /// Its record; `None` if Helve's agent loop does not run it.
    pub record: Option<SessionRecord>,
}

impl Tool for SessionsStatusTool {
    const NAME: &'static str = "sessions_status";
    const EFFECTS: Effects = Effects::READS;
    type Output = SessionsStatusOutput;

    async fn run(self, call: &Call) -> Result<SessionsStatusOutput> {
        let id = call.session.id.clone();
        Ok(SessionsStatusOutput { record: find_visible(call, &id).await?, id })
    }
}

impl From<SessionsStatusOutput> for Reply {
    /// 000's fields, with tabs between.
    fn from(SessionsStatusOutput { id, record }: SessionsStatusOutput) -> Self {
        let Some(it) = record else {
            return format!("{id}\t(its messages and costs are kept by the program that calls the tools)").into();
        };
        let text = format!(
            "{id}\t{}\tmessages={}\tprompt_tokens={}\tcompletion_tokens={}\tcost={:.6}\tupdated={}",
            single_line(&it.title),
            it.messages,
            it.spent.prompt_tokens,
            it.spent.completion_tokens,
            (it.spent.cost * 1e6).round() / 1e6,
            it.updated
        );
        Self { text, data: Some(json!(it)), ..Self::default() }
    }
}
