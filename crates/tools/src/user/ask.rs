//! `user_ask`: asks the user questions with predefined answers.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use helve_contract::{ArgumentProblem, Call, Effects, Error, Port, PortSet, Reply, Result, Tool, ports::Question};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Puts questions to the user, and waits for the answers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct UserAskTool {
    /// 1 to 4 questions.
    pub questions: Vec<Question>,
    /// Answers that are known already, by the question's text; these are not asked.
    #[serde(default)]
    pub answers: BTreeMap<String, String>,
}

/// The questions, and what was answered.
#[derive(Clone, Debug)]
pub struct UserAskOutput {
    /// What was asked.
    pub questions: Vec<Question>,
    /// The answers, by the question's text.
    pub answers: BTreeMap<String, String>,
}

impl Tool for UserAskTool {
    const NAME: &'static str = "user_ask";
    const EFFECTS: Effects = Effects::BLOCKS;
    const NEEDS: PortSet = PortSet::of(&[Port::User]);
    const TIMEOUT: Duration = Duration::MAX;
    type Output = UserAskOutput;

    async fn run(self, call: &Call) -> Result<UserAskOutput> {
        let problems = validate(&self.questions);
        if !problems.is_empty() {
            return Err(Error::InvalidArgs(problems));
        }
        let known = |question: &Question| self.answers.get(&question.question).filter(|it| !it.trim().is_empty());
        let mut answers: BTreeMap<String, String> = self
            .questions
            .iter()
            .filter_map(|question| Some((question.question.clone(), known(question)?.clone())))
            .collect();
        let open: Vec<Question> = self.questions.iter().filter(|it| known(it).is_none()).cloned().collect();
        if !open.is_empty() {
            let mut given = super::unless_cancelled(call, call.user().ask(call, &open)).await?;
            for question in open {
                if let Some(answer) = given.remove(&question.question) {
                    answers.insert(question.question, answer);
                }
            }
        }
        Ok(UserAskOutput { questions: self.questions, answers })
    }
}

/// All that is wrong with the questions.
fn validate(questions: &[Question]) -> Vec<ArgumentProblem> {
    let mut problems = Vec::new();
    let mut wrong = |path: String, text: &str| problems.push(ArgumentProblem::Other { path, text: text.to_owned() });
    if !(1..=4).contains(&questions.len()) {
        wrong("questions".into(), "there must be 1 to 4");
    }
    let mut texts = HashSet::new();
    for (at, question) in questions.iter().take(4).enumerate() {
        let path = |field: &str| format!("questions[{at}].{field}");
        if question.question.trim().is_empty() {
            wrong(path("question"), "is empty");
        } else if !texts.insert(question.question.as_str()) {
            wrong(path("question"), "the same question is there twice; answers are told apart by its text");
        }
        if question.header.chars().count() > 12 {
            wrong(path("header"), "is longer than 12 characters");
        }
        if !(2..=4).contains(&question.options.len()) {
            wrong(path("options"), "there must be 2 to 4; the user can always write another answer");
        }
        let mut labels = HashSet::new();
        if question.options.iter().any(|it| it.label.trim().is_empty() || !labels.insert(it.label.as_str())) {
            wrong(path("options"), "every label must be there, and differ from the others");
        }
    }
    problems
}

impl From<UserAskOutput> for Reply {
    fn from(UserAskOutput { questions, answers }: UserAskOutput) -> Self {
        let lines: Vec<String> = questions
            .iter()
            .map(|question| match answers.get(&question.question) {
                Some(answer) => format!("{} → {answer}", question.question),
                None => format!("{} → (not answered)", question.question),
            })
            .collect();
        let data = json!({ "questions": questions, "answers": answers });
        Self { text: format!("The user answered:\n{}", lines.join("\n")), data: Some(data), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Tool, ports::NoUser};
    use serde_json::{Value, json};

    use super::UserAskTool;
    use crate::user::testing::{FakeUser, call};

    fn two() -> Value {
        let option = |label: &str| json!({ "label": label, "description": "" });
        json!([
            { "question": "Which database?", "header": "Database", "options": [option("SQLite"), option("Postgres")] },
            { "question": "Which tests?", "header": "Tests", "options": [option("unit"), option("all")], "multiSelect": true },
        ])
    }

    async fn ask(person: FakeUser, args: Value) -> String {
        let ask: UserAskTool = serde_json::from_value(args).unwrap();
        let reply: Reply = ask.run(&call(person)).await.map_or_else(Into::into, Into::into);
        format!("{}{}", if reply.is_error { "error: " } else { "" }, reply.text)
    }

    #[tokio::test]
    async fn the_user_chooses_or_writes() {
        let person = FakeUser::with_answers(&[("Which database?", "a file of JSON"), ("Which tests?", "unit, all")]);
        assert_eq!(
            ask(person, json!({ "questions": two() })).await,
            "The user answered:\nWhich database? → a file of JSON\nWhich tests? → unit, all"
        );
    }

    #[tokio::test]
    async fn what_is_answered_already_is_not_asked() {
        let answers = json!({ "Which database?": "SQLite", "Which tests?": "unit" });
        let ask: UserAskTool = serde_json::from_value(json!({ "questions": two(), "answers": answers })).unwrap();
        let mut call = call(FakeUser::default());
        std::sync::Arc::get_mut(&mut call.session).unwrap().ports.user = std::sync::Arc::new(NoUser);
        let reply = Reply::from(ask.run(&call).await.unwrap());
        assert_eq!(reply.text, "The user answered:\nWhich database? → SQLite\nWhich tests? → unit");
        assert_eq!(reply.data.unwrap()["answers"]["Which tests?"], "unit");
    }

    #[tokio::test]
    async fn every_fault_is_told_at_once() {
        let option = json!({ "label": "a", "description": "" });
        let question = json!({ "question": "Q", "header": "a long header", "options": [option, option] });
        let few = json!({ "question": "Q", "header": "", "options": [option] });
        assert_eq!(
            ask(FakeUser::default(), json!({ "questions": [question, few] })).await,
            "error: questions[0].header: is longer than 12 characters; \
             questions[0].options: every label must be there, and differ from the others; \
             questions[1].question: the same question is there twice; answers are told apart by its text; \
             questions[1].options: there must be 2 to 4; the user can always write another answer"
        );
        assert_eq!(
            ask(FakeUser::default(), json!({ "questions": [] })).await,
            "error: questions: there must be 1 to 4"
        );
    }
}
