//! Events of the server, from `GET /events`: sessions, approvals and the planned runs that it executes.

#![allow(clippy::option_option, reason = "absent and null differ in JSON that clients read")]

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{ApprovalAnswer, ApprovalKind, ForgeRunStatus, TurnEnd, payloads};
use crate::ports::{MessageRole, QuestionOption, Todo};

payloads! { Server:
    /// A turn of a session begins.
    SessionStarted = "session.started" {
        /// The session.
        session: String = "session",
        /// The session whose agent this is.
        parent: Option<String> = "parent",
    }

    /// A session has a new message.
    SessionMessage = "session.message" {
        /// The session.
        session: String = "session",
        /// The number of the message in the session.
        seq: u64 = "seq",
        /// Who speaks.
        role: MessageRole = "role",
        /// The text, 64 KiB at most; calls and results in short.
        text: String = "text",
    }

    /// The to-do list of a session changed.
    SessionTodos = "session.todos" {
        /// The session.
        session: String = "session",
        /// The list.
        todos: Vec<Todo> = "todos",
    }

    /// The tool `Config` changed a setting of a session.
    SessionSetting = "session.setting" {
        /// The session.
        session: String = "session",
        /// The setting.
        setting: String = "setting",
        /// The new value.
        value: Value = "value",
    }

    /// A turn of a session ended.
    SessionEnded = "session.ended" {
        /// The session.
        session: String = "session",
        /// How.
        outcome: TurnEnd = "outcome",
        /// Why, where there is more to say.
        why: Option<String> = "why",
    }

    /// A person is asked, as in `/api/approvals`.
    ApprovalAsked = "approval.asked" {
        /// What the person is asked for.
        kind: ApprovalKind = "kind",
        /// The tool.
        tool: String = "tool",
        /// What will happen, or the first question.
        summary: String = "summary",
        /// Every command in a command line, in order.
        commands: Vec<String> = "commands",
        /// The files that the call names.
        paths: Vec<String> = "paths",
        /// The text that the call takes away and writes.
        diff: Option<String> = "diff",
        /// The narrowest rules that let such calls pass.
        rules: Option<Vec<String>> = "rules" [skip_serializing_if = "Option::is_none"],
        /// What a broader rule would allow.
        broader: Option<Option<String>> = "broader" [default, deserialize_with = "present", skip_serializing_if = "Option::is_none"],
        /// Every argument that no other field shows.
        arguments: Option<Vec<ShownArgument>> = "arguments" [skip_serializing_if = "Option::is_none"],
        /// The directory that a command starts in.
        folder: Option<String> = "folder",
        /// Why it is asked.
        why: String = "why",
        /// What `session` allows from now on.
        grant: String = "grant",
        /// What the tool can do.
        effects: Vec<String> = "effects",
        /// The questions of the model.
        questions: Option<Vec<ShownQuestion>> = "questions" [skip_serializing_if = "Option::is_none"],
        /// The plan that the model proposes.
        plan: Option<Option<String>> = "plan" [default, deserialize_with = "present", skip_serializing_if = "Option::is_none"],
        /// The id, for `/api/approvals/ID`.
        id: String = "id",
        /// When.
        at: Timestamp = "at",
        /// The dialect of the session.
        dialect: String = "dialect",
        /// The session.
        session: String = "session",
        /// The agent.
        agent: String = "agent",
    }

    /// A question to a person ended.
    ApprovalDecided = "approval.decided" {
        /// The id of the question.
        id: String = "id",
        /// The session.
        session: String = "session",
        /// How.
        answer: ApprovalAnswer = "answer",
        /// What the person said about it.
        reason: Option<String> = "reason",
    }

    /// The server begins to execute a planned run.
    ForgeStarted = "forge.started" {
        /// The run.
        run: String = "run",
    }

    /// The server no longer executes a planned run.
    ForgeEnded = "forge.ended" {
        /// The run.
        run: String = "run",
        /// The state of the run; null after an error.
        state: Option<ForgeRunStatus> = "state",
        /// Tasks that are merged.
        merged: Option<u64> = "merged" [skip_serializing_if = "Option::is_none"],
        /// Tasks in all.
        total: Option<u64> = "total" [skip_serializing_if = "Option::is_none"],
        /// Tasks that have used all of their attempts.
        exhausted: Option<Vec<String>> = "exhausted" [skip_serializing_if = "Option::is_none"],
        /// Change requests that wait for a person.
        waiting: Option<Vec<String>> = "waiting" [skip_serializing_if = "Option::is_none"],
        /// What else there is to say.
        remarks: Option<Vec<String>> = "remarks" [skip_serializing_if = "Option::is_none"],
        /// Why it failed, if it did.
        error: Option<String> = "error",
    }
}

/// An argument of a call, as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownArgument {
    /// The name; inside of lists and objects the way to it, such as `edits[0].path`.
    pub name: String,
    /// The value, with nothing invisible in it.
    pub text: String,
}

/// A question of the model, as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownQuestion {
    /// The question.
    pub question: String,
    /// The question in a word.
    pub header: String,
    /// The answers to choose from.
    pub options: Vec<QuestionOption>,
    /// Whether several answers may be chosen.
    pub multi: bool,
}

/// A field that may be absent, null or a text: absent and null differ.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}
