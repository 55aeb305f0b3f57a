//! A run is a turn of an agent: in a conversation of its own, or in the one that made the schedule.

use std::{sync::Arc, time::Duration};

use helve_contract::{
    CancellationToken, Error, Session, async_trait,
    ports::{InboxItem, Notification, RunStatus, Schedule, ScheduleRun, Speaker},
};

use helve_engine::Mode;
use helve_tools::schedule::RUN_PREFIX;

use super::{Fire, Fired, MARKER, conclude::title};
use crate::{Agent, Budget, Ended, Event, Need, Outcome, Watcher, Workshop};

/// Brings a message into a conversation that goes on in this process.
#[async_trait]
pub trait Deliver: Send + Sync {
    /// Says something in a conversation, and waits for the answer. `None`: it is not open here.
    async fn deliver(&self, session: &str, words: &str, cancel: &CancellationToken) -> Option<Fired>;
    /// Adds a note to a conversation, which its model reads at the next turn. `false`: it is not open here.
    async fn note(&self, _session: &str, _text: &str) -> bool {
        false
    }
}

/// Fires a run as a turn of an agent.
pub struct AgentFire {
    /// Makes tools, session and model.
    pub workshop: Arc<dyn Workshop>,
    /// What a run may do without an approval; `None`: what the workshop gives.
    pub mode: Option<Mode>,
    /// What a run may cost; the operator's alone.
    pub budget: Budget,
    /// The conversations that are open in this process, where there are any.
    pub live: Option<Arc<dyn Deliver>>,
    /// Who hears what happens in a run.
    pub watcher: Watcher,
}

impl AgentFire {
    /// Runs by this workshop, with the usual budget: ten turns and half a dollar.
    pub fn new(workshop: Arc<dyn Workshop>) -> Self {
        let budget = Budget { turns: Some(10), cost: Some(0.5), ..Budget::default() };
        Self { workshop, mode: None, budget, live: None, watcher: Arc::new(|_: &Event| {}) }
    }

    async fn turn(&self, schedule: &Schedule, words: &str, cancel: CancellationToken) -> helve_contract::Result<Fired> {
        let need = Need {
            // A conversation of its own has no history: every run begins anew.
            id: schedule.session.clone().unwrap_or_else(|| format!("{RUN_PREFIX}{}", schedule.id)),
            dialect: schedule.dialect.clone(),
            user: Some(schedule.user.clone()),
            mode: self.mode,
            workspace: schedule.workspace.clone().map(Into::into),
            alone: true,
            ..Need::default()
        };
        let (engine, session) = self.workshop.equip(&need)?;
        if schedule.session.is_none() && !begin_anew(&session, &cancel).await? {
            return Ok(Fired { status: RunStatus::Cancelled, ..Fired::failed("cancelled") });
        }
        let model = self.workshop.session_model(&session.id, self.workshop.model(None)?);
        let agent = Agent {
            title: schedule.session.is_none().then(|| format!("scheduled: {}", title(schedule))),
            budget: self.budget,
            watcher: self.watcher.clone(),
            ..Agent::new(engine, session, model)
        };
        let handle = agent.handle.clone();
        let mut turn = std::pin::pin!(agent.say(words));
        let outcome = tokio::select! {
            outcome = &mut turn => outcome,
            () = cancel.cancelled() => {
                handle.cancel();
                turn.await
            }
        };
        match outcome {
            Err(Error::SessionHeld(holder)) if schedule.session.is_some() => {
                let store = &agent.session.ports.store;
                store.post(&agent.session.id, &InboxItem::text(Speaker::User, words)).await?;
                let output = format!(
                    "Left in the inbox of session {}, in which process {} on {} works.",
                    holder.session, holder.pid, holder.host
                );
                Ok(Fired { output, status: RunStatus::Success, turns: 0, cost: 0.0 })
            }
            outcome => outcome.map(Fired::from),
        }
    }
}

#[async_trait]
impl Fire for AgentFire {
    async fn fire(&self, schedule: &Schedule, run: &ScheduleRun, cancel: CancellationToken) -> Fired {
        let words = prompt(schedule, run);
        if let (Some(live), Some(session)) = (&self.live, &schedule.session)
            && let Some(fired) = live.deliver(session, &words, &cancel).await
        {
            return fired;
        }
        self.turn(schedule, &words, cancel).await.unwrap_or_else(Fired::failed)
    }
}

/// How long to wait before the session of an earlier attempt is looked at again.
const HELD_POLL: Duration = Duration::from_millis(250);

/// Removes the conversation of the run before. An earlier attempt at this run may still hold its session, because its
/// process was killed a moment ago or has not yet noticed that it lost the run: waits until that lease ends.
/// `false`: cancelled meanwhile.
async fn begin_anew(session: &Session, cancel: &CancellationToken) -> helve_contract::Result<bool> {
    loop {
        match session.ports.store.discard(&session.id).await {
            Err(Error::SessionHeld(_)) => tokio::select! {
                () = tokio::time::sleep(HELD_POLL) => {}
                () = cancel.cancelled() => return Ok(false),
            },
            discarded => return discarded.map(|_| true),
        }
    }
}

/// How the user allows what was refused.
const ALLOW: &str = "The setting `schedule.mode` says what scheduled runs may do";

/// What the model hears when a schedule is due.
pub fn prompt(schedule: &Schedule, run: &ScheduleRun) -> String {
    let mut words = match (&schedule.session, &schedule.name) {
        (None, _) => schedule.goal.clone(),
        (Some(_), Some(name)) => format!("[cron:{name}] {}", schedule.goal),
        (Some(_), None) => format!("[cron:{}] {}", schedule.id, schedule.goal),
    };
    if schedule.notification == Notification::Conditional {
        words.push_str(&format!(
            "\n\nIf the user should hear of the result, begin your final answer with {MARKER}. Else leave it out."
        ));
    }
    if run.attempt > 1 {
        words.push_str(&format!(
            "\n\n(This is attempt {}: an earlier one was cut off. Look at what it has done already.)",
            run.attempt
        ));
    }
    words
}

impl From<Outcome> for Fired {
    fn from(outcome: Outcome) -> Self {
        let (status, why) = match outcome.ended {
            Ended::Done if outcome.refused > 0 => (RunStatus::Refused, None),
            Ended::Done => (RunStatus::Success, None),
            Ended::Cancelled => (RunStatus::Cancelled, Some("cancelled".to_owned())),
            Ended::Budget(why) | Ended::Circles(why) | Ended::Model(why) => (RunStatus::Failed, Some(why)),
        };
        let refused = match outcome.refused {
            0 => String::new(),
            1 => format!("\n\n[1 call was refused. {ALLOW}]"),
            many => format!("\n\n[{many} calls were refused. {ALLOW}]"),
        };
        let output = match (why, outcome.text.is_empty()) {
            (None, _) => outcome.text,
            (Some(why), true) => format!("Error: {why}"),
            (Some(why), false) => format!("Error: {why}\n\n{}", outcome.text),
        };
        let output = output + &refused;
        Self { output, status, turns: outcome.turns, cost: outcome.spent.cost }
    }
}
