//! Asking a person.

use helve_contract::{Call, Effects, async_trait};
use serde_json::Value;

use super::{deed::Deed, given};
use crate::commands::{show_command, visible};

/// Somebody who says yes or no to a call: a terminal, a client, a callback.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Puts the question. It may take its time, up to the gate's patience.
    async fn ask(&self, question: &Question, call: &Call) -> Answer;
}

/// What a person decides about. Nothing invisible is left in its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The tool.
    pub tool: String,
    /// What will happen: the command as it will run, the file that changes, or the arguments.
    pub summary: String,
    /// Every command found in a command line, decoded, in order. Empty for other tools.
    pub commands: Vec<String>,
    /// The files that the call names.
    pub paths: Vec<String>,
    /// The old and new text of an edit, as a short diff.
    pub diff: Option<String>,
    /// The folder that a command starts in.
    pub folder: Option<String>,
    /// Why it is asked.
    pub why: String,
    /// What [`Answer::Session`] allows from now on, in words.
    pub grant: String,
    /// What the tool can do.
    pub effects: Effects,
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This call, this time.
    Once,
    /// This and its like, as [`Question::grant`] says, until the session ends.
    Session,
    /// No. The reason reaches the model.
    Deny(String),
}

/// The question about a deed.
pub(super) fn question(deed: &Deed<'_>, why: &str) -> Question {
    let (summary, commands) = match &deed.command {
        Some(command) => show_command(command, deed.reading.as_ref()),
        None => (summary(deed), Vec::new()),
    };
    Question {
        tool: deed.spec.name.clone(),
        summary,
        commands,
        paths: deed.targets.iter().map(super::deed::Target::shown).collect(),
        diff: diff(deed.args),
        folder: deed.command.as_ref().map(|_| visible(&deed.start().to_string_lossy())),
        why: visible(why),
        grant: given::grant_in_words(deed),
        effects: deed.spec.effects,
    }
}

/// What a call without a command does, in one line: the files or the address, or else the arguments.
fn summary(deed: &Deed<'_>) -> String {
    match (deed.targets.as_slice(), deed.url()) {
        (_, Some(url)) => format!("{} {}", deed.spec.name, visible(url)),
        ([], None) => format!("{} {}", deed.spec.name, visible(&deed.args.to_string())),
        (targets, None) => {
            let paths: Vec<_> = targets.iter().map(super::deed::Target::shown).collect();
            format!("{} {}", deed.spec.name, paths.join(", "))
        }
    }
}

/// The most lines of a diff on either side, and the longest of them.
const MOST_LINES: usize = 40;
const LONGEST_LINE: usize = 300;

/// A short diff, where the arguments hold the old and the new text.
fn diff(args: &Value) -> Option<String> {
    let text = |names: &[&str]| names.iter().find_map(|name| args.get(*name)?.as_str());
    if let Some(patch) = text(&["patch", "input"]).filter(|it| it.contains("*** ") || it.contains("+++ ")) {
        return Some(side("", patch));
    }
    let old = text(&["old_string", "old_text", "old_str", "oldText"]);
    let new = text(&["new_string", "new_text", "new_str", "newText", "new_source", "content"]);
    match (old, new) {
        (None, None) => None,
        (old, new) => {
            let sides = [old.map(|old| side("-", old)), new.map(|new| side("+", new))];
            Some(sides.into_iter().flatten().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n"))
        }
    }
}

fn side(mark: &str, text: &str) -> String {
    let mut lines: Vec<String> = text
        .lines()
        .take(MOST_LINES)
        .map(|line| format!("{mark}{}", visible(&line.chars().take(LONGEST_LINE).collect::<String>())))
        .collect();
    let more = text.lines().count().saturating_sub(MOST_LINES);
    if more > 0 {
        lines.push(format!("{mark}⟨{more} more lines⟩"));
    }
    lines.join("\n")
}
