//! `user_todos`: the to-do list of a session, replaced as a whole.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Port, PortSet, Reply, Result, Tool,
    ports::{Todo, TodoStatus},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The session state key of the to-do list.
pub const STATE_KEY: &str = "todos";

/// Replaces the to-do list of the session, and shows it to the user.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct UserTodosTool {
    /// The whole new list.
    pub todos: Vec<Todo>,
}

/// The list before and now.
#[derive(Clone, Debug)]
pub struct UserTodosOutput {
    /// Before.
    pub old: Vec<Todo>,
    /// Now.
    pub new: Vec<Todo>,
}

impl Tool for UserTodosTool {
    const NAME: &'static str = "user_todos";
    const EFFECTS: Effects = Effects::SESSION_STATE;
    const NEEDS: PortSet = PortSet::of(&[Port::Slates]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = UserTodosOutput;

    async fn run(self, call: &Call) -> Result<UserTodosOutput> {
        let session = &call.session.id;
        let old = call.store().get_state(session, STATE_KEY).await?;
        let old = old.and_then(|slate| serde_json::from_value(slate.value).ok()).unwrap_or_default();
        call.session.write_slate(STATE_KEY, json!(self.todos)).await?;
        call.user().show_todos(call, &self.todos).await;
        Ok(UserTodosOutput { old, new: self.todos })
    }
}

impl UserTodosOutput {
    fn summary(&self) -> String {
        let of = |status| self.new.iter().filter(move |todo| todo.status == status);
        if self.new.is_empty() {
            return "The to-do list is empty now.".to_owned();
        }
        let done = of(TodoStatus::Completed).count();
        let mut text = format!("To-do list kept: {done} of {} done.", self.new.len());
        let now: Vec<&str> = of(TodoStatus::InProgress).map(|todo| todo.active_form.as_str()).collect();
        match now.as_slice() {
            [] if done < self.new.len() => text.push_str(" Nothing is in progress; mark what you do next."),
            [] => {}
            [one] => text.push_str(&format!(" Now: {one}.")),
            several => text.push_str(&format!(" {} items are in progress; one at a time is clearer.", several.len())),
        }
        text
    }
}

impl From<UserTodosOutput> for Reply {
    fn from(out: UserTodosOutput) -> Self {
        let data = json!({ "oldTodos": out.old, "newTodos": out.new });
        Self { text: out.summary(), data: Some(data), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::ports::{Todo, TodoStatus};

    use super::UserTodosOutput;

    fn list(states: &[TodoStatus]) -> String {
        let todo = |status: &TodoStatus| Todo {
            content: "Run tests".into(),
            status: *status,
            active_form: "Running tests".into(),
        };
        UserTodosOutput { old: Vec::new(), new: states.iter().map(todo).collect() }.summary()
    }

    #[test]
    fn says_how_far_it_is() {
        use TodoStatus::{Completed, InProgress, Pending};
        assert_eq!(list(&[Completed, InProgress, Pending]), "To-do list kept: 1 of 3 done. Now: Running tests.");
        assert_eq!(list(&[Pending]), "To-do list kept: 0 of 1 done. Nothing is in progress; mark what you do next.");
        assert_eq!(list(&[Completed]), "To-do list kept: 1 of 1 done.");
        assert_eq!(
            list(&[InProgress, InProgress]),
            "To-do list kept: 0 of 2 done. 2 items are in progress; one at a time is clearer."
        );
        assert_eq!(list(&[]), "The to-do list is empty now.");
    }
}
