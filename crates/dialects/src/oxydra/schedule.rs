//! `schedule_*`: six tools for scheduled prompts.

use helve_contract::{
    Reply,
    ports::{Notification, ScheduleStatus},
};
use helve_tools::schedule::{self, CadenceType};
use schemars::JsonSchema;
use serde::Deserialize;

/// Schedules a task: once, by cron or at an interval. Returns its `schedule_id` and `next_run_at`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleCreateArgs {
    /// Complete, self-contained instructions: the task runs without this conversation
    goal: String,
    cadence_type: CadenceType,
    /// cron: five fields ("0 9 * * 1-5"); once: RFC 3339 time; interval: seconds
    cadence_value: String,
    name: Option<String>,
    /// IANA name, for cron
    timezone: Option<String>,
    /// Whether the user hears the result: always (default), only if the task finds it worth it, never
    notification: Option<Notification>,
}

/// Finds your schedules, newest first.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleSearchArgs {
    /// Part of the name
    name: Option<String>,
    status: Option<ScheduleStatus>,
    cadence_type: Option<CadenceType>,
    notification: Option<Notification>,
    /// 20 by default, 50 at most
    limit: Option<u64>,
    offset: Option<u64>,
}

/// Changes a schedule: only what is given. Pause and resume it with `status`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleEditArgs {
    schedule_id: String,
    name: Option<String>,
    goal: Option<String>,
    /// Together with cadence_value
    cadence_type: Option<CadenceType>,
    cadence_value: Option<String>,
    timezone: Option<String>,
    notification: Option<Notification>,
    status: Option<schedule::ScheduleSwitch>,
}

/// Deletes a schedule and its history.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleDeleteArgs {
    schedule_id: String,
}

/// Lists the last runs of a schedule: times, status, summary.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleRunsArgs {
    schedule_id: String,
    /// 5 by default
    #[schemars(range(min = 1, max = 20))]
    limit: Option<u64>,
}

/// Reads the full output of a run in pieces; `remaining` says how many characters follow.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleRunOutputArgs {
    run_id: String,
    /// In characters
    offset: Option<u64>,
    /// 200 to 8000, 4000 by default
    max_chars: Option<u64>,
}

impl From<ScheduleCreateArgs> for schedule::ScheduleCreateTool {
    fn from(
        ScheduleCreateArgs { goal, cadence_type, cadence_value, name, timezone, notification }: ScheduleCreateArgs,
    ) -> Self {
        Self { goal, cadence_type, cadence_value, name, timezone, notification: notification.unwrap_or_default() }
    }
}

impl From<ScheduleSearchArgs> for schedule::ScheduleSearchTool {
    fn from(
        ScheduleSearchArgs { name, status, cadence_type, notification, limit, offset }: ScheduleSearchArgs,
    ) -> Self {
        Self { name, status, cadence_type, notification, limit, offset: offset.unwrap_or_default() }
    }
}

impl From<ScheduleEditArgs> for schedule::ScheduleEditTool {
    fn from(args: ScheduleEditArgs) -> Self {
        let ScheduleEditArgs { schedule_id, name, goal, cadence_type, cadence_value, timezone, notification, status } =
            args;
        Self { id: schedule_id, name, goal, cadence_type, cadence_value, timezone, notification, status }
    }
}

impl From<ScheduleDeleteArgs> for schedule::ScheduleDeleteTool {
    fn from(ScheduleDeleteArgs { schedule_id }: ScheduleDeleteArgs) -> Self {
        Self { id: schedule_id }
    }
}

impl From<ScheduleRunsArgs> for schedule::ScheduleRunsTool {
    fn from(ScheduleRunsArgs { schedule_id, limit }: ScheduleRunsArgs) -> Self {
        Self { id: schedule_id, limit }
    }
}

impl From<ScheduleRunOutputArgs> for schedule::ScheduleRunOutputTool {
    fn from(ScheduleRunOutputArgs { run_id, offset, max_chars }: ScheduleRunOutputArgs) -> Self {
        Self { run: run_id, offset: offset.unwrap_or_default(), max_chars }
    }
}

/// The tool's own answer.
pub(super) fn render_plain<T: Into<Reply>>(out: T) -> Reply {
    out.into()
}
