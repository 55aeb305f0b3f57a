//! `/api/tasks`: what runs in the background of this process, commands and agents.

use std::sync::Arc;

use helve_contract::{
    Call, Session,
    jiff::{SignedDuration, Timestamp},
    ports::{AgentReport, AgentState, SessionRecord, State, TaskId, TaskInfo, Until},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    board::bounded,
    routes::{Query, number},
    say::No,
    site::Site,
};

/// Bytes of output at once.
const PIECE: usize = 64 << 10;

/// Something that runs, or has run.
enum Found {
    Command(TaskInfo),
    Agent(AgentReport),
}

impl Site {
    /// Commands and agents in the background, of every session of this process.
    pub(super) async fn tasks(&self) -> Result<Value, No> {
        let mut tasks = Vec::new();
        for (dialect, session) in self.everybody() {
            for found in of(&session).await {
                tasks.push(shown(&found, &dialect, &session));
            }
        }
        Ok(json!({ "tasks": tasks }))
    }

    /// What a task has written, or what an agent has said.
    pub(super) async fn task(&self, id: &str, query: &Query) -> Result<Value, No> {
        let after = number(query, "after", 0)?;
        let (dialect, session, found) = self.find_task(id).await?;
        let task = shown(&found, &dialect, &session);
        let state = task["state"].clone();
        let (text, next) = match found {
            Found::Command(info) => {
                let call = Call::new("look", session);
                let output = call.tasks().output(&call, &info.id, after, PIECE).await?;
                (output.merged, output.next)
            }
            Found::Agent(report) => {
                let from = report.text.floor_char_boundary(usize::try_from(after).unwrap_or(usize::MAX));
                let rest = report.text.get(from..).unwrap_or_default();
                (bounded(rest), report.text.len() as u64)
            }
        };
        Ok(json!({ "task": task, "text": text, "next": next, "state": state }))
    }

    /// Stops a task.
    pub(super) async fn stop_task(&self, id: &str) -> Result<Value, No> {
        let (dialect, session, found) = self.find_task(id).await?;
        let call = Call::new("stop", session.clone());
        let now = match found {
            Found::Command(info) if info.state == State::Running => {
                Found::Command(call.tasks().stop(&call, &info.id).await?)
            }
            Found::Agent(report) if report.state == AgentState::Running => {
                let stopped = session.ports.agents.stop(&call, id).await?;
                Found::Agent(stopped.ok_or_else(missing)?)
            }
            ended => ended,
        };
        Ok(json!({ "task": shown(&now, &dialect, &session) }))
    }

    /// Stops an agent by its conversation. `false`: it does not run here.
    pub(super) async fn stop_agent(&self, record: &SessionRecord) -> bool {
        let Some(parent) = &record.parent else { return false };
        let Some((_, session)) = self.everybody().into_iter().find(|(_, it)| it.id == *parent) else { return false };
        let call = Call::new("stop", session.clone());
        if !session.ports.agents.running(&call).await.iter().any(|it| it.id == record.id) {
            return false;
        }
        session.ports.agents.stop(&call, &record.id).await.is_ok()
    }

    async fn find_task(&self, id: &str) -> Result<(String, Arc<Session>, Found), No> {
        for (dialect, session) in self.everybody() {
            let call = Call::new("look", session.clone());
            let commands = call.tasks().list(&call).await;
            if let Some(info) = commands.into_iter().find(|it| it.id == TaskId(id.to_owned())) {
                return Ok((dialect, session, Found::Command(info)));
            }
            if let Some(report) = session.ports.agents.report(&call, id, Until::Now).await? {
                return Ok((dialect, session, Found::Agent(report)));
            }
        }
        Err(missing())
    }

    /// Every session of this process, with its dialect.
    fn everybody(&self) -> Vec<(String, Arc<Session>)> {
        let own = self.bench.open().into_iter().map(|(engine, it)| (engine.dialect().name.to_owned(), it));
        let dialect = self.bench.settings().dialect();
        let guests = self.guests.all().into_iter().map(|it| (dialect.to_owned(), it));
        own.chain(guests).collect()
    }
}

async fn of(session: &Arc<Session>) -> Vec<Found> {
    let call = Call::new("look", session.clone());
    let mut found: Vec<_> = call.tasks().list(&call).await.into_iter().map(Found::Command).collect();
    found.extend(session.ports.agents.running(&call).await.into_iter().map(Found::Agent));
    found
}

fn missing() -> No {
    No::missing("there is no such task; /api/tasks lists them")
}

/// The state of a command or an agent in the background, as the API has it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum WorkState {
    Running,
    Ended,
    TimedOut,
    Stopped,
    Failed,
}

fn shown(found: &Found, dialect: &str, session: &Session) -> Value {
    let (id, kind, what, ran, written) = match found {
        Found::Command(it) => (it.id.0.as_str(), "command", it.command.as_str(), it.ran, it.written),
        Found::Agent(it) => (it.id.as_str(), "agent", it.title.as_str(), it.ran, it.text.len() as u64),
    };
    let state = match found {
        Found::Command(it) => match &it.state {
            State::Running => WorkState::Running,
            State::Ended(_) => WorkState::Ended,
            State::TimedOut(_) => WorkState::TimedOut,
            State::Stopped(_) => WorkState::Stopped,
        },
        Found::Agent(it) => match &it.state {
            AgentState::Running => WorkState::Running,
            AgentState::Done => WorkState::Ended,
            AgentState::Failed(_) => WorkState::Failed,
            AgentState::Stopped => WorkState::Stopped,
        },
    };
    let exit = match found {
        Found::Command(it) => it.state.exit().map(|it| it.code),
        Found::Agent(_) => None,
    };
    let ran = SignedDuration::try_from(ran).unwrap_or_default();
    // Nobody knows when something ended that is over.
    let started = Timestamp::now().checked_sub(ran).ok().filter(|_| state == WorkState::Running);
    json!({
        "id": id, "kind": kind, "session": session.id, "dialect": dialect, "command": bounded(what), "state": state,
        "started": started, "seconds": ran.as_secs(), "exit": exit, "bytes": written,
    })
}
