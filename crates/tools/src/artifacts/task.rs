//! Task documents: the required front matter and body.

use helve_contract::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    dag::AgentType,
    front::{FrontMatterDocument, missing_headings},
    room,
    status::TaskStatus,
};

/// The headings that a task's body has.
const HEADINGS: [&str; 3] = ["Description", "Context", "Instructions"];

/// The front matter of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFrontMatter {
    /// The same as the node's id in the graph.
    pub id: String,
    /// A one-line title.
    pub title: String,
    /// The type of agent that works on it.
    #[serde(rename = "type")]
    pub kind: AgentType,
    /// The tasks that must be merged before; the graph contains the same.
    pub dependencies: Vec<String>,
    /// The acceptance criteria.
    pub acceptance_criteria: Vec<String>,
    /// The estimated complexity.
    pub estimated_complexity: Complexity,
    /// In the plan always `PENDING`.
    #[serde(default)]
    pub status: TaskStatus,
    /// The branch, after its creation.
    #[serde(default)]
    pub branch: Option<String>,
    /// The attempt, after its start.
    #[serde(default, rename = "attemptId")]
    pub attempt_id: Option<Value>,
    /// Additional fields of the captain.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The complexity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Complexity {
    /// A small task.
    Small,
    /// A medium task.
    Medium,
    /// A large task.
    Large,
}

impl TaskFrontMatter {
    /// Reads and checks a task document.
    pub fn parse(text: &str) -> Result<FrontMatterDocument<Self>> {
        let fields: FrontMatterDocument<Map<String, Value>> = FrontMatterDocument::parse(text, "task")?;
        let missing: Vec<_> = ["id", "title", "type", "dependencies", "acceptance_criteria", "estimated_complexity"]
            .into_iter()
            .filter(|field| !fields.front.contains_key(*field))
            .map(|field| format!("missing required field {field}"))
            .collect();
        if !missing.is_empty() {
            return Err(Error::failed(format!("Invalid task frontmatter: {}", missing.join("; "))));
        }
        let front: Self = serde_json::from_value(Value::Object(fields.front))
            .map_err(|error| Error::failed(format!("Invalid task frontmatter: {error}")))?;
        room::check_task_id(&front.id)?;
        if front.title.trim().is_empty() {
            return Err(Error::failed("Invalid task frontmatter: title is empty"));
        }
        let lacking = missing_headings(&fields.body, &HEADINGS);
        if !lacking.is_empty() {
            let lacking: Vec<_> = lacking.iter().map(|it| format!("`## {it}`")).collect();
            return Err(Error::failed(format!("the task's body lacks the heading {}", lacking.join(", "))));
        }
        Ok(FrontMatterDocument { front, body: fields.body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "---\nid: task-001\ntitle: Parser\ntype: \"2\"\ndependencies: []\nacceptance_criteria:\n  - it parses\nestimated_complexity: small\nspec: a.md\n---\n## Description\nx\n## Context\ny\n## Instructions\nz\n";

    #[test]
    fn keeps_fields_it_does_not_know() {
        let task = TaskFrontMatter::parse(GOOD).unwrap().front;
        assert_eq!((task.kind, task.more["spec"].as_str()), (AgentType::Worker, Some("a.md")));
    }

    #[test]
    fn names_every_field_that_is_missing() {
        let said = TaskFrontMatter::parse("---\nid: a\ntitle: b\n---\n").unwrap_err().to_string();
        assert_eq!(
            said,
            "Invalid task frontmatter: missing required field type; missing required field dependencies; missing required field acceptance_criteria; missing required field estimated_complexity"
        );
    }

    #[test]
    fn wants_the_headings() {
        let said = TaskFrontMatter::parse(&GOOD.replace("## Context", "### Context")).unwrap_err().to_string();
        assert_eq!(said, "the task's body lacks the heading `## Context`");
    }
}
