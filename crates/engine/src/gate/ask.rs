//! Asking a person.

use helve_contract::{Call, Effects, async_trait};

/// Somebody who says yes or no to a call: a terminal, a client, a callback.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Puts the question. It may take its time, up to the gate's patience.
    async fn ask(&self, question: &Question, call: &Call) -> Answer;
}

/// What a person decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The tool, by the name the model called.
    pub tool: String,
    /// What will happen: the command as it will run, or what will change. Nothing invisible is left in it.
    pub summary: String,
    /// Every program that the command line names, decoded, in order. Empty for other tools.
    pub commands: Vec<String>,
    /// The files that will change.
    pub paths: Vec<String>,
    /// The old and new text of an edit, as a short diff.
    pub diff: Option<String>,
    /// The folder that a command starts in.
    pub folder: Option<String>,
    /// Why it is asked.
    pub why: String,
    /// What [`Answer::Session`] will allow from now on, in words.
    pub grant: String,
    /// What the tool can do.
    pub effects: Effects,
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This call, this time.
    Once,
    /// This and its like, as [`Question::grant`] says, until the session ends.
    Session,
    /// No. The reason reaches the model.
    Deny(String),
}
