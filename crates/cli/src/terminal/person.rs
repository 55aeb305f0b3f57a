//! The user at the terminal: approvals, questions, plans, the to-do list.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use helve_contract::{
    Call, Error, Result, async_trait,
    ports::{self, PlanDecision, Todo, User},
};
use helve_engine::{ApprovalDecision, ApprovalRequest, Approver, Mode, ModeSwitch, ShownSize};
use serde_json::Value;
use tokio::sync::Notify;

use super::{LineEvent, LineInput, MarkdownRenderer, Screen, lines};
use crate::{knobs::SessionKnobs, print::escape_for_terminal};

/// Somebody who reads the screen and types.
pub(crate) struct TerminalUser {
    screen: Screen,
    input: LineInput,
    runtime_settings: Arc<SessionKnobs>,
    /// Held while a prompt is open: one at a time.
    prompt_lock: tokio::sync::Mutex<()>,
    todos: Mutex<Vec<Todo>>,
    mode: ModeSwitch,
    /// Told when the user wants the turn to stop.
    stop_requested: Arc<Notify>,
}

impl TerminalUser {
    /// Somebody at this terminal, who may change the mode with this switch.
    pub(crate) fn new(
        screen: Screen,
        input: LineInput,
        knobs: Arc<SessionKnobs>,
        mode: ModeSwitch,
        stop: Arc<Notify>,
    ) -> Self {
        Self {
            screen,
            input,
            runtime_settings: knobs,
            prompt_lock: tokio::sync::Mutex::new(()),
            todos: Mutex::default(),
            mode,
            stop_requested: stop,
        }
    }

    /// Shows the to-do list of a session that goes on.
    pub(crate) fn recall_todos(&self, todos: Vec<Todo>) {
        if !todos.is_empty() {
            self.screen.write(&lines::format_todos(self.screen.capabilities, &todos));
        }
        *self.todos.lock().unwrap_or_else(PoisonError::into_inner) = todos;
    }

    /// The to-do list as it was last shown.
    pub(crate) fn todos(&self) -> Vec<Todo> {
        self.todos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the to-do list: another session begins.
    pub(crate) fn clear_todos(&self) {
        self.todos.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Reads one line; Ctrl-C and the end of input count as no answer.
    async fn read_line(&self, words: &str) -> Option<String> {
        match self.input.read_line(words, false).await {
            LineEvent::Line(line) => Some(line.trim().to_owned()),
            LineEvent::Interrupt => {
                self.stop_requested.notify_one();
                None
            }
            LineEvent::End => None,
        }
    }

    /// Shows an approval prompt. Returns whether `v` would show more.
    fn show_approval(&self, question: &ApprovalRequest, size: ShownSize) -> bool {
        let look = self.screen.capabilities;
        let mut is_cut = false;
        let mut shorten = |text: &str| {
            let (text, cut) = size.shorten(text);
            is_cut |= cut;
            text
        };
        self.screen.end_line();
        let summary = shorten(&question.summary);
        let mut text = format!("{} {}\n", look.style("33", look.symbol("?", "?")), look.bold(&summary));
        for command in question.commands.iter().filter(|_| question.commands.len() > 1) {
            text.push_str(&format!("    {} {}\n", look.dim("runs:"), shorten(command)));
        }
        if let Some(folder) = &question.cwd {
            text.push_str(&format!("    {} {}\n", look.dim("in:"), shorten(folder)));
        }
        for argument in &question.arguments {
            let value = shorten(&argument.text).replace('\n', "\n      ");
            text.push_str(&format!("    {} {value}\n", look.dim(&format!("{}:", argument.name))));
        }
        let diff = shorten(question.diff.as_deref().unwrap_or_default());
        for line in diff.lines() {
            let line = escape_for_terminal(line);
            let shown = match line.as_bytes().first() {
                Some(b'+') => look.style("32", &line),
                Some(b'-') => look.style("31", &line),
                _ => line.into_owned(),
            };
            text.push_str(&format!("    {shown}\n"));
        }
        text.push_str(&format!("  {}\n", look.dim(&format!("asked because {}", question.reason))));
        let grant = shorten(&question.session_grant);
        // For an edit the rule would only name its file; the line is useful for a program or a host.
        if !question.rules.is_empty() && question.diff.is_none() {
            let rules = shorten(&question.rules.join(", "));
            let broader = question.broader.as_deref().unwrap_or_default();
            let words = format!("to allow it from now on, add {rules} to approval.allow. {broader}");
            text.push_str(&format!("  {}\n", look.dim(words.trim_end())));
        }
        let more = if is_cut { " · v: show everything" } else { "" };
        text.push_str(&format!("  {}\n", look.dim(&format!("y: once · a: {grant} · n: no, with a reason{more}"))));
        self.screen.write(&text);
        is_cut
    }

    /// One question with its options.
    async fn ask_question(&self, question: &ports::Question) -> Option<String> {
        let look = self.screen.capabilities;
        let mut text = format!("{} {}\n", look.style("33", "?"), look.bold(&escape_for_terminal(&question.question)));
        for (at, option) in question.options.iter().enumerate() {
            let (label, about) = (lines::one_line(&option.label, 100), lines::one_line(&option.description, 200));
            text.push_str(&format!("  {}. {label}  {}\n", at + 1, look.dim(&about)));
        }
        self.screen.end_line();
        self.screen.write(&text);
        let words = if question.multi_select { "numbers, or your own words: " } else { "number, or your own words: " };
        loop {
            let line = self.read_line(words).await?;
            if !line.is_empty() {
                return Some(parse_choice(question, &line));
            }
        }
    }
}

/// What a line means: the labels of its numbers, or itself.
fn parse_choice(question: &ports::Question, line: &str) -> String {
    let label = |word: &str| {
        let number: usize = word.parse().ok()?;
        question.options.get(number.checked_sub(1)?).map(|it| it.label.clone())
    };
    let words: Vec<&str> = line.split([',', ' ']).filter(|it| !it.is_empty()).collect();
    let labels: Option<Vec<String>> = words.iter().map(|word| label(word)).collect();
    match labels {
        Some(labels) if labels.len() == 1 || question.multi_select => labels.join(", "),
        _ => line.to_owned(),
    }
}

/// What of each part of an approval is shown at first.
const AT_FIRST: ShownSize = ShownSize { lines: 40, columns: 300 };

/// What a line says to an approval; `None`: nothing that can be understood.
fn parse_decision(line: &str) -> Option<ApprovalDecision> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match first.to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(ApprovalDecision::AllowOnce),
        "a" | "always" => Some(ApprovalDecision::AllowForSession),
        "n" | "no" => Some(ApprovalDecision::Deny(rest.trim().to_owned())),
        _ => None,
    }
}

#[async_trait]
impl Approver for TerminalUser {
    async fn request_approval(&self, question: &ApprovalRequest, _: &Call) -> ApprovalDecision {
        let _turn = self.prompt_lock.lock().await;
        let mut is_cut = self.show_approval(question, AT_FIRST);
        loop {
            let words = if is_cut { "  allow? [y/a/n/v] " } else { "  allow? [y/a/n] " };
            let Some(line) = self.read_line(words).await else {
                return ApprovalDecision::Deny("the user gave no answer".to_owned());
            };
            if is_cut && matches!(line.as_str(), "v" | "V") {
                is_cut = self.show_approval(question, ShownSize { lines: usize::MAX, columns: usize::MAX });
                continue;
            }
            if let Some(answer) = parse_decision(&line) {
                return answer;
            }
            self.screen.line("  write y, a, or n and why not");
        }
    }
}

#[async_trait]
impl User for TerminalUser {
    async fn ask(&self, _: &Call, questions: &[ports::Question]) -> Result<BTreeMap<String, String>> {
        let _turn = self.prompt_lock.lock().await;
        let mut answers = BTreeMap::new();
        for question in questions {
            let Some(answer) = self.ask_question(question).await else {
                return Err(Error::failed(
                    "the user did not answer; go on without it, or end your turn and say what you need",
                ));
            };
            answers.insert(question.question.clone(), answer);
        }
        Ok(answers)
    }

    async fn show_todos(&self, _: &Call, todos: &[Todo]) {
        todos.clone_into(&mut self.todos.lock().unwrap_or_else(PoisonError::into_inner));
        self.screen.end_line();
        self.screen.write(&lines::format_todos(self.screen.capabilities, todos));
    }

    async fn is_planning(&self, _: &Call) -> bool {
        self.mode.get() == Mode::Plan
    }

    async fn approve_plan(&self, _: &Call, plan: &str) -> Result<PlanDecision> {
        let _turn = self.prompt_lock.lock().await;
        let mut markdown = MarkdownRenderer::new(self.screen.capabilities);
        self.screen.line(&self.screen.capabilities.bold("The plan:"));
        self.screen.write(&(markdown.push(plan) + &markdown.finish()));
        self.screen.end_line();
        let words = "  go on with this plan? [y, e to go on and accept edits, or what should be different] ";
        let line = self.read_line(words).await;
        let verdict = match line.as_deref() {
            Some("y" | "Y" | "yes" | "Yes") => PlanDecision::Approved,
            Some("e" | "E") => PlanDecision::YesAcceptEdits,
            Some("" | "n" | "N" | "no" | "No") => PlanDecision::Rejected(String::new()),
            Some(words) => PlanDecision::Rejected(words.to_owned()),
            None => PlanDecision::Rejected("the user gave no answer".to_owned()),
        };
        if matches!(verdict, PlanDecision::Rejected(_)) || self.mode.end_plan().is_none() {
            return Ok(verdict);
        }
        if verdict == PlanDecision::YesAcceptEdits {
            self.mode.accept_edits();
        }
        self.screen.line(&self.screen.capabilities.dim(&format!("  mode: {}", self.mode.get().name())));
        Ok(verdict)
    }

    async fn setting(&self, _: &Call, name: &str) -> Result<Option<Value>> {
        Ok(self.runtime_settings.base().get(name))
    }

    async fn set_setting(&self, _: &Call, name: &str, value: Value) -> Result<Value> {
        let (before, now) = self.runtime_settings.set_for_all(name, value)?;
        let look = self.screen.capabilities;
        self.screen.line(&look.dim(&format!(
            "  {} is now {}",
            escape_for_terminal(name),
            escape_for_terminal(&now.to_string())
        )));
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::ports::QuestionOption;

    use super::*;

    #[test]
    fn an_answer_is_a_number_or_words() {
        let option = |label: &str| QuestionOption { label: label.into(), description: String::new() };
        let mut question = ports::Question {
            question: "Which?".into(),
            header: "Which".into(),
            options: vec![option("red"), option("blue")],
            multi_select: false,
        };
        let seen = ["2", "3", "1, 2", "green please"].map(|line| parse_choice(&question, line));
        assert_eq!(seen, ["blue", "3", "1, 2", "green please"]);
        question.multi_select = true;
        assert_eq!(parse_choice(&question, "1, 2"), "red, blue");
    }

    #[test]
    fn consent_is_said_in_a_letter() {
        assert_eq!(parse_decision("y"), Some(ApprovalDecision::AllowOnce));
        assert_eq!(parse_decision("A"), Some(ApprovalDecision::AllowForSession));
        assert_eq!(parse_decision("n use make instead"), Some(ApprovalDecision::Deny("use make instead".into())));
        assert_eq!(parse_decision("hm"), None);
    }
}
