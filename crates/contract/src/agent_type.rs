//! The types of agents in planned runs. Open it to add one.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The type of the agent that works on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentType {
    /// Type 1: does one task and ends.
    Throwaway,
    /// Type 2: may start agents of type 1.
    Worker,
    /// Type 3: may start agents of types 1 and 2, and keeps a list of subtasks.
    SubExecutor,
    /// Merges branches and reviews the plan.
    Refinery,
}

impl AgentType {
    /// The role that defines its tools.
    #[must_use]
    pub fn role(self) -> &'static str {
        match self {
            Self::Throwaway => "type1",
            Self::Worker => "type2",
            Self::SubExecutor => "type3",
            Self::Refinery => "refinery",
        }
    }

    /// Whether an agent in `role` may start an agent of this type.
    #[must_use]
    pub fn may_be_started_by(self, role: &str) -> bool {
        match role {
            "type2" => self == Self::Throwaway,
            "type3" => matches!(self, Self::Throwaway | Self::Worker),
            "refinery" => self != Self::Refinery,
            "executor" => true,
            _ => false,
        }
    }
}

impl fmt::Display for AgentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throwaway => "1",
            Self::Worker => "2",
            Self::SubExecutor => "3",
            Self::Refinery => "refinery",
        })
    }
}

impl Serialize for AgentType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Throwaway => to.serialize_u8(1),
            Self::Worker => to.serialize_u8(2),
            Self::SubExecutor => to.serialize_u8(3),
            Self::Refinery => to.serialize_str("refinery"),
        }
    }
}

impl<'de> Deserialize<'de> for AgentType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match word.as_str() {
            "1" => Ok(Self::Throwaway),
            "2" => Ok(Self::Worker),
            "3" => Ok(Self::SubExecutor),
            "refinery" | "Refinery" => Ok(Self::Refinery),
            _ => Err(de::Error::custom(format!("an agent type is 1, 2, 3 or \"refinery\", not {value}"))),
        }
    }
}

impl schemars::JsonSchema for AgentType {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AgentType".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [1, 2, 3, "refinery"] })
    }
}
