//! One line for a call, one for its outcome; to-do lists, diffs and bills in few words.

use std::{fmt::Write as _, time::Duration};

use helve_contract::{
    Reply,
    ports::{Spent, Todo, TodoStatus},
};
use serde_json::Value;

use super::Look;
use crate::{print::harmless, undo::Changed};

/// The arguments that tell most about a call, the first before the others.
const TELLING: [&str; 17] = [
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
/// No line about a call is longer.
const LONGEST: usize = 100;
/// Lines of a diff that are shown.
const DIFF_LINES: usize = 40;

/// A call: the tool and what it is about.
pub(crate) fn calling(name: &str, input: &str) -> String {
    let about = about(input);
    if about.is_empty() { harmless(name).into_owned() } else { format!("{} {about}", harmless(name)) }
}

/// The most telling argument of a call.
fn about(input: &str) -> String {
    let args: Value = serde_json::from_str(input).unwrap_or_default();
    let Some(map) = args.as_object() else { return short(input, LONGEST) };
    let told = TELLING.iter().find_map(|key| map.get(*key)?.as_str()).map(str::to_owned);
    let told = told.unwrap_or_else(|| if map.is_empty() { String::new() } else { args.to_string() });
    short(&told, LONGEST)
}

/// Text on one line, harmless, and not too long.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut lines = text.trim().lines().map(str::trim_end);
    let first = lines.next().unwrap_or_default();
    let more = lines.next().is_some();
    let shown: String = first.chars().take(most).collect();
    let cut = more || shown.len() < first.len();
    format!("{}{}", harmless(&shown), if cut { " …" } else { "" })
}

/// How a call went: a mark, what it was, and what there is to say in few words.
pub(crate) fn called(look: Look, call: &str, reply: &Reply, time: Duration) -> String {
    let mark =
        if reply.is_error { look.ink("31", look.mark("✗", "x")) } else { look.ink("32", look.mark("✓", "+")) };
    let mut facts = Vec::new();
    facts.extend(reply.exit.map(|code| format!("exit {code}")));
    if reply.exit.is_none() && !reply.is_error {
        let lines = reply.text.lines().count();
        if lines > 1 {
            facts.push(format!("{lines} lines"));
        }
    }
    facts.extend(reply.wall.clone());
    facts.push(took(time));
    let mut line = format!("{mark} {call}  {}", look.dim(&facts.join(" · ")));
    if reply.is_error {
        let why = reply.text.lines().rfind(|it| !it.trim().is_empty() && reply.exit.is_some());
        let why = why.unwrap_or_else(|| reply.text.trim());
        _ = write!(line, "\n  {}", look.ink("31", &short(why, 200)));
    }
    line
}

/// What a call changed in files, as short diffs.
pub(crate) fn changes(look: Look, changed: &[Changed]) -> String {
    let mut out = String::new();
    for change in changed {
        let diff = &change.diff;
        let head = format!("  {} (+{} -{})", harmless(&change.shown), diff.added, diff.removed);
        _ = writeln!(out, "{}", look.dim(&head));
        let lines: Vec<&String> = diff.hunks.iter().flat_map(|hunk| &hunk.lines).collect();
        for line in lines.iter().take(DIFF_LINES) {
            let shown = short(line, 160);
            let shown = match line.as_bytes().first() {
                Some(b'+') => look.ink("32", &shown),
                Some(b'-') => look.ink("31", &shown),
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
pub(crate) fn todos(look: Look, todos: &[Todo]) -> String {
    let mut out = String::new();
    for todo in todos {
        let (mark, text) = match todo.status {
            TodoStatus::Completed => (look.ink("32", look.mark("☒", "[x]")), look.dim(&short(&todo.content, LONGEST))),
            TodoStatus::InProgress => {
                (look.ink("33", look.mark("◐", "[~]")), look.bold(&short(&todo.active_form, LONGEST)))
            }
            TodoStatus::Pending => (look.mark("☐", "[ ]").to_owned(), short(&todo.content, LONGEST)),
        };
        _ = writeln!(out, "  {mark} {text}");
    }
    out
}

/// A stretch of time.
pub(crate) fn took(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// Tokens and dollars.
pub(crate) fn money(spent: &Spent) -> String {
    let tokens = format!("{} in, {} out", count(spent.prompt_tokens), count(spent.completion_tokens));
    if spent.cost > 0.0 { format!("{tokens}, ${:.4}", spent.cost) } else { tokens }
}

/// A number in few letters.
pub(crate) fn count(number: u64) -> String {
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
            calling("Read", r#"{"file_path":"/a/b.rs","limit":5}"#),
            calling("Bash", "{\"command\":\"make\\ntest \\u001b[2J\"}"),
            calling("TodoWrite", "{}"),
            calling("odd", "not json"),
            calling("think", r#"{"depth":2}"#),
        ];
        assert_eq!(seen, ["Read /a/b.rs", "Bash make …", "TodoWrite", "odd not json", r#"think {"depth":2}"#]);
    }

    #[test]
    fn an_outcome_says_what_matters() {
        let look = Look::PLAIN;
        let ok = Reply::from("a\nb\nc");
        let bad = Reply { exit: Some(2), wall: Some("L3".into()), ..Reply::failed("first\nlast words") };
        assert_eq!(called(look, "Read a", &ok, Duration::from_millis(3)), "✓ Read a  3 lines · 3 ms");
        assert_eq!(
            called(look, "Bash make", &bad, Duration::from_millis(1234)),
            "✗ Bash make  exit 2 · L3 · 1.2 s\n  last words"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([count(7), count(12_345), count(2_500_000)], ["7", "12k", "2.5M"]);
        assert_eq!(took(Duration::from_secs(75)), "1 min 15 s");
        let spent = Spent { prompt_tokens: 1200, completion_tokens: 30, cost: 0.0123, ..Spent::default() };
        assert_eq!(money(&spent), "1200 in, 30 out, $0.0123");
    }
}
