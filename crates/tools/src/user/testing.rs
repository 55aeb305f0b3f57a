//! A fake user with predefined answers.

use std::{collections::BTreeMap, sync::Arc};

use helve_contract::{
    Call, Error, Result, async_trait,
    ports::{PlanDecision, Question, Todo, User},
};
use serde_json::{Value, json};

use crate::testing::FakeHost;

pub(crate) struct FakeUser {
    pub(crate) answers: BTreeMap<String, String>,
    pub(crate) planning: bool,
    pub(crate) verdict: PlanDecision,
}

impl Default for FakeUser {
    fn default() -> Self {
        Self { answers: BTreeMap::new(), planning: false, verdict: PlanDecision::Approved }
    }
}

impl FakeUser {
    pub(crate) fn with_answers(answers: &[(&str, &str)]) -> Self {
        let answers = answers.iter().map(|(question, answer)| ((*question).to_owned(), (*answer).to_owned()));
        Self { answers: answers.collect(), ..Self::default() }
    }
}

/// A call in a session of this person.
pub(crate) fn call(person: FakeUser) -> Call {
    let mut call = FakeHost::with(&[("a", "")]).call();
    Arc::get_mut(&mut call.session).unwrap().ports.user = Arc::new(person);
    call
}

#[async_trait]
impl User for FakeUser {
    async fn ask(&self, _: &Call, _: &[Question]) -> Result<BTreeMap<String, String>> {
        Ok(self.answers.clone())
    }
    async fn show_todos(&self, _: &Call, _: &[Todo]) {}
    async fn is_planning(&self, _: &Call) -> bool {
        self.planning
    }
    async fn approve_plan(&self, _: &Call, _: &str) -> Result<PlanDecision> {
        Ok(self.verdict.clone())
    }
    async fn setting(&self, _: &Call, name: &str) -> Result<Option<Value>> {
        Ok((name == "verbose").then(|| json!(false)))
    }
    async fn set_setting(&self, _: &Call, name: &str, _: Value) -> Result<Value> {
        if name == "verbose" { Ok(json!(false)) } else { Err(Error::failed("only verbose can be changed")) }
    }
}
