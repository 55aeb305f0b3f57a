//! `helve forge status` and `watch`: where runs and their tasks stand.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    process::ExitCode,
    time::Duration,
};

use helve_agent::forge::{Home, Run};
use helve_contract::events::{Event, EventRecord};
use helve_tools::artifacts::{
    ChangeRequest, Dag, DagStatus, NodeKind, RequestStatus, Room, RunState, RunStatus, Status,
};
use serde_json::json;

use super::{Choice, draw::Canvas, home, known, visitor};
use crate::{
    fault::{Fault, Outcome},
    print::harmless,
    say, setup,
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run; all of them when left out.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    choice: Choice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Everything that is shown of a run.
pub(crate) struct Seen {
    /// How the run as a whole stands.
    pub(crate) state: Option<RunState>,
    /// The plan with all that was added to it.
    pub(crate) dag: Option<Dag>,
    /// Where the tasks stand.
    pub(crate) status: Option<DagStatus>,
    /// The change requests, decided or not.
    pub(crate) requests: Vec<ChangeRequest>,
    /// What the agents of tasks said or did last, a line each.
    pub(crate) lines: HashMap<String, String>,
}

impl Args {
    pub(super) fn status(self) -> Outcome {
        let home = home(&self.choice.settings()?)?;
        let runs = match &self.run {
            Some(run) => vec![known(&home, run)?],
            None => home.runs(),
        };
        if runs.is_empty() && !self.json {
            say!("no runs yet; begin one with: helve forge plan \"what is to be done\"");
        }
        setup::runtime()?.block_on(async {
            for run in &runs {
                let seen = see(&home, run).await?;
                if self.json {
                    say!("{}", seen.json(run));
                } else {
                    say!("{}", seen.text(&run.label, self.run.is_some()));
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    pub(super) fn watch(self) -> Outcome {
        let home = home(&self.choice.settings()?)?;
        let run = match &self.run {
            Some(run) => known(&home, run)?,
            None => home.runs().pop().ok_or_else(|| Fault::usage("no runs yet; begin one with `helve forge plan`"))?,
        };
        setup::runtime()?.block_on(async {
            let mut canvas = Canvas::found().filter(|_| !self.json);
            let mut before = String::new();
            loop {
                let seen = see(&home, &run).await?;
                match &mut canvas {
                    Some(canvas) => canvas.draw(&run.label, &seen)?,
                    None => {
                        let text = if self.json { seen.json(&run).to_string() } else { seen.text(&run.label, true) };
                        for line in news(&before, &text) {
                            say!("{line}");
                        }
                        before = text;
                    }
                }
                if seen.rests() {
                    return Ok(ExitCode::SUCCESS);
                }
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                    () = setup::asked_to_stop() => return Ok(ExitCode::SUCCESS),
                }
            }
        })
    }
}

/// The lines that were not there before: what a reader of lines wants to know.
fn news<'a>(before: &str, text: &'a str) -> impl Iterator<Item = &'a str> {
    let known: HashSet<String> = before.lines().map(str::to_owned).collect();
    text.lines().filter(move |line| !known.contains(*line))
}

/// Looks at a run.
pub(crate) async fn see(home: &Home, run: &Run) -> Result<Seen, Fault> {
    let call = visitor(home, run);
    let room = Room::of(&call)?;
    let dag = match room.bytes("dag.json").await? {
        Some(_) => Some(room.dag().await?),
        None => None,
    };
    let status = match &dag {
        Some(dag) => Some(room.status(dag).await?),
        None => None,
    };
    let requests = ChangeRequest::all(&room).await?.into_iter().map(|it| it.front).collect();
    Ok(Seen { state: room.state().await?, dag, status, requests, lines: last_lines(home.recent_events(run, RECENT)) })
}

/// How many of the last events are read for what agents did last.
const RECENT: usize = 500;

/// What the agents of tasks said or did last, by the end of the record.
fn last_lines(records: Vec<EventRecord>) -> HashMap<String, String> {
    let mut lines = HashMap::new();
    for record in records {
        let Some(task) = record.task else { continue };
        let text = match &record.event {
            Event::TaskProgress(it) => it.content.trim().lines().next_back(),
            Event::ToolCall(it) => Some(it.tool_name.as_str()),
            _ => None,
        };
        if let Some(text) = text {
            lines.insert(task, harmless(&text.chars().take(100).collect::<String>()).into_owned());
        }
    }
    lines
}

impl Seen {
    fn rests(&self) -> bool {
        self.state.as_ref().is_none_or(|it| it.status != RunStatus::Executing)
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
        let merged = status.nodes.values().filter(|it| it.status == Status::Merged).count();
        format!("{run}: {word}, {merged} of {} merged", dag.nodes.len())
    }

    fn text(&self, run: &str, whole: bool) -> String {
        let mut text = self.headline(run);
        let (Some(dag), Some(status), true) = (&self.dag, &self.status, whole) else { return text };
        for node in dag.order() {
            let Some(state) = status.nodes.get(&node.id) else { continue };
            let kind = if node.kind == NodeKind::Refinery {
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
            if state.status == Status::Running
                && let Some(line) = self.lines.get(&node.id)
            {
                _ = write!(text, "\n              {line}");
            }
            if let Some(why) =
                state.last_error.as_deref().filter(|_| matches!(state.status, Status::Failed | Status::Stale))
            {
                let why = why.lines().next().unwrap_or_default();
                _ = write!(text, "\n              {}", harmless(why));
            }
        }
        for request in self.requests.iter().filter(|it| it.status == RequestStatus::Pending) {
            _ = write!(
                text,
                "\n  waits: {} {} (helve forge approve {run} {})",
                request.id,
                harmless(&request.title),
                request.id
            );
        }
        text
    }
}
