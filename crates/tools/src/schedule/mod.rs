//! Schedules: tasks that run without a user.

pub mod cadence;
mod create;
mod cron;
mod crontab;
mod delete;
mod edit;
mod runs;
mod search;
#[cfg(test)]
mod testing;

pub use cadence::CadenceType;
pub use create::ScheduleCreateTool;
pub use cron::CronExpression;
pub use crontab::{CronAction, CronOutput, CronTool};
pub use delete::{ScheduleDeleteOutput, ScheduleDeleteTool};
pub use edit::{ScheduleEditTool, ScheduleSwitch};
pub use runs::{ScheduleRunOutputPage, ScheduleRunOutputTool, ScheduleRunsOutput, ScheduleRunsTool};
pub use search::{ScheduleSearchOutput, ScheduleSearchTool};

use helve_contract::{
    Call, Error, Reply, Result,
    jiff::Timestamp,
    ports::{Schedule, ScheduleFilter},
};
use serde_json::{Value, json};

/// The longest goal, in characters.
const MAX_GOAL_CHARS: usize = 8_000;
/// The longest name, in characters.
const MAX_NAME_CHARS: usize = 200;
/// How much of a goal is shown.
const GOAL_PREVIEW_CHARS: usize = 500;

/// The prefix of session ids for scheduled runs without their own session.
pub const RUN_PREFIX: &str = "scheduled:";

/// A schedule as the model sees it.
pub struct ScheduleOutput {
    /// The schedule.
    pub schedule: Schedule,
    /// A note for the caller.
    pub note: Option<&'static str>,
}

impl From<ScheduleOutput> for Reply {
    fn from(ScheduleOutput { schedule, note }: ScheduleOutput) -> Self {
        let mut data = to_json(&schedule);
        if let Some(note) = note {
            data["note"] = note.into();
        }
        Self::json(data)
    }
}

/// The note for a process that runs no schedules.
fn undriven(call: &Call) -> Option<&'static str> {
    (!call.session.schedule_rules.is_driven).then_some(
        "This process runs no schedules. It runs while `helve serve`, `helve chat` or `helve schedule drive` is \
         running; tell the user to start one of them.",
    )
}

/// A schedule as data.
pub fn to_json(schedule: &Schedule) -> Value {
    let mut data = json!({
        "schedule_id": schedule.id,
        "name": schedule.name,
        "goal": truncate(&schedule.goal, GOAL_PREVIEW_CHARS),
        "cadence": schedule.cadence,
        "notification_policy": schedule.notification,
        "status": schedule.status,
        "created_at": time(schedule.created),
        "updated_at": time(schedule.updated),
        "next_run_at": schedule.next.map(time),
        "next_run_local": schedule.next.and_then(|it| cadence::local_time(&schedule.cadence, it)),
        "last_run_at": schedule.last_run.map(time),
        "last_run_status": schedule.last_status,
        "consecutive_failures": schedule.failures,
        "skipped": schedule.skipped,
    });
    if let Some(data) = data.as_object_mut() {
        let untold = |key: &String, value: &Value| match key.as_str() {
            "next_run_local" => value.is_null(),
            "skipped" => value == 0,
            _ => false,
        };
        data.retain(|key, value| !untold(key, value));
    }
    data
}

/// A time as it is shown.
fn time(time: Timestamp) -> String {
    cadence::truncate_to_seconds(time).to_string()
}

/// The beginning of a text.
fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The owner of the schedules. Never taken from the arguments.
fn user(call: &Call) -> Result<&str> {
    let user = call.session.user.as_str();
    if user.is_empty() { Err(Error::failed("user context is not available")) } else { Ok(user) }
}

/// A schedule of the caller. Those of others look as if they did not exist.
async fn find_owned(call: &Call, id: &str) -> Result<Schedule> {
    let user = user(call)?;
    match call.store().schedule(id).await? {
        Some(schedule) if schedule.user == user => Ok(schedule),
        _ => {
            let id = truncate(id, 64);
            Err(Error::failed(format!("schedule {id} does not belong to you, or does not exist; search for yours")))
        }
    }
}

/// Refuses one schedule too many.
async fn check_quota(call: &Call) -> Result<()> {
    let which = ScheduleFilter { user: Some(user(call)?.to_owned()), ..ScheduleFilter::default() };
    let (_, there) = call.store().schedules(&which).await?;
    let most = call.session.schedule_rules.max_per_user;
    if there >= most {
        return Err(Error::failed(format!(
            "there are {there} schedules already, and {most} is the most; delete one first"
        )));
    }
    Ok(())
}

/// A goal that can be kept.
fn check_goal(text: &str) -> Result<String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::failed("the task is empty; write it as a complete instruction"));
    }
    let length = text.chars().count();
    if length > MAX_GOAL_CHARS {
        return Err(Error::failed(format!("the task has {length} characters; {MAX_GOAL_CHARS} is the most")));
    }
    Ok(text.to_owned())
}

/// A name that can be kept; an empty one is none.
fn check_name(text: &str) -> Result<Option<String>> {
    let text = text.trim();
    let length = text.chars().count();
    if length > MAX_NAME_CHARS {
        return Err(Error::failed(format!("the name has {length} characters; {MAX_NAME_CHARS} is the most")));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{
        CronTool, ScheduleCreateTool, ScheduleDeleteTool, ScheduleEditTool, ScheduleRunOutputTool, ScheduleRunsTool,
        ScheduleSearchTool, testing::ScheduleFixture,
    };

    /// Like memory, schedules belong to a user: without one every tool refuses.
    #[tokio::test]
    async fn a_session_without_a_user_has_no_schedules() {
        let desk = ScheduleFixture::new().of("");
        let replies = [
            desk.call::<ScheduleCreateTool>(r#"{"goal": "g", "cadence_type": "interval", "cadence_value": "60"}"#)
                .await,
            desk.call::<ScheduleSearchTool>("{}").await,
            desk.call::<ScheduleEditTool>(r#"{"id": "x", "name": "n"}"#).await,
            desk.call::<ScheduleDeleteTool>(r#"{"id": "x"}"#).await,
            desk.call::<ScheduleRunsTool>(r#"{"id": "x"}"#).await,
            desk.call::<ScheduleRunOutputTool>(r#"{"run": "x"}"#).await,
            desk.call::<CronTool>(r#"{"action": "list"}"#).await,
            desk.call::<CronTool>(r#"{"action": "remove", "id": "x"}"#).await,
        ];
        for reply in replies {
            assert!(reply.is_error && reply.text.contains("user context is not available"), "{}", reply.text);
        }
    }
}
