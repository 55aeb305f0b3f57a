//! Formats calls, results, to-do lists, diffs and costs in few lines.

use std::{fmt::Write as _, time::Duration};

use helve_contract::{
    Reply,
    ports::{Todo, TodoStatus, TokenUsage},
};
use serde_json::Value;

use super::TerminalCapabilities;
use crate::{print::escape_for_terminal, undo::FileDiff};

/// The arguments that describe a call best, in order.
const SUMMARY_ARGUMENTS: [&str; 17] = [
    "command",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "title",
    "prompt",
    "task",
    "text",
    "skill",
    "session_id",
    "task_id",
    "id",
    "name",
];
/// The maximum length of a line about a call.
const MAX_CALL_CHARS: usize = 100;
/// Lines of a diff that are shown.
const DIFF_LINES: usize = 40;

/// A call: the tool and what it is about.
pub(crate) fn format_call(name: &str, input: &str) -> String {
    let about = main_argument(input);
    if about.is_empty() {
        escape_for_terminal(name).into_owned()
    } else {
        format!("{} {about}", escape_for_terminal(name))
    }
}

/// The most telling argument of a call.
fn main_argument(input: &str) -> String {
    let args: Value = serde_json::from_str(input).unwrap_or_default();
    let Some(map) = args.as_object() else { return one_line(input, MAX_CALL_CHARS) };
    let told = SUMMARY_ARGUMENTS.iter().find_map(|key| map.get(*key)?.as_str()).map(str::to_owned);
    let told = told.unwrap_or_else(|| if map.is_empty() { String::new() } else { args.to_string() });
    one_line(&told, MAX_CALL_CHARS)
}

/// Text on one line, escaped and truncated.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut lines = text.trim().lines().map(str::trim_end);
    let first = lines.next().unwrap_or_default();
    let more = lines.next().is_some();
    let shown: String = first.chars().take(most).collect();
    let cut = more || shown.len() < first.len();
    format!("{}{}", escape_for_terminal(&shown), if cut { " …" } else { "" })
}

/// How a call went: a mark, what it was, and what there is to say in few words.
pub(crate) fn format_result(look: TerminalCapabilities, call: &str, reply: &Reply, time: Duration) -> String {
    let mark = if reply.is_error {
        look.style("31", look.symbol("✗", "x"))
    } else {
        look.style("32", look.symbol("✓", "+"))
    };
    let mut facts = Vec::new();
    facts.extend(reply.exit_code.map(|code| format!("exit {code}")));
    if reply.exit_code.is_none() && !reply.is_error {
        let lines = reply.text.lines().count();
        if lines > 1 {
            facts.push(format!("{lines} lines"));
        }
    }
    facts.extend(reply.sandbox.clone());
    facts.push(format_duration(time));
    let mut line = format!("{mark} {call}  {}", look.dim(&facts.join(" · ")));
    if reply.is_error {
        let why = reply.text.lines().rfind(|it| !it.trim().is_empty() && reply.exit_code.is_some());
        let why = why.unwrap_or_else(|| reply.text.trim());
        _ = write!(line, "\n  {}", look.style("31", &one_line(why, 200)));
    }
    line
}

/// What a call changed in files, as short diffs.
pub(crate) fn format_diffs(look: TerminalCapabilities, changed: &[FileDiff]) -> String {
    let mut out = String::new();
    for change in changed {
        let diff = &change.diff;
        let head = format!("  {} (+{} -{})", escape_for_terminal(&change.display_path), diff.added, diff.removed);
        _ = writeln!(out, "{}", look.dim(&head));
        let lines: Vec<&String> = diff.hunks.iter().flat_map(|hunk| &hunk.lines).collect();
        for line in lines.iter().take(DIFF_LINES) {
            let shown = one_line(line, 160);
            let shown = match line.as_bytes().first() {
                Some(b'+') => look.style("32", &shown),
                Some(b'-') => look.style("31", &shown),
                _ => look.dim(&format!(" {shown}")),
            };
            _ = writeln!(out, "    {shown}");
        }
        if lines.len() > DIFF_LINES {
            _ = writeln!(out, "    {}", look.dim(&format!("{} more lines", lines.len() - DIFF_LINES)));
        }
    }
    out
}

/// The to-do list.
pub(crate) fn format_todos(look: TerminalCapabilities, todos: &[Todo]) -> String {
    let mut out = String::new();
    for todo in todos {
        let (mark, text) = match todo.status {
            TodoStatus::Completed => {
                (look.style("32", look.symbol("☒", "[x]")), look.dim(&one_line(&todo.content, MAX_CALL_CHARS)))
            }
            TodoStatus::InProgress => {
                (look.style("33", look.symbol("◐", "[~]")), look.bold(&one_line(&todo.active_form, MAX_CALL_CHARS)))
            }
            TodoStatus::Pending => (look.symbol("☐", "[ ]").to_owned(), one_line(&todo.content, MAX_CALL_CHARS)),
        };
        _ = writeln!(out, "  {mark} {text}");
    }
    out
}

/// A stretch of time.
pub(crate) fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// Tokens and dollars.
pub(crate) fn format_usage(spent: &TokenUsage) -> String {
    let tokens = format!("{} in, {} out", format_count(spent.prompt_tokens), format_count(spent.completion_tokens));
    if spent.cost > 0.0 { format!("{tokens}, ${:.4}", spent.cost) } else { tokens }
}

/// A number in few letters.
pub(crate) fn format_count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1000),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line() {
        let seen = [
            format_call("Read", r#"{"file_path":"/a/b.rs","limit":5}"#),
            format_call("Bash", "{\"command\":\"make\\ntest \\u001b[2J\"}"),
            format_call("TodoWrite", "{}"),
            format_call("odd", "not json"),
            format_call("think", r#"{"depth":2}"#),
        ];
        assert_eq!(seen, ["Read /a/b.rs", "Bash make …", "TodoWrite", "odd not json", r#"think {"depth":2}"#]);
    }

    #[test]
    fn an_outcome_says_what_matters() {
        let look = TerminalCapabilities::PLAIN;
        let ok = Reply::from("a\nb\nc");
        let bad = Reply { exit_code: Some(2), sandbox: Some("L3".into()), ..Reply::error("first\nlast words") };
        assert_eq!(format_result(look, "Read a", &ok, Duration::from_millis(3)), "✓ Read a  3 lines · 3 ms");
        assert_eq!(
            format_result(look, "Bash make", &bad, Duration::from_millis(1234)),
            "✗ Bash make  exit 2 · L3 · 1.2 s\n  last words"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([format_count(7), format_count(12_345), format_count(2_500_000)], ["7", "12k", "2.5M"]);
        assert_eq!(format_duration(Duration::from_secs(75)), "1 min 15 s");
        let spent = TokenUsage { prompt_tokens: 1200, completion_tokens: 30, cost: 0.0123, ..TokenUsage::default() };
        assert_eq!(format_usage(&spent), "1200 in, 30 out, $0.0123");
    }
}
