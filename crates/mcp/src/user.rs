//! Questions and plans for the client's user, as forms.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Result,
    ports::{NoUser, PlanDecision, Question, Todo, User},
};
use helve_engine::{Mode, ModeSwitch};
use serde_json::{Map, Value, json};

use crate::ElicitApprover;

/// The user of the calling client, if it supports elicitation; otherwise none or the fallback.
pub struct ElicitUser {
    approver: Arc<ElicitApprover>,
    mode: ModeSwitch,
    fallback: Arc<dyn User>,
}

impl ElicitUser {
    /// A user who is reached the same way as for approvals. The switch is that of the session's gate.
    pub fn new(desk: Arc<ElicitApprover>, mode: ModeSwitch) -> Self {
        Self { approver: desk, mode, fallback: Arc::new(NoUser) }
    }

    /// The same, who asks another where the client cannot ask.
    #[must_use]
    pub fn with_fallback(self, otherwise: Arc<dyn User>) -> Self {
        Self { fallback: otherwise, ..self }
    }
}

#[async_trait]
impl User for ElicitUser {
    async fn ask(&self, call: &Call, questions: &[Question]) -> Result<BTreeMap<String, String>> {
        match self.approver.elicit(call, &questions_form(questions), self.approver.timeout).await {
            Some(result) => parse_answers(questions, &result),
            None => self.fallback.ask(call, questions).await,
        }
    }

    /// A client sees the list in the call itself.
    async fn show_todos(&self, _: &Call, _: &[Todo]) {}

    async fn is_planning(&self, _: &Call) -> bool {
        self.mode.get() == Mode::Plan
    }

    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<PlanDecision> {
        let Some(result) = self.approver.elicit(call, &plan_form(plan), self.approver.timeout).await else {
            return self.fallback.approve_plan(call, plan).await;
        };
        let verdict = parse_verdict(&result);
        if !matches!(verdict, PlanDecision::Rejected(_)) {
            self.mode.end_plan();
        }
        if verdict == PlanDecision::YesAcceptEdits {
            self.mode.accept_edits();
        }
        Ok(verdict)
    }

    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>> {
        self.fallback.setting(call, name).await
    }

    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value> {
        self.fallback.set_setting(call, name, value).await
    }
}

/// A form with a choice and a free-text field per question. Forms have no lists, so multiple choice uses one checkbox
/// per answer.
fn questions_form(questions: &[Question]) -> Value {
    let mut fields = Map::new();
    let mut message = String::new();
    for (at, question) in questions.iter().enumerate() {
        message.push_str(&format!("{}\n", question.question));
        for (which, choice) in question.options.iter().enumerate() {
            message.push_str(&format!("- {}: {}\n", choice.label, choice.description));
            if question.multi_select {
                let field = json!({ "type": "boolean", "title": choice.label, "description": choice.description });
                fields.insert(format!("q{at}_{which}"), field);
            }
        }
        if !question.multi_select {
            let labels: Vec<&str> = question.options.iter().map(|choice| choice.label.as_str()).collect();
            let field =
                json!({ "type": "string", "title": question.header, "description": question.question, "enum": labels });
            fields.insert(format!("q{at}"), field);
        }
        let other = json!({ "type": "string", "title": format!("{} (other)", question.header) });
        fields.insert(format!("q{at}_other"), other);
    }
    json!({ "message": message.trim_end(), "requestedSchema": { "type": "object", "properties": fields } })
}

/// What was answered: free words before a choice.
fn parse_answers(questions: &[Question], result: &Value) -> Result<BTreeMap<String, String>> {
    if result.get("action").and_then(Value::as_str) != Some("accept") {
        return Err(Error::failed(
            "the user did not answer; go on with what you know, and say in your answer what you assumed",
        ));
    }
    let field = |name: String| result.get("content").and_then(|content| content.get(name));
    let mut answers = BTreeMap::new();
    for (at, question) in questions.iter().enumerate() {
        let words = field(format!("q{at}_other")).and_then(Value::as_str).map(str::trim).filter(|it| !it.is_empty());
        let chosen: Vec<&str> = if question.multi_select {
            let ticked = |which: &usize| field(format!("q{at}_{which}")).and_then(Value::as_bool).unwrap_or(false);
            let labels = question.options.iter().enumerate().filter(|(which, _)| ticked(which));
            labels.map(|(_, choice)| choice.label.as_str()).chain(words).collect()
        } else {
            words.or_else(|| field(format!("q{at}")).and_then(Value::as_str)).into_iter().collect()
        };
        if !chosen.is_empty() {
            answers.insert(question.question.clone(), chosen.join(", "));
        }
    }
    Ok(answers)
}

fn plan_form(plan: &str) -> Value {
    json!({
        "message": format!("Go on with this plan?\n{plan}"),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "enum": ["approve", "approve_and_accept_edits", "change"],
                    "enumNames": ["Go on", "Go on and accept edits", "Change the plan"],
                },
                "wish": { "type": "string", "title": "What should be different" },
            },
            "required": ["decision"],
        },
    })
}

/// Anything but a clear yes is a denial.
fn parse_verdict(result: &Value) -> PlanDecision {
    let field = |name: &str| result.get("content").and_then(|content| content.get(name)).and_then(Value::as_str);
    let accepted = result.get("action").and_then(Value::as_str) == Some("accept");
    match field("decision") {
        Some("approve") if accepted => return PlanDecision::Approved,
        Some("approve_and_accept_edits") if accepted => return PlanDecision::YesAcceptEdits,
        _ => {}
    }
    PlanDecision::Rejected(field("wish").unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use helve_contract::ports::QuestionOption;

    use super::*;

    fn questions() -> Vec<Question> {
        let options = |labels: [&str; 2]| {
            labels.map(|label| QuestionOption { label: label.into(), description: "why".into() }).to_vec()
        };
        let question = |text: &str, labels, multi_select| Question {
            question: text.into(),
            header: "Head".into(),
            options: options(labels),
            multi_select,
        };
        vec![question("Which?", ["A", "B"], false), question("What else?", ["C", "D"], true)]
    }

    #[test]
    fn a_form_has_choices_and_free_words() {
        let form = questions_form(&questions());
        assert_eq!(form["message"], "Which?\n- A: why\n- B: why\nWhat else?\n- C: why\n- D: why");
        let fields: Vec<&String> = form["requestedSchema"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["q0", "q0_other", "q1_0", "q1_1", "q1_other"]);
    }

    #[test]
    fn free_words_go_before_a_choice() {
        let read =
            |content: Value| parse_answers(&questions(), &json!({ "action": "accept", "content": content })).unwrap();
        let two = |a: &str, b: &str| {
            BTreeMap::from([("Which?".to_owned(), a.to_owned()), ("What else?".to_owned(), b.to_owned())])
        };
        assert_eq!(read(json!({ "q0": "A", "q1_0": true, "q1_1": true, "q1_other": "E" })), two("A", "C, D, E"));
        assert_eq!(read(json!({ "q0": "A", "q0_other": "Z", "q1_1": true })), two("Z", "D"));
        assert!(parse_answers(&questions(), &json!({ "action": "decline" })).is_err());
    }

    #[test]
    fn only_a_clear_yes_approves_a_plan() {
        let said = |result: Value| parse_verdict(&result);
        assert_eq!(said(json!({ "action": "accept", "content": { "decision": "approve" } })), PlanDecision::Approved);
        let edits = json!({ "action": "accept", "content": { "decision": "approve_and_accept_edits" } });
        assert_eq!(said(edits), PlanDecision::YesAcceptEdits);
        let change = json!({ "action": "accept", "content": { "decision": "change", "wish": "tests first" } });
        assert_eq!(said(change), PlanDecision::Rejected("tests first".into()));
        assert_eq!(said(Value::Null), PlanDecision::Rejected(String::new()));
    }
}
