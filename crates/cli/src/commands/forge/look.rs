//! `helve forge status` and `watch`: the state of runs and their tasks.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    process::ExitCode,
    time::Duration,
};

use helve_agent::forge::{ForgeDir, Run};
use helve_contract::events::{Event, EventRecord};
use helve_tools::artifacts::{
    CallArtifacts, ChangeRequest, ChangeRequestStatus, Dag, DagNodeKind, DagStatus, RunState, StoredRunStatus,
    TaskStatus,
};
use serde_json::json;

use super::{SettingsArgs, artifacts_call, draw::GraphCanvas, forge_dir, require_run};
use crate::{
    fault::{CliError, CommandResult},
    print::escape_for_terminal,
    say, setup,
};

#[derive(clap::Args)]
pub(super) struct StatusArgs {
    /// The run; all of them when left out.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    choice: SettingsArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Everything that is shown of a run.
pub(crate) struct RunView {
    /// How the run as a whole stands.
    pub(crate) state: Option<RunState>,
    /// The plan with all that was added to it.
    pub(crate) dag: Option<Dag>,
    /// Where the tasks stand.
    pub(crate) status: Option<DagStatus>,
    /// The change requests, decided or not.
    pub(crate) requests: Vec<ChangeRequest>,
    /// What the agents of tasks said or did last, a line each.
    pub(crate) activity: HashMap<String, String>,
}

impl StatusArgs {
    pub(super) fn status(self) -> CommandResult {
        let home = forge_dir(&self.choice.load_and_warn()?)?;
        let runs = match &self.run {
            Some(run) => vec![require_run(&home, run)?],
            None => home.runs(),
        };
        if runs.is_empty() && !self.json {
            say!("no runs yet; begin one with: helve forge plan \"what is to be done\"");
        }
        setup::runtime()?.block_on(async {
            for run in &runs {
                let seen = load_run_view(&home, run).await?;
                if self.json {
                    say!("{}", seen.json(run));
                } else {
                    say!("{}", seen.text(&run.label, self.run.is_some()));
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    pub(super) fn watch(self) -> CommandResult {
        let home = forge_dir(&self.choice.load_and_warn()?)?;
        let run = match &self.run {
            Some(run) => require_run(&home, run)?,
            None => {
                home.runs().pop().ok_or_else(|| CliError::usage("no runs yet; begin one with `helve forge plan`"))?
            }
        };
        setup::runtime()?.block_on(async {
            let mut canvas = GraphCanvas::detect().filter(|_| !self.json);
            let mut before = String::new();
            loop {
                let seen = load_run_view(&home, &run).await?;
                match &mut canvas {
                    Some(canvas) => canvas.draw(&run.label, &seen)?,
                    None => {
                        let text = if self.json { seen.json(&run).to_string() } else { seen.text(&run.label, true) };
                        for line in new_lines(&before, &text) {
                            say!("{line}");
                        }
                        before = text;
                    }
                }
                if seen.is_idle() {
                    return Ok(ExitCode::SUCCESS);
                }
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                    () = setup::wait_for_shutdown_signal() => return Ok(ExitCode::SUCCESS),
                }
            }
        })
    }
}

/// The new lines since the last output, for non-terminals.
fn new_lines<'a>(before: &str, text: &'a str) -> impl Iterator<Item = &'a str> {
    let known: HashSet<String> = before.lines().map(str::to_owned).collect();
    text.lines().filter(move |line| !known.contains(*line))
}

/// Looks at a run.
pub(crate) async fn load_run_view(home: &ForgeDir, run: &Run) -> Result<RunView, CliError> {
    let call = artifacts_call(home, run);
    let room = CallArtifacts::for_call(&call)?;
    let dag = match room.read_bytes("dag.json").await? {
        Some(_) => Some(room.dag().await?),
        None => None,
    };
    let status = match &dag {
        Some(dag) => Some(room.status(dag).await?),
        None => None,
    };
    let requests = ChangeRequest::load_all(&room).await?.into_iter().map(|it| it.front).collect();
    Ok(RunView {
        state: room.state().await?,
        dag,
        status,
        requests,
        activity: last_activity(home.recent_events(run, RECENT)),
    })
}

/// The number of recent events that are read for the last actions of agents.
const RECENT: usize = 500;

/// The last message or action of each task's agent, from the end of the record.
fn last_activity(records: Vec<EventRecord>) -> HashMap<String, String> {
    let mut lines = HashMap::new();
    for record in records {
        let Some(task) = record.task else { continue };
        let text = match &record.event {
            Event::TaskProgress(it) => it.content.trim().lines().next_back(),
            Event::ToolCall(it) => Some(it.tool_name.as_str()),
            _ => None,
        };
        if let Some(text) = text {
            lines.insert(task, escape_for_terminal(&text.chars().take(100).collect::<String>()).into_owned());
        }
    }
    lines
}

impl RunView {
    fn is_idle(&self) -> bool {
        self.state.as_ref().is_none_or(|it| it.status != StoredRunStatus::Executing)
    }

    fn json(&self, run: &Run) -> serde_json::Value {
        let open: Vec<_> =
            self.requests.iter().map(|it| json!({ "id": it.id, "title": it.title, "status": it.status })).collect();
        json!({ "runId": run.id, "label": run.label, "state": self.state, "tasks": self.status.as_ref().map(|it| &it.nodes), "changeRequests": open })
    }

    /// How the run stands, in a line.
    pub(super) fn headline(&self, run: &str) -> String {
        let word = self.state.as_ref().map_or_else(|| "planning".to_owned(), |it| it.status.to_string());
        let (Some(dag), Some(status)) = (&self.dag, &self.status) else {
            return format!("{run}: {word}, no graph yet");
        };
        let merged = status.nodes.values().filter(|it| it.status == TaskStatus::Merged).count();
        format!("{run}: {word}, {merged} of {} merged", dag.nodes.len())
    }

    fn text(&self, run: &str, whole: bool) -> String {
        let mut text = self.headline(run);
        let (Some(dag), Some(status), true) = (&self.dag, &self.status, whole) else { return text };
        for node in dag.topological_order() {
            let Some(state) = status.nodes.get(&node.id) else { continue };
            let kind = if node.kind == DagNodeKind::Refinery {
                "refinery".to_owned()
            } else {
                format!("type {}", node.agent_type)
            };
            let after = if node.dependencies.is_empty() {
                String::new()
            } else {
                format!("  after {}", node.dependencies.join(", "))
            };
            let attempt =
                if state.current_attempt > 1 { format!("  attempt {}", state.current_attempt) } else { String::new() };
            _ = write!(text, "\n  {:<11} {}  ({kind}){after}{attempt}", state.status.to_string(), node.id);
            if state.status == TaskStatus::Running
                && let Some(line) = self.activity.get(&node.id)
            {
                _ = write!(text, "\n              {line}");
            }
            if let Some(why) =
                state.last_error.as_deref().filter(|_| matches!(state.status, TaskStatus::Failed | TaskStatus::Stale))
            {
                let why = why.lines().next().unwrap_or_default();
                _ = write!(text, "\n              {}", escape_for_terminal(why));
            }
        }
        for request in self.requests.iter().filter(|it| it.status == ChangeRequestStatus::Pending) {
            _ = write!(
                text,
                "\n  waits: {} {} (helve forge approve {run} {})",
                request.id,
                escape_for_terminal(&request.title),
                request.id
            );
        }
        text
    }
}
