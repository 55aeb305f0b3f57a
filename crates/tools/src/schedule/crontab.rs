//! `cron`: lists, adds and removes the agent's jobs. A job sends messages to the session that created it.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Reply, Result, Tool,
    ports::{Cadence, Schedule, ScheduleFilter},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CadenceType, cadence, create};

/// Lists, adds or removes jobs. When a job is due, its prompt comes to this conversation as a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct CronTool {
    /// What to do.
    pub action: CronAction,
    /// A cron expression, to add.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The message, to add.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The job, to remove.
    #[serde(default)]
    pub id: Option<String>,
}

/// What to do with jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CronAction {
    /// Show all.
    List,
    /// Make one.
    Add,
    /// Remove one.
    Remove,
}

/// The result.
#[derive(Clone, Debug)]
pub enum CronOutput {
    /// The jobs there are.
    Jobs(Vec<Schedule>),
    /// A new one.
    Added {
        /// Its id.
        id: String,
        /// What the caller must know about it.
        note: Option<&'static str>,
    },
    /// A removed job, if it existed.
    Removed {
        /// Its id.
        id: String,
        /// Whether it was there.
        there: bool,
    },
}

impl Tool for CronTool {
    const NAME: &'static str = "cron";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = CronOutput;

    async fn run(self, call: &Call) -> Result<CronOutput> {
        match self.action {
            CronAction::List => list(call).await,
            CronAction::Add => {
                let expression = require(self.schedule, "schedule", "an expression such as `0 9 * * mon-fri`")?;
                let prompt = require(self.prompt, "prompt", "the message to send when it is due")?;
                add(call, &expression, &prompt).await
            }
            CronAction::Remove => {
                let id = require(self.id, "id", "as the list shows it")?;
                let user = super::user(call)?;
                let own = call.store().schedule(&id).await?.is_some_and(|it| it.user == user);
                let there = own && call.store().remove_schedule(&id).await?;
                Ok(CronOutput::Removed { id, there })
            }
        }
    }
}

fn require(value: Option<String>, name: &str, wanted: &str) -> Result<String> {
    value
        .filter(|it| !it.trim().is_empty())
        .ok_or_else(|| Error::invalid_argument(name, format!("needed here: {wanted}")))
}

async fn list(call: &Call) -> Result<CronOutput> {
    let which = ScheduleFilter {
        user: Some(super::user(call)?.to_owned()),
        cadence: Some("cron".into()),
        limit: call.session.schedule_rules.max_per_user.max(50),
        ..ScheduleFilter::default()
    };
    let (mut jobs, _) = call.store().schedules(&which).await?;
    jobs.reverse();
    Ok(CronOutput::Jobs(jobs))
}

async fn add(call: &Call, expression: &str, prompt: &str) -> Result<CronOutput> {
    let goal = super::check_goal(prompt)?;
    let cadence = cadence::parse(CadenceType::Cron, expression, None, &call.session.schedule_rules)?;
    let schedule =
        Schedule { session: Some(call.session.id.clone()), ..create::new_schedule(call, goal, cadence).await? };
    super::check_quota(call).await?;
    call.store().add_schedule(&schedule).await?;
    Ok(CronOutput::Added { id: schedule.id, note: super::undriven(call) })
}

impl From<CronOutput> for Reply {
    fn from(out: CronOutput) -> Self {
        match out {
            CronOutput::Jobs(jobs) => Self::json(jobs.iter().map(job).collect()),
            CronOutput::Added { id, note: None } => Self::json(json!({ "id": id })),
            CronOutput::Added { id, note: Some(note) } => Self::json(json!({ "id": id, "note": note })),
            CronOutput::Removed { id, there: true } => Self { text: format!("removed {id}"), ..Self::default() },
            CronOutput::Removed { id, there: false } => {
                Self { text: format!("there is no job {}", super::truncate(&id, 64)), ..Self::default() }
            }
        }
    }
}

fn job(job: &Schedule) -> Value {
    let expression = if let Cadence::Cron { expression, .. } = &job.cadence { expression.as_str() } else { "" };
    json!({
        "id": job.id,
        "expression": expression,
        "prompt": super::truncate(&job.goal, super::GOAL_PREVIEW_CHARS),
        "next_run": job.next.map(super::time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::ScheduleFixture;

    #[tokio::test]
    async fn a_job_comes_and_goes() {
        let desk = ScheduleFixture::new();
        let args = r#"{"action": "add", "schedule": "*/5 * * * *", "prompt": "look at the mail"}"#;
        let id = desk.call::<CronTool>(args).await.data.unwrap()["id"].as_str().unwrap().to_owned();
        assert_eq!(
            desk.call::<CronTool>(r#"{"action": "list"}"#).await.text,
            format!(
                r#"[{{"id":"{id}","expression":"*/5 * * * *","prompt":"look at the mail","next_run":"2026-01-05T09:05:00Z"}}]"#
            )
        );
        let remove = format!(r#"{{"action": "remove", "id": "{id}"}}"#);
        let foreign = desk.of("somebody else").call::<CronTool>(&remove).await;
        assert_eq!((foreign.is_error, foreign.text), (false, format!("there is no job {id}")));
        assert_eq!(desk.call::<CronTool>(&remove).await.text, format!("removed {id}"));
        assert_eq!(desk.call::<CronTool>(&remove).await.text, format!("there is no job {id}"));
        assert_eq!(desk.call::<CronTool>(r#"{"action": "list"}"#).await.text, "[]");
    }

    #[tokio::test]
    async fn says_what_is_missing() {
        let desk = ScheduleFixture::new();
        assert_eq!(
            desk.call::<CronTool>(r#"{"action": "add", "prompt": "x"}"#).await.text,
            "schedule: needed here: an expression such as `0 9 * * mon-fri`"
        );
        assert_eq!(
            desk.call::<CronTool>(r#"{"action": "remove"}"#).await.text,
            "id: needed here: as the list shows it"
        );
    }
}
