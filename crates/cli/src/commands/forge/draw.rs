//! Draws the graph of a run on a terminal: one line per task, indented by depth, with state, time and last message.

use std::{
    collections::HashMap,
    io::{self, Write as _},
};

use helve_contract::jiff::Timestamp;
use helve_tools::artifacts::{ChangeRequestStatus, Dag, DagNode, DagNodeKind, NodeStatus, TaskStatus};

use super::look::RunView;
use crate::{print::escape_for_terminal, terminal::TerminalCapabilities};

/// The maximum indentation.
const MAX_INDENT: usize = 12;

/// A terminal that is redrawn.
pub(super) struct GraphCanvas {
    capabilities: TerminalCapabilities,
    columns: usize,
    rows: usize,
    drawn: usize,
}

impl GraphCanvas {
    /// Standard output, if it can be drawn on.
    pub(super) fn detect() -> Option<Self> {
        let look = TerminalCapabilities::detect(&io::stdout());
        look.can_redraw.then_some(Self { capabilities: look, columns: 80, rows: 24, drawn: 0 })
    }

    /// Draws over what was drawn before.
    pub(super) fn draw(&mut self, run: &str, seen: &RunView) -> io::Result<()> {
        // The window may have been resized.
        if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) {
            let or = |size: u16, usual: usize| if size == 0 { usual } else { usize::from(size) };
            (self.columns, self.rows) = (or(size.ws_col, 80).max(20), or(size.ws_row, 24).max(4));
        }
        let lines = seen.render(run, Timestamp::now(), self.capabilities, (self.columns - 1, self.rows - 1));
        let mut out = io::stdout().lock();
        if self.drawn > 0 {
            write!(out, "\u{1b}[{}A\u{1b}[J", self.drawn)?;
        }
        for line in &lines {
            writeln!(out, "{line}")?;
        }
        self.drawn = lines.len();
        out.flush()
    }
}

impl RunView {
    /// The lines of a drawing with this many columns and rows.
    fn render(
        &self,
        run: &str,
        now: Timestamp,
        look: TerminalCapabilities,
        (columns, rows): (usize, usize),
    ) -> Vec<String> {
        let mut head = self.headline(run);
        let began = self.state.as_ref().and_then(|it| Some((it.started_at?, it.completed_at.unwrap_or(now))));
        if let Some((began, ended)) = began {
            head = format!("{head}, {}", format_elapsed(began, ended));
        }
        let mut lines = vec![look.bold(&fit_columns(&head, columns))];
        let (Some(dag), Some(status)) = (&self.dag, &self.status) else { return lines };
        let mut tasks = Vec::new();
        let depth = depths(dag);
        for node in dag.topological_order() {
            if let Some(state) = status.nodes.get(&node.id) {
                let indent = depth.get(node.id.as_str()).copied().unwrap_or_default().min(MAX_INDENT);
                tasks.push((state.status, self.render_row(node, state, (indent, now, look), columns)));
            }
        }
        let waiting: Vec<String> = self
            .requests
            .iter()
            .filter(|it| it.status == ChangeRequestStatus::Pending)
            .map(|it| {
                fit_columns(
                    &format!(
                        "  waits: {} {} (helve forge approve {run} {})",
                        it.id,
                        escape_for_terminal(&it.title),
                        it.id
                    ),
                    columns,
                )
            })
            .collect();
        let room = rows.saturating_sub(1 + waiting.len());
        let hidden = drop_rows(&mut tasks, room);
        lines.extend(tasks.into_iter().map(|(_, line)| line));
        if hidden > 0 {
            lines.push(look.dim(&format!("  and {hidden} more")));
        }
        lines.extend(waiting);
        lines
    }

    fn render_row(
        &self,
        node: &DagNode,
        state: &NodeStatus,
        (indent, now, look): (usize, Timestamp, TerminalCapabilities),
        columns: usize,
    ) -> String {
        let (colour, unicode, ascii) = match state.status {
            TaskStatus::Pending => ("2", "○", "."),
            TaskStatus::Running => ("33", "●", "*"),
            TaskStatus::Done | TaskStatus::MergeReady => ("36", "◆", "="),
            TaskStatus::Merged => ("32", "✔", "+"),
            TaskStatus::Failed | TaskStatus::Stale => ("31", "✖", "x"),
        };
        let mut text =
            format!("{:indent$}{} {} {}", "", look.symbol(unicode, ascii), node.id, state.status, indent = 2 + indent);
        if node.kind == DagNodeKind::Refinery {
            text.push_str("  refinery");
        }
        if state.current_attempt > 1 {
            text = format!("{text}  attempt {}", state.current_attempt);
        }
        if let Some(began) = state.started_at {
            let ended = state.completed_at.filter(|_| state.status != TaskStatus::Running).unwrap_or(now);
            text = format!("{text}  {}", format_elapsed(began, ended));
        }
        let words = match state.status {
            TaskStatus::Running => self.activity.get(&node.id).map(String::as_str),
            TaskStatus::Failed | TaskStatus::Stale => state.last_error.as_deref().and_then(|it| it.lines().next()),
            _ => None,
        };
        if let Some(words) = words {
            text = format!("{text}  {}", escape_for_terminal(words));
        }
        if state.status == TaskStatus::Pending && !node.dependencies.is_empty() {
            text = format!("{text}  after {}", node.dependencies.join(", "));
        }
        look.style(colour, &fit_columns(&text, columns))
    }
}

/// Removes lines until the rest fits: merged tasks first, then waiting ones, then from the end. Returns the number.
fn drop_rows(tasks: &mut Vec<(TaskStatus, String)>, room: usize) -> usize {
    let all = tasks.len();
    if all <= room {
        return 0;
    }
    // One line says how many are not shown.
    let room = room.saturating_sub(1);
    for dull in [TaskStatus::Merged, TaskStatus::Pending] {
        let mut surplus = tasks.len().saturating_sub(room);
        tasks.retain(|(status, _)| {
            let keep = *status != dull || surplus == 0;
            surplus -= usize::from(!keep);
            keep
        });
    }
    tasks.truncate(room);
    all - tasks.len()
}

/// The length of the longest dependency chain before each task.
fn depths(dag: &Dag) -> HashMap<&str, usize> {
    let mut depths: HashMap<&str, usize> = HashMap::new();
    for node in dag.topological_order() {
        let before = node.dependencies.iter().filter_map(|it| depths.get(it.as_str())).max();
        let depth = before.map_or(0, |it| it + 1);
        depths.insert(&node.id, depth);
    }
    depths
}

/// A time between two moments: `14 s`, `3 m 05 s`, `2 h 10 m`.
fn format_elapsed(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Truncates a line to the width: a wrapped line would break redrawing.
fn fit_columns(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use helve_tools::artifacts::DagStatus;
    use serde_json::json;

    use super::*;

    fn seen() -> RunView {
        let node = |id: &str, kind: &str, agent: serde_json::Value, before: &[&str]| json!({ "id": id, "type": kind, "agentType": agent, "dependencies": before, "status": "PENDING" });
        let dag: Dag = serde_json::from_value(json!({
            "version": 1, "runId": "r",
            "nodes": [
                node("a", "task", json!(1), &[]),
                node("b", "task", json!(2), &[]),
                node("m", "refinery", json!("refinery"), &["a", "b"]),
            ],
            "metadata": { "createdAt": "2026-01-01T00:00:00Z", "createdBy": "captain", "totalTasks": 2, "totalRefineries": 1 },
        }))
        .unwrap();
        let began = Timestamp::UNIX_EPOCH;
        let mut status = DagStatus::new(&dag, began);
        for to in [TaskStatus::Running, TaskStatus::Done, TaskStatus::MergeReady, TaskStatus::Merged] {
            status.transition(&dag, "a", to, began).unwrap();
        }
        status.transition(&dag, "b", TaskStatus::Running, began).unwrap();
        let lines = HashMap::from([("b".to_owned(), "cargo test\u{7}".to_owned())]);
        RunView { state: None, dag: Some(dag), status: Some(status), requests: Vec::new(), activity: lines }
    }

    #[test]
    fn a_line_tells_state_time_and_last_words() {
        let now = Timestamp::from_second(75).unwrap();
        let lines = seen().render("r", now, TerminalCapabilities::PLAIN, (60, 20));
        assert_eq!(
            lines,
            [
                "r: planning, 1 of 3 merged",
                "  ✔ a MERGED  0 s",
                "  ● b RUNNING  1 m 15 s  cargo test\\x07",
                "   ○ m PENDING  refinery  after a, b",
            ]
        );
    }

    #[test]
    fn what_does_not_fit_is_cut_and_counted() {
        let now = Timestamp::from_second(75).unwrap();
        let lines = seen().render("r", now, TerminalCapabilities::PLAIN, (22, 3));
        assert_eq!(lines, ["r: planning, 1 of 3 m…", "  ● b RUNNING  1 m 15…", "  and 2 more"]);
    }
}
