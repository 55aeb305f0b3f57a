//! `/api/tasks`: background commands and agents of this process.

use std::sync::Arc;

use helve_contract::{
    Call, Session,
    jiff::{SignedDuration, Timestamp},
    ports::{AgentReport, AgentStatus, ProcessStatus, SessionRecord, TaskId, TaskInfo, WaitUntil},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    board::truncate_text,
    routes::{QueryParams, query_number},
    say::ApiError,
    site::AppState,
};

/// Bytes of output at once.
const MAX_OUTPUT_CHUNK: usize = 64 << 10;

/// Something that runs, or has run.
enum BackgroundEntry {
    Command(TaskInfo),
    Agent(AgentReport),
}

impl AppState {
    /// Commands and agents in the background, of every session of this process.
    pub(super) async fn tasks(&self) -> Result<Value, ApiError> {
        let mut tasks = Vec::new();
        for (dialect, session) in self.all_sessions() {
            for found in tasks_of(&session).await {
                tasks.push(task_json(&found, &dialect, &session));
            }
        }
        Ok(json!({ "tasks": tasks }))
    }

    /// What a task has written, or what an agent has said.
    pub(super) async fn task(&self, id: &str, query: &QueryParams) -> Result<Value, ApiError> {
        let after = query_number(query, "after", 0)?;
        let (dialect, session, found) = self.find_task(id).await?;
        let task = task_json(&found, &dialect, &session);
        let state = task["state"].clone();
        let (text, next) = match found {
            BackgroundEntry::Command(info) => {
                let call = Call::new("look", session);
                let output = call.tasks().output(&call, &info.id, after, MAX_OUTPUT_CHUNK).await?;
                (output.merged, output.next)
            }
            BackgroundEntry::Agent(report) => {
                let from = report.text.floor_char_boundary(usize::try_from(after).unwrap_or(usize::MAX));
                let rest = report.text.get(from..).unwrap_or_default();
                (truncate_text(rest), report.text.len() as u64)
            }
        };
        Ok(json!({ "task": task, "text": text, "next": next, "state": state }))
    }

    /// Stops a task.
    pub(super) async fn stop_task(&self, id: &str) -> Result<Value, ApiError> {
        let (dialect, session, found) = self.find_task(id).await?;
        let call = Call::new("stop", session.clone());
        let now = match found {
            BackgroundEntry::Command(info) if info.status == ProcessStatus::Running => {
                BackgroundEntry::Command(call.tasks().stop(&call, &info.id).await?)
            }
            BackgroundEntry::Agent(report) if report.status == AgentStatus::Running => {
                let stopped = session.ports.agents.stop(&call, id).await?;
                BackgroundEntry::Agent(stopped.ok_or_else(task_not_found)?)
            }
            ended => ended,
        };
        Ok(json!({ "task": task_json(&now, &dialect, &session) }))
    }

    /// Stops an agent by its session. `false`: it does not run here.
    pub(super) async fn stop_agent(&self, record: &SessionRecord) -> bool {
        let Some(parent) = &record.parent else { return false };
        let Some((_, session)) = self.all_sessions().into_iter().find(|(_, it)| it.id == *parent) else { return false };
        let call = Call::new("stop", session.clone());
        if !session.ports.agents.running(&call).await.iter().any(|it| it.id == record.id) {
            return false;
        }
        session.ports.agents.stop(&call, &record.id).await.is_ok()
    }

    async fn find_task(&self, id: &str) -> Result<(String, Arc<Session>, BackgroundEntry), ApiError> {
        for (dialect, session) in self.all_sessions() {
            let call = Call::new("look", session.clone());
            let commands = call.tasks().list(&call).await;
            if let Some(info) = commands.into_iter().find(|it| it.id == TaskId(id.to_owned())) {
                return Ok((dialect, session, BackgroundEntry::Command(info)));
            }
            if let Some(report) = session.ports.agents.report(&call, id, WaitUntil::Now).await? {
                return Ok((dialect, session, BackgroundEntry::Agent(report)));
            }
        }
        Err(task_not_found())
    }

    /// Every session of this process, with its dialect.
    fn all_sessions(&self) -> Vec<(String, Arc<Session>)> {
        let own = self.runtime.open_sessions().into_iter().map(|(engine, it)| (engine.dialect().name.to_owned(), it));
        let dialect = self.runtime.settings().dialect();
        let guests = self.mcp_sessions.all().into_iter().map(|it| (dialect.to_owned(), it));
        own.chain(guests).collect()
    }
}

async fn tasks_of(session: &Arc<Session>) -> Vec<BackgroundEntry> {
    let call = Call::new("look", session.clone());
    let mut found: Vec<_> = call.tasks().list(&call).await.into_iter().map(BackgroundEntry::Command).collect();
    found.extend(session.ports.agents.running(&call).await.into_iter().map(BackgroundEntry::Agent));
    found
}

fn task_not_found() -> ApiError {
    ApiError::not_found("there is no such task; /api/tasks lists them")
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

fn task_json(found: &BackgroundEntry, dialect: &str, session: &Session) -> Value {
    let (id, kind, what, ran, written) = match found {
        BackgroundEntry::Command(it) => (it.id.0.as_str(), "command", it.command.as_str(), it.elapsed, it.output_bytes),
        BackgroundEntry::Agent(it) => (it.id.as_str(), "agent", it.title.as_str(), it.elapsed, it.text.len() as u64),
    };
    let state = match found {
        BackgroundEntry::Command(it) => match &it.status {
            ProcessStatus::Running => WorkState::Running,
            ProcessStatus::Exited(_) => WorkState::Ended,
            ProcessStatus::TimedOut(_) => WorkState::TimedOut,
            ProcessStatus::Stopped(_) => WorkState::Stopped,
        },
        BackgroundEntry::Agent(it) => match &it.status {
            AgentStatus::Running => WorkState::Running,
            AgentStatus::Done => WorkState::Ended,
            AgentStatus::Failed(_) => WorkState::Failed,
            AgentStatus::Stopped => WorkState::Stopped,
        },
    };
    let exit = match found {
        BackgroundEntry::Command(it) => it.status.exit().map(|it| it.code),
        BackgroundEntry::Agent(_) => None,
    };
    let ran = SignedDuration::try_from(ran).unwrap_or_default();
    // The end time of an ended task is unknown.
    let started = Timestamp::now().checked_sub(ran).ok().filter(|_| state == WorkState::Running);
    json!({
        "id": id, "kind": kind, "session": session.id, "dialect": dialect, "command": truncate_text(what), "state": state,
        "started": started, "seconds": ran.as_secs(), "exit": exit, "bytes": written,
    })
}
