//! Runs a schedule as an agent turn: in a separate session, or in the one that created it.

use std::{sync::Arc, time::Duration};

use helve_contract::{
    CancellationToken, Error, Session, async_trait,
    ports::{InboxItem, MessageRole, Notification, Schedule, ScheduleRun, ScheduleRunStatus},
};

use helve_engine::Mode;
use helve_tools::schedule::RUN_PREFIX;

use super::{NOTIFY_MARKER, RunOutcome, ScheduleRunner, conclude::schedule_title};
use crate::{Agent, AgentEvent, AgentListener, Budget, SessionFactory, SessionSpec, TurnOutcome, TurnStopReason};

/// Brings a message into a session that goes on in this process.
#[async_trait]
pub trait SessionDelivery: Send + Sync {
    /// Says something in a session, and waits for the answer. `None`: it is not open here.
    async fn deliver(&self, session: &str, words: &str, cancel: &CancellationToken) -> Option<RunOutcome>;
    /// Adds a note to a session, which its model reads at the next turn. `false`: it is not open here.
    async fn note(&self, _session: &str, _text: &str) -> bool {
        false
    }
}

/// Fires a run as a turn of an agent.
pub struct AgentRunner {
    /// Makes tools, session and model.
    pub session_factory: Arc<dyn SessionFactory>,
    /// What a run may do without an approval; `None`: what the workshop gives.
    pub mode: Option<Mode>,
    /// What a run may cost; the operator's alone.
    pub budget: Budget,
    /// The sessions that are open in this process, where there are any.
    pub open_sessions: Option<Arc<dyn SessionDelivery>>,
    /// Who hears what happens in a run.
    pub listener: AgentListener,
}

impl AgentRunner {
    /// Runs by this workshop, with the usual budget: ten turns and half a dollar.
    pub fn new(workshop: Arc<dyn SessionFactory>) -> Self {
        let budget = Budget { max_turns: Some(10), max_cost: Some(0.5), ..Budget::default() };
        Self {
            session_factory: workshop,
            mode: None,
            budget,
            open_sessions: None,
            listener: Arc::new(|_: &AgentEvent| {}),
        }
    }

    async fn run_turn(
        &self,
        schedule: &Schedule,
        words: &str,
        cancel: CancellationToken,
    ) -> helve_contract::Result<RunOutcome> {
        let need = SessionSpec {
            // A session of its own has no history: every run begins anew.
            id: schedule.session.clone().unwrap_or_else(|| format!("{RUN_PREFIX}{}", schedule.id)),
            dialect: schedule.dialect.clone(),
            user: Some(schedule.user.clone()),
            mode: self.mode,
            workspace: schedule.workspace.clone().map(Into::into),
            unattended: true,
            ..SessionSpec::default()
        };
        let (engine, session) = self.session_factory.create_session(&need)?;
        if schedule.session.is_none() && !begin_anew(&session, &cancel).await? {
            return Ok(RunOutcome { status: ScheduleRunStatus::Cancelled, ..RunOutcome::failed("cancelled") });
        }
        let model = self.session_factory.session_model(&session.id, self.session_factory.model(None)?);
        let agent = Agent {
            title: schedule.session.is_none().then(|| format!("scheduled: {}", schedule_title(schedule))),
            budget: self.budget,
            listener: self.listener.clone(),
            ..Agent::new(engine, session, model)
        };
        let handle = agent.handle.clone();
        let mut turn = std::pin::pin!(agent.send_text(words));
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
                store.post(&agent.session.id, &InboxItem::text(MessageRole::User, words)).await?;
                let output = format!(
                    "Left in the inbox of session {}, in which process {} on {} works.",
                    holder.session, holder.pid, holder.host
                );
                Ok(RunOutcome { output, status: ScheduleRunStatus::Success, turns: 0, cost: 0.0 })
            }
            outcome => outcome.map(RunOutcome::from),
        }
    }
}

#[async_trait]
impl ScheduleRunner for AgentRunner {
    async fn run(&self, schedule: &Schedule, run: &ScheduleRun, cancel: CancellationToken) -> RunOutcome {
        let words = run_prompt(schedule, run);
        if let (Some(live), Some(session)) = (&self.open_sessions, &schedule.session)
            && let Some(fired) = live.deliver(session, &words, &cancel).await
        {
            return fired;
        }
        self.run_turn(schedule, &words, cancel).await.unwrap_or_else(RunOutcome::failed)
    }
}

/// How long to wait before the session of an earlier attempt is looked at again.
const HELD_POLL: Duration = Duration::from_millis(250);

/// Removes the session of the previous run. An earlier attempt may still hold it, because its process was just killed
/// or has not noticed the loss: waits until that lease ends. `false`: cancelled meanwhile.
async fn begin_anew(session: &Session, cancel: &CancellationToken) -> helve_contract::Result<bool> {
    loop {
        match session.ports.store.delete_session(&session.id).await {
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
pub fn run_prompt(schedule: &Schedule, run: &ScheduleRun) -> String {
    let mut words = match (&schedule.session, &schedule.name) {
        (None, _) => schedule.goal.clone(),
        (Some(_), Some(name)) => format!("[cron:{name}] {}", schedule.goal),
        (Some(_), None) => format!("[cron:{}] {}", schedule.id, schedule.goal),
    };
    if schedule.notification == Notification::Conditional {
        words.push_str(&format!(
            "\n\nIf the user should hear of the result, begin your final answer with {NOTIFY_MARKER}. Else leave it out."
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

impl From<TurnOutcome> for RunOutcome {
    fn from(outcome: TurnOutcome) -> Self {
        let (status, why) = match outcome.stop_reason {
            TurnStopReason::Completed if outcome.refused > 0 => (ScheduleRunStatus::Refused, None),
            TurnStopReason::Completed => (ScheduleRunStatus::Success, None),
            TurnStopReason::Cancelled => (ScheduleRunStatus::Cancelled, Some("cancelled".to_owned())),
            TurnStopReason::BudgetExhausted(why)
            | TurnStopReason::LoopDetected(why)
            | TurnStopReason::ModelFailed(why) => (ScheduleRunStatus::Failed, Some(why)),
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
        Self { output, status, turns: outcome.turns, cost: outcome.usage.cost }
    }
}
