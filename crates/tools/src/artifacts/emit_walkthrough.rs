//! `emit_walkthrough`: the agent's report before it ends.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ports::ExpectedVersion, schemars, schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    front::FrontMatterDocument,
    room::{self, CallArtifacts},
    walkthrough::{ChangedFile, SECTIONS, Walkthrough, WalkthroughStatus, WalkthroughTest},
};

/// Tells what you did on your task. Do this once, when you are done or give up; without it the task counts as failed. Returns its path.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct EmitWalkthrough {
    /// What there is to tell
    pub walkthrough: WalkthroughReport,
}

/// What an agent tells of its work. Task, branch and base are known already.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct WalkthroughReport {
    /// How it went
    pub status: WalkthroughStatus,
    /// How sure you are, from 0 to 1
    #[schemars(range(min = 0.0, max = 1.0))]
    pub confidence: f64,
    /// What you did, in a few sentences
    pub summary: String,
    /// How, and what you decided
    #[serde(default)]
    pub approach: String,
    /// What went wrong on the way
    #[serde(default)]
    pub issues_encountered: String,
    /// What you tested, and how
    #[serde(default)]
    pub testing: String,
    /// Every file that changed
    #[serde(default)]
    pub files_changed: Vec<ChangedFile>,
    /// Tests that ran
    #[serde(default)]
    pub tests: Vec<WalkthroughTest>,
    /// What may go wrong
    #[serde(default)]
    pub risks: Vec<String>,
    /// What should be done next
    #[serde(default)]
    pub followups: Vec<String>,
    /// Minutes
    #[serde(default)]
    pub time_spent_minutes: u64,
}

impl Tool for EmitWalkthrough {
    const NAME: &'static str = "emit_walkthrough";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let (room, errand, told) = (CallArtifacts::for_call(call)?, call.task_context()?, self.walkthrough);
        let task = room::check_task_id(room.task_id()?)?;
        if !(0.0..=1.0).contains(&told.confidence) {
            return Err(Error::invalid_argument("walkthrough.confidence", "must be from 0 to 1"));
        }
        if told.summary.trim().is_empty() {
            return Err(Error::invalid_argument("walkthrough.summary", "must say what was done"));
        }
        let texts = [&told.summary, &told.approach, &told.issues_encountered, &told.testing];
        let body: Vec<_> = SECTIONS
            .iter()
            .zip(texts)
            .map(|(title, text)| format!("## {title}\n\n{}", demote_headings(text)))
            .collect();
        let front = Walkthrough {
            task_id: task.to_owned(),
            branch: errand.branch.clone().unwrap_or_else(|| format!("forge/{task}/{}", errand.attempt)),
            base_ref: errand.base.clone(),
            status: told.status,
            confidence: told.confidence,
            time_spent_minutes: told.time_spent_minutes,
            files_changed: told.files_changed,
            tests: told.tests,
            risks: told.risks,
            followups: told.followups,
        };
        let text = FrontMatterDocument { front, body: body.join("\n\n") }.to_markdown()?;
        let path = room.write(&Walkthrough::path(task, errand.attempt), text.as_bytes(), ExpectedVersion::Any).await?;
        Ok(json!({ "path": path }))
    }
}

/// Demotes headings in a section's text, so that they start no new section.
fn demote_headings(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return "None.".to_owned();
    }
    text.lines()
        .map(|line| if line.starts_with("## ") { format!("#{line}") } else { line.to_owned() })
        .collect::<Vec<_>>()
        .join("\n")
}
