//! The graph of a run on a terminal: a line a task, deeper ones further to the right, with state, time and last words.

use std::{
    collections::HashMap,
    io::{self, Write as _},
};

use helve_contract::jiff::Timestamp;
use helve_tools::artifacts::{Dag, Node, NodeKind, NodeStatus, RequestStatus, Status};

use super::look::Seen;
use crate::{print::harmless, terminal::Look};

/// How far to the right the deepest task stands.
const DEEPEST: usize = 12;

/// A terminal that is drawn on again and again.
pub(super) struct Canvas {
    look: Look,
    columns: usize,
    rows: usize,
    drawn: usize,
}

impl Canvas {
    /// Standard output, if it can be drawn on.
    pub(super) fn found() -> Option<Self> {
        let look = Look::of(&io::stdout());
        look.live.then_some(Self { look, columns: 80, rows: 24, drawn: 0 })
    }

    /// Draws over what was drawn before.
    pub(super) fn draw(&mut self, run: &str, seen: &Seen) -> io::Result<()> {
        // Somebody may have pulled at the window.
        if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) {
            let or = |size: u16, usual: usize| if size == 0 { usual } else { usize::from(size) };
            (self.columns, self.rows) = (or(size.ws_col, 80).max(20), or(size.ws_row, 24).max(4));
        }
        let lines = seen.drawn(run, Timestamp::now(), self.look, (self.columns - 1, self.rows - 1));
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

impl Seen {
    /// The lines of a picture that has room for so many columns and rows.
    fn drawn(&self, run: &str, now: Timestamp, look: Look, (columns, rows): (usize, usize)) -> Vec<String> {
        let mut head = self.headline(run);
        let began = self.state.as_ref().and_then(|it| Some((it.started_at?, it.completed_at.unwrap_or(now))));
        if let Some((began, ended)) = began {
            head = format!("{head}, {}", span(began, ended));
        }
        let mut lines = vec![look.bold(&fitted(&head, columns))];
        let (Some(dag), Some(status)) = (&self.dag, &self.status) else { return lines };
        let mut tasks = Vec::new();
        let depth = depths(dag);
        for node in dag.order() {
            if let Some(state) = status.nodes.get(&node.id) {
                let indent = depth.get(node.id.as_str()).copied().unwrap_or_default().min(DEEPEST);
                tasks.push((state.status, self.row(node, state, (indent, now, look), columns)));
            }
        }
        let waiting: Vec<String> = self
            .requests
            .iter()
            .filter(|it| it.status == RequestStatus::Pending)
            .map(|it| {
                fitted(
                    &format!("  waits: {} {} (helve forge approve {run} {})", it.id, harmless(&it.title), it.id),
                    columns,
                )
            })
            .collect();
        let room = rows.saturating_sub(1 + waiting.len());
        let hidden = hide(&mut tasks, room);
        lines.extend(tasks.into_iter().map(|(_, line)| line));
        if hidden > 0 {
            lines.push(look.dim(&format!("  and {hidden} more")));
        }
        lines.extend(waiting);
        lines
    }

    fn row(
        &self,
        node: &Node,
        state: &NodeStatus,
        (indent, now, look): (usize, Timestamp, Look),
        columns: usize,
    ) -> String {
        let (colour, unicode, ascii) = match state.status {
            Status::Pending => ("2", "○", "."),
            Status::Running => ("33", "●", "*"),
            Status::Done | Status::MergeReady => ("36", "◆", "="),
            Status::Merged => ("32", "✔", "+"),
            Status::Failed | Status::Stale => ("31", "✖", "x"),
        };
        let mut text =
            format!("{:indent$}{} {} {}", "", look.mark(unicode, ascii), node.id, state.status, indent = 2 + indent);
        if node.kind == NodeKind::Refinery {
            text.push_str("  refinery");
        }
        if state.current_attempt > 1 {
            text = format!("{text}  attempt {}", state.current_attempt);
        }
        if let Some(began) = state.started_at {
            let ended = state.completed_at.filter(|_| state.status != Status::Running).unwrap_or(now);
            text = format!("{text}  {}", span(began, ended));
        }
        let words = match state.status {
            Status::Running => self.lines.get(&node.id).map(String::as_str),
            Status::Failed | Status::Stale => state.last_error.as_deref().and_then(|it| it.lines().next()),
            _ => None,
        };
        if let Some(words) = words {
            text = format!("{text}  {}", harmless(words));
        }
        if state.status == Status::Pending && !node.dependencies.is_empty() {
            text = format!("{text}  after {}", node.dependencies.join(", "));
        }
        look.ink(colour, &fitted(&text, columns))
    }
}

/// Takes lines away until the rest fits: of what is merged first, then of what waits, then from the end. How many.
fn hide(tasks: &mut Vec<(Status, String)>, room: usize) -> usize {
    let all = tasks.len();
    if all <= room {
        return 0;
    }
    // One line says how many are not shown.
    let room = room.saturating_sub(1);
    for dull in [Status::Merged, Status::Pending] {
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

/// How many tasks must come before each, one after another.
fn depths(dag: &Dag) -> HashMap<&str, usize> {
    let mut depths: HashMap<&str, usize> = HashMap::new();
    for node in dag.order() {
        let before = node.dependencies.iter().filter_map(|it| depths.get(it.as_str())).max();
        let depth = before.map_or(0, |it| it + 1);
        depths.insert(&node.id, depth);
    }
    depths
}

/// A time between two moments: `14 s`, `3 m 05 s`, `2 h 10 m`.
fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A line that fits: a wrapped one would be counted wrong when the picture is drawn over.
fn fitted(text: &str, columns: usize) -> String {
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

    fn seen() -> Seen {
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
        for to in [Status::Running, Status::Done, Status::MergeReady, Status::Merged] {
            status.go(&dag, "a", to, began).unwrap();
        }
        status.go(&dag, "b", Status::Running, began).unwrap();
        let lines = HashMap::from([("b".to_owned(), "cargo test\u{7}".to_owned())]);
        Seen { state: None, dag: Some(dag), status: Some(status), requests: Vec::new(), lines }
    }

    #[test]
    fn a_line_tells_state_time_and_last_words() {
        let now = Timestamp::from_second(75).unwrap();
        let lines = seen().drawn("r", now, Look::PLAIN, (60, 20));
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
        let lines = seen().drawn("r", now, Look::PLAIN, (22, 3));
        assert_eq!(lines, ["r: planning, 1 of 3 m…", "  ● b RUNNING  1 m 15…", "  and 2 more"]);
    }
}
