//! `schedule_create`: a new schedule.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ids,
    ports::{Cadence, MissedRunPolicy, Notification, Schedule, ScheduleStatus},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{CadenceType, RUN_PREFIX, ScheduleOutput, cadence};

/// Does a task later, or again and again. The answer has the id and the next time it runs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ScheduleCreateTool {
    /// What to do, as a complete instruction: it runs without this conversation.
    pub goal: String,
    /// The kind of time.
    pub cadence_type: CadenceType,
    /// The time.
    pub cadence_value: String,
    /// A short name.
    #[serde(default)]
    pub name: Option<String>,
    /// IANA name of the zone.
    #[serde(default)]
    pub timezone: Option<String>,
    /// Who hears of it.
    #[serde(default)]
    pub notification: Notification,
}

impl Tool for ScheduleCreateTool {
    const NAME: &'static str = "schedule_create";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScheduleOutput;

    async fn run(self, call: &Call) -> Result<ScheduleOutput> {
        let goal = super::check_goal(&self.goal)?;
        let name = super::check_name(self.name.as_deref().unwrap_or_default())?;
        let rules = &call.session.schedule_rules;
        let cadence = cadence::parse(self.cadence_type, &self.cadence_value, self.timezone.as_deref(), rules)?;
        let schedule = Schedule { name, notification: self.notification, ..new_schedule(call, goal, cadence).await? };
        super::check_quota(call).await?;
        let schedule = call.store().add_schedule(&schedule).await?;
        Ok(ScheduleOutput { note: super::undriven(call), schedule })
    }
}

/// A new schedule of the caller, with a session of its own.
pub(super) async fn new_schedule(call: &Call, goal: String, cadence: Cadence) -> Result<Schedule> {
    let (session, now) = (&call.session, call.now());
    let next = cadence::first_run(&cadence, &session.schedule_rules, now)?;
    let soonest = session.schedule_rules.min_interval;
    // A scheduled task that reschedules itself a moment later would never end.
    if session.name().starts_with(RUN_PREFIX) && next.duration_since(now).unsigned_abs() < soonest {
        return Err(Error::failed(format!(
            "a task that a schedule runs can make schedules that are due in {} s or later; choose a later time",
            soonest.as_secs()
        )));
    }
    // A schedule that a scheduled task creates belongs to the session of its parent schedule.
    let running = match session.name().strip_prefix(RUN_PREFIX) {
        Some(id) => call.store().schedule(id).await?,
        None => None,
    };
    let (origin, channel) = match running {
        Some(running) => (running.origin, running.channel),
        None => (Some(session.id.clone()), session.schedule_rules.channel.clone()),
    };
    Ok(Schedule {
        id: ids::new_id(),
        user: super::user(call)?.to_owned(),
        name: None,
        goal,
        next: Some(next),
        cadence,
        notification: Notification::Always,
        status: ScheduleStatus::Active,
        session: None,
        origin,
        channel,
        workspace: session.workspace.roots().first().map(|root| root.dir.display().to_string()),
        dialect: session.schedule_rules.dialect.clone(),
        missed: MissedRunPolicy::Once,
        created: now,
        updated: now,
        last_run: None,
        last_status: None,
        failures: 0,
        skipped: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::{NOW, ScheduleFixture};

    #[tokio::test]
    async fn tells_the_id_and_the_next_time() {
        let desk = ScheduleFixture::new();
        let reply = desk
            .call::<ScheduleCreateTool>(
                r#"{"goal": " Sum up the news. ", "cadence_type": "cron", "cadence_value": "30 9 * * mon-fri",
                    "timezone": "Europe/Berlin", "name": "news"}"#,
            )
            .await;
        let data = reply.data.unwrap();
        assert_eq!(data["schedule_id"].as_str().unwrap().len(), 36);
        assert_eq!(data["goal"], "Sum up the news.");
        assert_eq!(data["next_run_at"], "2026-01-06T08:30:00Z");
        assert_eq!(data["next_run_local"], "2026-01-06T09:30:00+01:00");
        assert_eq!(data["notification_policy"], "always");
        assert_eq!(data["created_at"], NOW);
    }

    #[tokio::test]
    async fn a_process_that_runs_no_schedules_says_so() {
        let desk = ScheduleFixture::new();
        let one = r#"{"goal": "g", "cadence_type": "interval", "cadence_value": "60"}"#;
        assert_eq!(desk.call::<ScheduleCreateTool>(one).await.data.unwrap().get("note"), None);
        let note =
            desk.undriven().call::<ScheduleCreateTool>(one).await.data.unwrap()["note"].as_str().unwrap().to_owned();
        assert!(note.contains("runs no schedules") && note.contains("`helve schedule drive`"), "{note}");
        let cron = r#"{"action": "add", "schedule": "0 9 * * *", "prompt": "p"}"#;
        let data = desk.undriven().call::<crate::schedule::CronTool>(cron).await.data.unwrap();
        assert_eq!(data["note"], note);
    }

    #[tokio::test]
    async fn a_schedule_knows_where_it_came_from_and_so_do_those_that_its_runs_make() {
        let desk = ScheduleFixture::new();
        let one = r#"{"goal": "g", "cadence_type": "interval", "cadence_value": "60"}"#;
        let id = desk.call::<ScheduleCreateTool>(one).await.data.unwrap()["schedule_id"].as_str().unwrap().to_owned();
        let origin = async |id: &str| desk.schedule(id).await.origin;
        assert_eq!(origin(&id).await.as_deref(), Some("session-1"));
        let run = desk.in_session(&format!("{RUN_PREFIX}{id}"));
        let made = run.call::<ScheduleCreateTool>(one).await.data.unwrap()["schedule_id"].as_str().unwrap().to_owned();
        assert_eq!(origin(&made).await.as_deref(), Some("session-1"));
        let soon = r#"{"goal": "g", "cadence_type": "once", "cadence_value": "2026-01-05T09:00:30Z"}"#;
        assert_eq!(
            run.call::<ScheduleCreateTool>(soon).await.text,
            "a task that a schedule runs can make schedules that are due in 60 s or later; choose a later time"
        );
        assert!(!desk.call::<ScheduleCreateTool>(soon).await.is_error);
    }

    #[tokio::test]
    async fn fifty_are_enough() {
        let desk = ScheduleFixture::new();
        let one = r#"{"goal": "g", "cadence_type": "interval", "cadence_value": "60"}"#;
        for _ in 0..50 {
            assert!(!desk.call::<ScheduleCreateTool>(one).await.is_error);
        }
        assert_eq!(
            desk.call::<ScheduleCreateTool>(one).await.text,
            "there are 50 schedules already, and 50 is the most; delete one first"
        );
        assert!(!desk.of("somebody else").call::<ScheduleCreateTool>(one).await.is_error);
    }
}
