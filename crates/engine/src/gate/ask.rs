//! Approval prompts and decisions: what a person sees before a call.

use helve_contract::{Call, Effects, ProjectFile, async_trait};
use serde_json::Value;

use super::{
    deed::{CallAccess, PathTarget},
    given, suggest,
};
use crate::commands::{display_command, escape_invisible};

/// Decides about calls: a terminal, a client, a callback.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Shows the prompt and waits for the decision, up to the gate's approval timeout.
    async fn request_approval(&self, question: &ApprovalRequest, call: &Call) -> ApprovalDecision;
}

/// The content of an approval prompt. Invisible characters are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The tool.
    pub tool: String,
    /// What will happen: the command, the changed file, or the arguments.
    pub summary: String,
    /// Every command found in a command line, decoded, in order. Empty for other tools.
    pub commands: Vec<String>,
    /// The files that the call names.
    pub paths: Vec<String>,
    /// The removed (`-`) and added (`+`) text of the call, or its complete patch.
    pub diff: Option<String>,
    /// Every argument that no other field shows, untruncated.
    pub arguments: Vec<Argument>,
    /// The directory that a command starts in.
    pub cwd: Option<String>,
    /// The reason for the prompt.
    pub reason: String,
    /// What [`ApprovalDecision::AllowForSession`] allows, as text.
    pub session_grant: String,
    /// The narrowest rules for `approval.allow` that cover such calls. Empty if no rule can.
    pub rules: Vec<String>,
    /// What a broader rule would allow, as text.
    pub broader: Option<String>,
    /// The effects of the tool.
    pub effects: Effects,
}

/// One argument of a call, as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name, or its path inside lists and objects, such as `edits[0].path`.
    pub name: String,
    /// Its value, with invisible characters escaped.
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
    /// The beginning of a text, and whether something was omitted. The text states the omitted length.
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

/// A number with thousands separators: `4,120`.
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

/// The decision of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Allow this call once.
    AllowOnce,
    /// Allow this and similar calls ([`ApprovalRequest::session_grant`]) until the session ends.
    AllowForSession,
    /// Deny. The reason reaches the model.
    Deny(String),
}

/// The prompt for a call.
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

/// The reason, with the program that automatically runs each affected project file.
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

/// A one-line summary of a call without a command: the files, the address, or short arguments.
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

/// Whether the summary shows all arguments, because they are short and nothing else describes the call.
fn holds_arguments(deed: &CallAccess<'_>) -> bool {
    let text = deed.args.to_string();
    deed.targets.is_empty() && deed.url().is_none() && text.len() <= MAX_SUMMARY && !text.contains("\\n")
}

/// Texts that the command, address, paths and directory of the prompt already show.
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

/// The maximum length of arguments shown as JSON in a summary.
const MAX_SUMMARY: usize = 200;
/// The maximum length of a text in a prompt, in characters.
const MAX_TEXT: usize = 1_000_000;
/// The maximum number of arguments in a prompt.
const MAX_ARGUMENTS: usize = 1000;

/// The texts in the arguments of a call.
#[derive(Default)]
struct Texts {
    /// Texts that are shown elsewhere.
    shown: Vec<String>,
    diff: Vec<String>,
    arguments: Vec<Argument>,
}

impl Texts {
    /// Collects every value at any depth, whatever the parameter's name.
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

/// The lines of a text with a prefix. Long runs of empty lines are counted.
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

/// Longer runs of empty lines are shown as a count, so that they cannot push the rest out of view.
const MAX_EMPTY_LINES: usize = 16;

/// Truncates a text to the limit of a prompt and states the omitted length.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        None => text,
        Some((end, _)) => {
            format!("{}\n… {} more characters", &text[..end], grouped(text[end..].chars().count()))
        }
    }
}
