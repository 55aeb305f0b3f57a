//! `schedule_edit`: changes, pauses or resumes a schedule.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool,
    jiff::Timestamp,
    ports::{Cadence, Notification, Schedule, ScheduleRules, ScheduleStatus},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{CadenceType, ScheduleOutput, cadence};

/// How often a change is retried when a run changes the schedule concurrently.
const MAX_RETRIES: usize = 20;

/// Changes the given parts of a schedule. The answer is the schedule as it is now.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct ScheduleEditTool {
    /// Which schedule.
    pub id: String,
    /// A short name.
    #[serde(default)]
    pub name: Option<String>,
    /// What to do.
    #[serde(default)]
    pub goal: Option<String>,
    /// The kind of time.
    #[serde(default)]
    pub cadence_type: Option<CadenceType>,
    /// The time.
    #[serde(default)]
    pub cadence_value: Option<String>,
    /// IANA name of the zone.
    #[serde(default)]
    pub timezone: Option<String>,
    /// Who hears of it.
    #[serde(default)]
    pub notification: Option<Notification>,
    /// Stop it, or go on with it.
    #[serde(default)]
    pub status: Option<ScheduleSwitch>,
}

/// Whether a schedule runs, as its owner decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleSwitch {
    /// It runs when due.
    Active,
    /// It does not.
    Paused,
}

impl Tool for ScheduleEditTool {
    const NAME: &'static str = "schedule_edit";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScheduleOutput;

    async fn run(self, call: &Call) -> Result<ScheduleOutput> {
        for _ in 0..MAX_RETRIES {
            let old = super::find_owned(call, &self.id).await?;
            let new = self.apply(&old, &call.session.schedule_rules, call.now())?;
            if call.store().update_schedule(&new, old.updated).await? {
                return Ok(ScheduleOutput { schedule: super::find_owned(call, &self.id).await?, note: None });
            }
        }
        Err(Error::failed("the schedule changes all the time; try again in a moment"))
    }
}

impl ScheduleEditTool {
    /// The schedule with the changes.
    fn apply(&self, old: &Schedule, rules: &ScheduleRules, now: Timestamp) -> Result<Schedule> {
        if self.is_empty() {
            return Err(Error::failed(
                "nothing to change was given; give a name, a task, a time, a notification or a status",
            ));
        }
        let mut new = Schedule { updated: now, ..old.clone() };
        if let Some(name) = &self.name {
            new.name = super::check_name(name)?;
        }
        if let Some(goal) = &self.goal {
            new.goal = super::check_goal(goal)?;
        }
        new.notification = self.notification.unwrap_or(old.notification);
        let cadence = self.cadence(old, rules)?;
        let timed = cadence.is_some();
        if let Some(cadence) = cadence {
            new.cadence = cadence;
        }
        new.status = match (self.status, old.status) {
            (Some(ScheduleSwitch::Active), _) => ScheduleStatus::Active,
            (Some(ScheduleSwitch::Paused), _) => ScheduleStatus::Paused,
            // A one-off with a new time becomes active again.
            (None, ScheduleStatus::Completed | ScheduleStatus::Failed) if timed => ScheduleStatus::Active,
            (None, status) => status,
        };
        let resumed = new.status == ScheduleStatus::Active && old.status != ScheduleStatus::Active;
        if resumed {
            new.failures = 0;
        }
        if timed || resumed {
            // A wrong time is refused also while it is paused.
            let first = cadence::first_run(&new.cadence, rules, now)?;
            new.next = Some(first);
        }
        if new.status != ScheduleStatus::Active {
            new.next = None;
        }
        Ok(new)
    }

    fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.goal.is_none()
            && self.cadence_type.is_none()
            && self.cadence_value.is_none()
            && self.timezone.is_none()
            && self.notification.is_none()
            && self.status.is_none()
    }

    fn cadence(&self, old: &Schedule, rules: &ScheduleRules) -> Result<Option<Cadence>> {
        match (self.cadence_type, &self.cadence_value, &self.timezone, &old.cadence) {
            (None, None, None, _) => Ok(None),
            (Some(kind), Some(value), zone, old) => {
                // A new expression without a zone stays in the zone of the old one.
                let before = if let Cadence::Cron { timezone, .. } = old { Some(timezone.as_str()) } else { None };
                cadence::parse(kind, value, zone.as_deref().or(before), rules).map(Some)
            }
            (None, None, Some(zone), Cadence::Cron { expression, .. }) => {
                cadence::parse(CadenceType::Cron, expression, Some(zone), rules).map(Some)
            }
            (None, None, Some(_), _) => {
                Err(Error::failed("only a schedule by cron has a time zone; give its kind and time with it"))
            }
            _ => Err(Error::failed("the kind of time and the time belong together; give both or neither")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::schedule::{ScheduleCreateTool, testing::ScheduleFixture};

    async fn edit(desk: &ScheduleFixture, id: &str, more: &str) -> Result<Value, String> {
        let reply = desk.call::<ScheduleEditTool>(&format!(r#"{{"id": "{id}"{more}}}"#)).await;
        if reply.is_error { Err(reply.text) } else { Ok(reply.data.unwrap_or_default()) }
    }

    async fn made(desk: &ScheduleFixture, kind: &str, value: &str) -> String {
        let args = format!(r#"{{"goal": "g", "cadence_type": "{kind}", "cadence_value": "{value}"}}"#);
        desk.call::<ScheduleCreateTool>(&args).await.data.unwrap()["schedule_id"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn pauses_and_goes_on() {
        let desk = ScheduleFixture::new();
        let id = made(&desk, "cron", "0 12 * * *").await;
        let data = edit(&desk, &id, r#", "status": "paused", "name": "noon""#).await.unwrap();
        assert_eq!((&data["status"], &data["next_run_at"]), (&"paused".into(), &Value::Null));
        let data = edit(&desk, &id, r#", "timezone": "Asia/Tokyo""#).await.unwrap();
        assert_eq!((&data["status"], &data["next_run_at"]), (&"paused".into(), &Value::Null));
        let data = edit(&desk, &id, r#", "status": "active""#).await.unwrap();
        assert_eq!((&data["status"], &data["next_run_at"]), (&"active".into(), &"2026-01-06T03:00:00Z".into()));
        assert_eq!(data["name"], "noon");
    }

    #[tokio::test]
    async fn says_what_cannot_be() {
        let desk = ScheduleFixture::new();
        let id = made(&desk, "interval", "600").await;
        for (more, want) in [
            ("", "nothing to change was given"),
            (r#", "cadence_type": "cron""#, "the kind of time and the time belong together"),
            (r#", "timezone": "UTC""#, "only a schedule by cron has a time zone"),
            (r#", "cadence_type": "interval", "cadence_value": "5""#, "every 5 seconds is too often"),
            (r#", "goal": "  ""#, "the task is empty"),
        ] {
            let said = edit(&desk, &id, more).await.unwrap_err();
            assert!(said.starts_with(want), "{said}");
        }
        let foreign = edit(&desk.of("somebody else"), &id, r#", "name": "x""#).await.unwrap_err();
        let missing = edit(&desk, "nothing", r#", "name": "x""#).await.unwrap_err();
        assert_eq!(foreign, format!("schedule {id} does not belong to you, or does not exist; search for yours"));
        assert_eq!(missing, foreign.replace(&id, "nothing"));
    }
}
