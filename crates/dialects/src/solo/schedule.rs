//! `cron`: jobs that send a prompt to the session later.

use helve_contract::Reply;
use helve_tools::schedule;
use schemars::JsonSchema;
use serde::Deserialize;

/// Lists, adds or removes recurring jobs. When one is due, its prompt comes to you as a user message. `add` returns the id.
#[derive(Deserialize, JsonSchema)]
pub(super) struct CronArgs {
    action: schedule::CronAction,
    /// Cron expression, five fields (add)
    schedule: Option<String>,
    /// Message to inject (add)
    prompt: Option<String>,
    /// (remove)
    id: Option<String>,
}

impl From<CronArgs> for schedule::CronTool {
    fn from(CronArgs { action, schedule, prompt, id }: CronArgs) -> Self {
        Self { action, schedule, prompt, id }
    }
}

pub(super) fn render_cron(out: schedule::CronOutput) -> Reply {
    out.into()
}
