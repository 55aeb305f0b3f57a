//! `user_setting`: reads a setting of the session, or changes one that a model may change.

use std::time::Duration;

use helve_contract::{Call, Effects, Error, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Reads a setting of the session; with a value, changes it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct UserSettingTool {
    /// Its name.
    pub name: String,
    /// The new value: a text, a number, or true or false.
    #[serde(default)]
    pub value: Option<Value>,
}

/// A setting, read or changed.
#[derive(Clone, Debug)]
pub struct UserSettingOutput {
    /// Its name.
    pub name: String,
    /// Its value now.
    pub value: Value,
    /// Its value before, if it was changed.
    pub previous: Option<Value>,
}

impl Tool for UserSettingTool {
    const NAME: &'static str = "user_setting";
    const EFFECTS: Effects = Effects::READS.union(Effects::SESSION_STATE);
    const NEEDS: PortSet = PortSet::of(&[Port::Settings]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = UserSettingOutput;

    async fn run(self, call: &Call) -> Result<UserSettingOutput> {
        let name = self.name.trim().to_owned();
        let now = call.user().setting(call, &name).await?;
        let Some(value) = self.value.filter(|value| !value.is_null()) else {
            let shown: String = name.chars().take(64).collect();
            let unknown =
                || Error::failed(format!("there is no setting `{}` that can be seen here", shown.escape_debug()));
            return Ok(UserSettingOutput { value: now.ok_or_else(unknown)?, name, previous: None });
        };
        if value.is_array() || value.is_object() {
            return Err(Error::failed("the value of a setting is a text, a number, or true or false"));
        }
        let value = match &now {
            Some(now) => coerce_like(&name, now, value)?,
            None => value,
        };
        let previous = call.user().set_setting(call, &name, value.clone()).await?;
        Ok(UserSettingOutput { name, value, previous: Some(previous) })
    }
}

/// The new value as the same kind as the old one, or an error that says which kind is wanted.
fn coerce_like(name: &str, old: &Value, new: Value) -> Result<Value> {
    let wanted = match old {
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        _ => return Ok(new),
    };
    let same = std::mem::discriminant(old) == std::mem::discriminant(&new);
    if same {
        return Ok(new);
    }
    let read = match (old, &new) {
        (Value::String(_), other) => Some(Value::String(other.to_string())),
        (_, Value::String(text)) => serde_json::from_str::<Value>(text.trim()).ok(),
        _ => None,
    };
    read.filter(|read| std::mem::discriminant(read) == std::mem::discriminant(old))
        .ok_or_else(|| Error::failed(format!("{name} takes {wanted}, not {new}")))
}

impl From<UserSettingOutput> for Reply {
    fn from(UserSettingOutput { name, value, previous }: UserSettingOutput) -> Self {
        let (text, data) = match previous {
            None => (
                format!("{name} = {value}"),
                json!({ "success": true, "operation": "get", "setting": name, "value": value }),
            ),
            Some(previous) => (
                format!("{name} = {value} (before: {previous})"),
                json!({
                    "success": true,
                    "operation": "set",
                    "setting": name,
                    "value": value,
                    "previousValue": previous,
                    "newValue": value,
                }),
            ),
        };
        Self { text, data: Some(data), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Tool};
    use serde_json::{Value, json};

    use super::UserSettingTool;
    use crate::user::testing::{FakeUser, call};

    async fn ask(name: &str, value: Value) -> String {
        let tool = UserSettingTool { name: name.into(), value: Some(value) };
        let reply: Reply = tool.run(&call(FakeUser::default())).await.map_or_else(Into::into, Into::into);
        format!("{}{}", if reply.is_error { "error: " } else { "" }, reply.text)
    }

    #[tokio::test]
    async fn reads_and_changes_settings_by_kind() {
        assert_eq!(ask("verbose", Value::Null).await, "verbose = false");
        assert_eq!(ask("verbose", json!("true")).await, "verbose = true (before: false)");
        assert_eq!(ask("verbose", json!("loud")).await, "error: verbose takes true or false, not \"loud\"");
        assert_eq!(
            ask("verbose", json!([1])).await,
            "error: the value of a setting is a text, a number, or true or false"
        );
        assert_eq!(ask("nosuch", Value::Null).await, "error: there is no setting `nosuch` that can be seen here");
        assert_eq!(ask("sandbox", json!("off")).await, "error: only verbose can be changed");
    }
}
