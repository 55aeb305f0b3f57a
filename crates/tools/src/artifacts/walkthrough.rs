//! Walkthroughs: what an agent did, its risks and follow-ups.

use helve_contract::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    front::{FrontMatterDocument, missing_headings},
    room::CallArtifacts,
};

/// The sections of a walkthrough, in this order.
pub(super) const SECTIONS: [&str; 4] = ["Summary", "Approach", "Issues Encountered", "Testing"];

/// The front matter of a walkthrough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Walkthrough {
    /// The task.
    pub task_id: String,
    /// The branch with the work.
    pub branch: String,
    /// The commit that the branch started from.
    pub base_ref: String,
    /// The outcome.
    pub status: WalkthroughStatus,
    /// The agent's confidence, from 0 to 1.
    pub confidence: f64,
    /// The time spent, in minutes.
    pub time_spent_minutes: u64,
    /// The changed files with reasons.
    pub files_changed: Vec<ChangedFile>,
    /// The tests that were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<WalkthroughTest>,
    /// Risks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub risks: Vec<String>,
    /// Follow-up work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followups: Vec<String>,
}

/// How a task went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WalkthroughStatus {
    /// All of it is done.
    Completed,
    /// None of it is.
    Failed,
    /// Some of it is.
    Partial,
}

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFile {
    /// In the repository
    pub path: String,
    /// Why it changed
    pub reason: String,
}

/// A test that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalkthroughTest {
    /// Its name
    pub name: String,
    /// How it went
    pub result: TestOutcome,
}

/// How a test went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TestOutcome {
    /// It passed.
    Pass,
    /// It failed.
    Fail,
    /// It was left out.
    Skip,
    /// It could not run.
    Error,
}

impl Walkthrough {
    /// Reads and checks a walkthrough.
    pub fn parse(text: &str) -> Result<FrontMatterDocument<Self>> {
        let document: FrontMatterDocument<Self> = FrontMatterDocument::parse(text, "walkthrough")?;
        let lacking = missing_headings(&document.body, &SECTIONS);
        if !lacking.is_empty() {
            return Err(Error::failed(format!("the walkthrough lacks the section {}", lacking.join(", "))));
        }
        Ok(document)
    }

    /// The path of a walkthrough.
    #[must_use]
    pub fn path(task: &str, attempt: u32) -> String {
        format!("{task}/{attempt}/walkthrough.md")
    }

    /// The last attempt with a walkthrough.
    pub async fn latest_attempt(room: &CallArtifacts<'_>, task: &str) -> Result<Option<u32>> {
        let mut attempts: Vec<u32> = room.list_dirs(task).await?.iter().filter_map(|it| it.parse().ok()).collect();
        attempts.sort_unstable();
        for attempt in attempts.into_iter().rev() {
            if room.read_bytes(&Self::path(task, attempt)).await?.is_some() {
                return Ok(Some(attempt));
            }
        }
        Ok(None)
    }
}
