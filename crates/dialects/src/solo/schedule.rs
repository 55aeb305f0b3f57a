//! `cron`: jobs that speak to the conversation later.

use helve_contract::Reply;
use helve_tools::schedule;
use schemars::JsonSchema;
use serde::Deserialize;

/// Lists, adds or removes recurring jobs. When one is due, its prompt comes to you as a user message. `add` returns the id.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Cron {
    action: schedule::Action,
    /// Cron expression, five fields (add)
    schedule: Option<String>,
    /// Message to inject (add)
    prompt: Option<String>,
    /// (remove)
    id: Option<String>,
}

impl From<Cron> for schedule::Crontab {
    fn from(Cron { action, schedule, prompt, id }: Cron) -> Self {
        Self { action, schedule, prompt, id }
    }
}

pub(super) fn cron(out: schedule::CrontabOut) -> Reply {
    out.into()
}
