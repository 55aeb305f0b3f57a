//! `/api/schedules`: what runs by itself, when it ran, and the user's say in it.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use helve_agent::scheduler::{Happening, Observer};
use helve_contract::{
    events::TurnEnd,
    jiff::Timestamp,
    ports::{RunStatus, Schedule, ScheduleStatus},
};
use helve_tools::schedule::{RUN_PREFIX, cadence, shown};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    routes::parsed,
    say::No,
    site::Site,
    turns::{Turn, Turns},
};
use crate::{commands::schedule, print::harmless, remark, workshop::Bench};

/// How many runs are told.
const RUNS: usize = 100;

/// What to do with a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    action: Action,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Pause,
    Resume,
    Run,
    Delete,
}

/// Writes down what schedules do, and says which conversations they work in.
pub(super) fn observer(bench: &Arc<Bench>, turns: Arc<Turns>, usual: &str) -> Observer {
    let (bench, usual) = (Arc::downgrade(bench), usual.to_owned());
    let working: Mutex<HashMap<String, Turn>> = Mutex::default();
    Arc::new(move |what: &Happening| {
        schedule::log(what);
        let mut working = working.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Happening::Began(schedule, run) => {
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
            Happening::Ended(_, run) => {
                if let Some(turn) = working.remove(&run.id) {
                    turn.over(match run.status {
                        RunStatus::Success => TurnEnd::Done,
                        RunStatus::Refused => TurnEnd::Refused,
                        RunStatus::Running | RunStatus::Failed | RunStatus::Cancelled => TurnEnd::Error,
                    });
                }
            }
            Happening::Lost(_, run) => {
                if let Some(turn) = working.remove(&run.id) {
                    turn.over(TurnEnd::Cancelled);
                }
            }
            Happening::Skipped(..) | Happening::Trouble(_) => {}
        }
    })
}

impl Site {
    /// Schedules, newest first.
    pub(super) async fn schedules(&self) -> Result<Value, No> {
        let all = schedule::all(&**self.bench.store(), self.user()).await.map_err(No::broken)?;
        Ok(json!({ "schedules": all.iter().map(shown).collect::<Vec<_>>() }))
    }

    /// The last runs of a schedule, newest first.
    pub(super) async fn runs(&self, id: &str) -> Result<Value, No> {
        let schedule = self.schedule(id).await?;
        let runs = self.bench.store().runs(&schedule.id, RUNS).await?;
        Ok(json!({ "schedule": shown(&schedule), "runs": runs }))
    }

    /// Pauses, resumes, runs or deletes a schedule.
    pub(super) async fn change_schedule(&self, id: &str, body: &[u8]) -> Result<Value, No> {
        let Order { action } = parsed(body)?;
        let schedule = self.schedule(id).await?;
        let store = self.bench.store();
        let changed = match action {
            Action::Pause => Schedule { status: ScheduleStatus::Paused, next: None, ..schedule.clone() },
            Action::Resume => {
                let rules = crate::schedules::rules(self.bench.settings(), None);
                let next = cadence::first(&schedule.cadence, &rules, Timestamp::now());
                let next = next.map_err(|error| No::conflict(error.to_string()))?;
                Schedule { status: ScheduleStatus::Active, next: Some(next), failures: 0, ..schedule.clone() }
            }
            Action::Run => {
                self.run_schedule(schedule.clone()).await?;
                return Ok(json!({ "schedule": shown(&schedule) }));
            }
            Action::Delete => {
                store.remove_schedule(&schedule.id).await?;
                return Ok(json!({ "schedule": null }));
            }
        };
        let changed = Schedule { updated: Timestamp::now(), ..changed };
        if !store.change_schedule(&changed, schedule.updated).await? {
            return Err(No::conflict("it changed at this moment; try again"));
        }
        Ok(json!({ "schedule": shown(&changed) }))
    }

    /// Begins a run by hand; its end is told as an event, and in the list of runs.
    async fn run_schedule(&self, schedule: Schedule) -> Result<(), No> {
        let driver = self.driver.get().cloned().ok_or_else(No::no_model)?;
        let last = self.bench.store().runs(&schedule.id, 1).await?;
        if last.first().is_some_and(|it| it.finished.is_none()) {
            return Err(No::conflict("it runs already"));
        }
        tokio::spawn(async move {
            if let Err(error) = driver.run_now(&schedule).await {
                remark!("helve: the schedule {}: {}", harmless(&schedule.id), harmless(&error.to_string()));
            }
        });
        Ok(())
    }

    async fn schedule(&self, id: &str) -> Result<Schedule, No> {
        let found = self.bench.store().schedule(id).await?.filter(|it| it.user == self.user());
        found.ok_or_else(|| No::missing("there is no such schedule; /api/schedules lists them"))
    }
}
