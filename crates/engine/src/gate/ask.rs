//! What a person is asked before a call, and the answers.

use helve_contract::{Call, Effects, ProjectFile, async_trait};
use serde_json::Value;

use super::{
    deed::{CallAccess, PathTarget},
    given, suggest,
};
use crate::commands::{display_command, escape_invisible};

/// Somebody who says yes or no to a call: a terminal, a client, a callback.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Puts the question. It may take its time, up to the gate's patience.
    async fn request_approval(&self, question: &ApprovalRequest, call: &Call) -> ApprovalDecision;
}

/// What a person decides about. Nothing invisible is left in its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The tool.
    pub tool: String,
    /// What will happen: the command as it will run, the file that changes, or the arguments.
    pub summary: String,
    /// Every command found in a command line, decoded, in order. Empty for other tools.
    pub commands: Vec<String>,
    /// The files that the call names.
    pub paths: Vec<String>,
    /// The text that the call takes away (`-`) and writes (`+`), or its patch, whole.
    pub diff: Option<String>,
    /// Every argument that none of the other fields shows, whole.
    pub arguments: Vec<Argument>,
    /// The folder that a command starts in.
    pub cwd: Option<String>,
    /// Why it is asked.
    pub reason: String,
    /// What [`ApprovalDecision::AllowForSession`] allows from now on, in words.
    pub session_grant: String,
    /// The narrowest rules for `approval.allow` that let such a call pass from now on. Empty where no rule can.
    pub rules: Vec<String>,
    /// What a broader rule would allow, in words.
    pub broader: Option<String>,
    /// What the tool can do.
    pub effects: Effects,
}

/// One argument of a call, as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name; inside of lists and objects the way to it, such as `edits[0].path`.
    pub name: String,
    /// Its value, with nothing invisible in it.
    pub text: String,
}

/// How much of a text is shown at first.
#[derive(Clone, Copy, Debug)]
pub struct ShownSize {
    /// The most lines.
    pub lines: usize,
    /// The most characters of one line.
    pub columns: usize,
}

impl ShownSize {
    /// The beginning of a text, and whether something is left out. What is left out is marked with its length.
    pub fn shorten(self, text: &str) -> (String, bool) {
        let mut is_cut = false;
        let mut shown: Vec<String> = Vec::new();
        for line in text.lines().take(self.lines) {
            let more = line.chars().count().saturating_sub(self.columns);
            let head: String = line.chars().take(self.columns).collect();
            is_cut |= more > 0;
            shown.push(if more > 0 { format!("{head}… {} more characters", grouped(more)) } else { head });
        }
        let rest: Vec<_> = text.lines().skip(self.lines).collect();
        if !rest.is_empty() {
            is_cut = true;
            let characters: usize = rest.iter().map(|line| line.chars().count()).sum();
            shown.push(format!("… {} more lines, {} more characters", grouped(rest.len()), grouped(characters)));
        }
        (shown.join("\n"), is_cut)
    }
}

/// A number with its thousands apart: `4,120`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// This call, this time.
    AllowOnce,
    /// This and its like, as [`ApprovalRequest::session_grant`] says, until the session ends.
    AllowForSession,
    /// No. The reason reaches the model.
    Deny(String),
}

/// The question about a deed.
pub(super) fn approval_request(deed: &CallAccess<'_>, why: &str) -> ApprovalRequest {
    let (summary, commands) = match &deed.command {
        Some(command) => display_command(command, deed.parsed.as_ref()),
        None => (summary(deed), Vec::new()),
    };
    let folder = deed.command.as_ref().map(|_| escape_invisible(&deed.start_dir().to_string_lossy()));
    let mut texts = Texts { shown: shown_elsewhere(deed, folder.as_deref()), ..Texts::default() };
    if deed.command.is_some() || !holds_arguments(deed) {
        texts.walk("", deed.args);
    }
    let suggestion = suggest::suggest(deed);
    ApprovalRequest {
        tool: deed.spec.name.clone(),
        summary: bounded(summary),
        commands,
        paths: deed.targets.iter().map(PathTarget::display).collect(),
        diff: Some(bounded(texts.diff.join("\n"))).filter(|it| !it.is_empty()),
        arguments: texts.arguments,
        cwd: folder,
        reason: escape_invisible(&with_runners(why, deed)),
        session_grant: given::describe_grant(deed),
        rules: suggestion.rules,
        broader: suggestion.broader,
        effects: deed.spec.effects,
    }
}

/// The reason, and for each file that another program runs without being told to, which program that is.
fn with_runners(why: &str, deed: &CallAccess<'_>) -> String {
    let mut text = why.to_owned();
    if deed.command.is_some() || !deed.spec.effects.contains(Effects::WRITES) {
        return text;
    }
    for target in &deed.targets {
        let (PathTarget::Inside { relative: path, .. } | PathTarget::Outside(path)) = target;
        if let Some(row) = ProjectFile::find(path) {
            text += &format!("; {} is run by {}", target.display(), row.run_by);
        }
    }
    text
}

/// What a call without a command does, in one line: the files or the address, or else short arguments.
fn summary(deed: &CallAccess<'_>) -> String {
    match (deed.targets.as_slice(), deed.url()) {
        (_, Some(url)) => format!("{} {}", deed.spec.name, escape_invisible(url)),
        ([], None) if holds_arguments(deed) => {
            format!("{} {}", deed.spec.name, escape_invisible(&deed.args.to_string()))
        }
        ([], None) => deed.spec.name.clone(),
        (targets, None) => {
            let paths: Vec<_> = targets.iter().map(PathTarget::display).collect();
            format!("{} {}", deed.spec.name, paths.join(", "))
        }
    }
}

/// Whether the summary shows all arguments: they are short, and there is nothing better to show.
fn holds_arguments(deed: &CallAccess<'_>) -> bool {
    let text = deed.args.to_string();
    deed.targets.is_empty() && deed.url().is_none() && text.len() <= MAX_SUMMARY && !text.contains("\\n")
}

/// Texts that the command, the address, the paths and the folder of a question show already.
fn shown_elsewhere(deed: &CallAccess<'_>, folder: Option<&str>) -> Vec<String> {
    let ends_with = |path: &str, text: &str| {
        let text = escape_invisible(text.trim_start_matches("./"));
        path == text || path.strip_suffix(&text).is_some_and(|before| before.ends_with('/') || text.starts_with('/'))
    };
    let paths: Vec<String> = deed.targets.iter().map(super::deed::PathTarget::display).collect();
    let places = || paths.iter().map(String::as_str).chain(folder);
    let mut shown: Vec<String> = deed.command.iter().cloned().chain(deed.url().map(str::to_owned)).collect();
    let fields = deed.args.as_object().into_iter().flat_map(|args| args.values()).filter_map(Value::as_str);
    shown.extend(fields.filter(|text| places().any(|place| ends_with(place, text))).map(str::to_owned));
    shown
}

/// The longest arguments that a summary shows as JSON.
const MAX_SUMMARY: usize = 200;
/// The longest text that a question holds, in characters.
const MAX_TEXT: usize = 1_000_000;
/// The most arguments that a question lists.
const MAX_ARGUMENTS: usize = 1000;

/// The texts in the arguments of a call.
#[derive(Default)]
struct Texts {
    /// Texts that need not be shown again.
    shown: Vec<String>,
    diff: Vec<String>,
    arguments: Vec<Argument>,
}

impl Texts {
    /// Takes every value, however deep. Which parameters carry text does not matter, so that none is left out.
    fn walk(&mut self, name: &str, value: &Value) {
        match value {
            Value::Null => {}
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.walk(&if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, value);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.walk(&format!("{name}[{at}]"), item);
                }
            }
            Value::String(text) => self.take(name, text),
            other => self.push(name, other.to_string()),
        }
    }

    fn take(&mut self, name: &str, text: &str) {
        let key = name.rsplit('.').next().unwrap_or(name).replace('_', "").to_ascii_lowercase();
        if matches!(key.as_str(), "patch" | "input" | "diff") && (text.contains("*** ") || text.contains("+++ ")) {
            self.diff.push(diff_side("", text));
        } else if key.starts_with("old") {
            self.diff.push(diff_side("-", text));
        } else if key.starts_with("new") || key == "content" || key == "contents" {
            self.diff.push(diff_side("+", text));
        } else if !self.shown.iter().any(|it| it == text) {
            self.push(name, escape_invisible(text));
        }
    }

    fn push(&mut self, name: &str, text: String) {
        match self.arguments.len() {
            MAX_ARGUMENTS => self.arguments.push(Argument { name: "…".into(), text: "more arguments".into() }),
            more if more > MAX_ARGUMENTS => {}
            _ => self.arguments.push(Argument { name: escape_invisible(name), text: bounded(text) }),
        }
    }
}

/// The lines of a text behind a mark. Empty lines in a row beyond a few are counted.
fn diff_side(mark: &str, text: &str) -> String {
    let mut lines = Vec::new();
    let mut empty = 0;
    let text = text.strip_suffix('\n').unwrap_or(text);
    for line in text.split('\n').map(Some).chain([None]) {
        if line.is_some_and(|it| it.trim().is_empty()) {
            empty += 1;
            lines.push(format!("{mark}{}", line.map(escape_invisible).unwrap_or_default()));
            continue;
        }
        if empty > MAX_EMPTY_LINES {
            lines.truncate(lines.len() - empty);
            lines.push(format!("{mark}⟨{empty} empty lines⟩"));
        }
        empty = 0;
        lines.extend(line.map(|line| format!("{mark}{}", escape_invisible(line))));
    }
    lines.join("\n")
}

/// Empty lines in a row that are shown; more of them would push the rest out of sight.
const MAX_EMPTY_LINES: usize = 16;

/// A text that a question can hold. What is left out is marked with its length.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        None => text,
        Some((end, _)) => {
            format!("{}\n… {} more characters", &text[..end], grouped(text[end..].chars().count()))
        }
    }
}
