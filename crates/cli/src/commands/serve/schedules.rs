//! `/api/schedules`: lists schedules and their runs, and changes them.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use helve_agent::scheduler::{SchedulerEvent, SchedulerListener};
use helve_contract::{
    events::TurnEnd,
    jiff::Timestamp,
    ports::{Schedule, ScheduleRunStatus, ScheduleStatus},
};
use helve_tools::schedule::{RUN_PREFIX, cadence, to_json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    routes::parse_body,
    say::ApiError,
    site::AppState,
    turns::{ActiveTurn, ActiveTurns},
};
use crate::{commands::schedule, print::escape_for_terminal, remark, workshop::HelveRuntime};

/// The maximum number of runs in a response.
const MAX_RUNS: usize = 100;

/// What to do with a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleActionBody {
    action: ScheduleAction,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScheduleAction {
    Pause,
    Resume,
    Run,
    Delete,
}

/// Records what schedules do, and tracks the sessions they work in.
pub(super) fn scheduler_listener(bench: &Arc<HelveRuntime>, turns: Arc<ActiveTurns>, usual: &str) -> SchedulerListener {
    let (bench, usual) = (Arc::downgrade(bench), usual.to_owned());
    let working: Mutex<HashMap<String, ActiveTurn>> = Mutex::default();
    Arc::new(move |what: &SchedulerEvent| {
        schedule::log_event(what);
        let mut working = working.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            SchedulerEvent::RunStarted(schedule, run) => {
                let own = || {
                    let label = format!("{RUN_PREFIX}{}", schedule.id);
                    let workspace = schedule.workspace.as_deref().map(Path::new);
                    let bench = bench.upgrade();
                    bench.map_or(label.clone(), |it| it.labelled_id(&label, Some(&schedule.user), workspace))
                };
                let session = schedule.session.clone().unwrap_or_else(own);
                let dialect = schedule.dialect.as_deref().unwrap_or(&usual);
                working.insert(run.id.clone(), turns.begin(&session, dialect, None));
            }
            SchedulerEvent::RunFinished(_, run) => {
                if let Some(turn) = working.remove(&run.id) {
                    turn.end_with(match run.status {
                        ScheduleRunStatus::Success => TurnEnd::Done,
                        ScheduleRunStatus::Refused => TurnEnd::Refused,
                        ScheduleRunStatus::Running | ScheduleRunStatus::Failed | ScheduleRunStatus::Cancelled => {
                            TurnEnd::Error
                        }
                    });
                }
            }
            SchedulerEvent::LeaseLost(_, run) => {
                if let Some(turn) = working.remove(&run.id) {
                    turn.end_with(TurnEnd::Cancelled);
                }
            }
            SchedulerEvent::Skipped(..) | SchedulerEvent::Error(_) => {}
        }
    })
}

impl AppState {
    /// Schedules, newest first.
    pub(super) async fn schedules(&self) -> Result<Value, ApiError> {
        let all = schedule::list_all(&**self.runtime.store(), self.user()).await.map_err(ApiError::internal)?;
        Ok(json!({ "schedules": all.iter().map(to_json).collect::<Vec<_>>() }))
    }

    /// The last runs of a schedule, newest first.
    pub(super) async fn schedule_runs(&self, id: &str) -> Result<Value, ApiError> {
        let schedule = self.schedule(id).await?;
        let runs = self.runtime.store().runs(&schedule.id, MAX_RUNS).await?;
        Ok(json!({ "schedule": to_json(&schedule), "runs": runs }))
    }

    /// Pauses, resumes, runs or deletes a schedule.
    pub(super) async fn act_on_schedule(&self, id: &str, body: &[u8]) -> Result<Value, ApiError> {
        let ScheduleActionBody { action } = parse_body(body)?;
        let schedule = self.schedule(id).await?;
        let store = self.runtime.store();
        let changed = match action {
            ScheduleAction::Pause => Schedule { status: ScheduleStatus::Paused, next: None, ..schedule.clone() },
            ScheduleAction::Resume => {
                let rules = crate::schedules::rules(self.runtime.settings(), None);
                let next = cadence::first_run(&schedule.cadence, &rules, Timestamp::now());
                let next = next.map_err(|error| ApiError::conflict(error.to_string()))?;
                Schedule { status: ScheduleStatus::Active, next: Some(next), failures: 0, ..schedule.clone() }
            }
            ScheduleAction::Run => {
                self.run_schedule(schedule.clone()).await?;
                return Ok(json!({ "schedule": to_json(&schedule) }));
            }
            ScheduleAction::Delete => {
                store.remove_schedule(&schedule.id).await?;
                return Ok(json!({ "schedule": null }));
            }
        };
        let changed = Schedule { updated: Timestamp::now(), ..changed };
        if !store.update_schedule(&changed, schedule.updated).await? {
            return Err(ApiError::conflict("it changed at this moment; try again"));
        }
        Ok(json!({ "schedule": to_json(&changed) }))
    }

    /// Starts a run manually; its end is sent as an event and appears in the list of runs.
    async fn run_schedule(&self, schedule: Schedule) -> Result<(), ApiError> {
        let driver = self.scheduler.get().cloned().ok_or_else(ApiError::no_model_configured)?;
        let last = self.runtime.store().runs(&schedule.id, 1).await?;
        if last.first().is_some_and(|it| it.finished.is_none()) {
            return Err(ApiError::conflict("it runs already"));
        }
        tokio::spawn(async move {
            if let Err(error) = driver.run_now(&schedule).await {
                remark!(
                    "helve: the schedule {}: {}",
                    escape_for_terminal(&schedule.id),
                    escape_for_terminal(&error.to_string())
                );
            }
        });
        Ok(())
    }

    async fn schedule(&self, id: &str) -> Result<Schedule, ApiError> {
        let found = self.runtime.store().schedule(id).await?.filter(|it| it.user == self.user());
        found.ok_or_else(|| ApiError::not_found("there is no such schedule; /api/schedules lists them"))
    }
}
