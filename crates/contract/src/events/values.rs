//! The fixed values of event fields, and a macro for enums with a name for each value.

/// Defines an enum whose values have fixed names, in JSON and in text.
macro_rules! named_values {
    ($( $(#[$about:meta])* pub enum $type:ident { $( $(#[$doc:meta])* $value:ident = $name:literal, )+ } )+) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $type {
            $( $(#[$doc])* #[serde(rename = $name)] $value, )+
        }

        impl $type {
            /// Every name, in the order of the definition.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name in JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$value => $name, )+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+ };
}

named_values! {
    /// Why nothing new begins in a planned run.
    pub enum PauseReason {
        /// A person stopped it.
        User = "user",
        /// A change request is open.
        ChangeRequest = "cr",
    }

    /// What an agent's output is.
    pub enum ContentKind {
        /// Text for the reader.
        Text = "text",
        /// Reasoning.
        Thinking = "thinking",
    }

    /// The kind of a file in the artifact store of a planned run.
    pub enum ArtifactKind {
        /// A specification.
        Spec = "spec",
        /// The document of a task.
        Task = "task",
        /// The graph, or an addition to it.
        Dag = "dag",
        /// An agent's report about its work.
        Walkthrough = "walkthrough",
        /// A change request.
        ChangeRequest = "cr",
    }

    /// The last state of a task that has used all of its attempts.
    pub enum ExhaustedStatus {
        /// The last attempt failed.
        Failed = "FAILED",
        /// The agent of the last attempt went silent.
        Stale = "STALE",
    }

    /// The state of a planned run.
    pub enum ForgeRunStatus {
        /// The captain plans.
        Planning = "planning",
        /// The plan waits for a person.
        PlanReview = "plan_review",
        /// Agents work.
        Executing = "executing",
        /// Nothing new begins.
        Paused = "paused",
        /// All tasks are merged.
        Completed = "completed",
        /// The run cannot continue.
        Failed = "failed",
    }

    /// What the integrity check after a command did about a protected file.
    pub enum IntegrityResult {
        /// The file was new and went to the quarantine directory.
        Moved = "moved",
        /// The content stands in a git ref from before, so the file stays.
        Committed = "committed",
        /// The file was changed, which is only reported.
        Changed = "changed",
    }

    /// What a WebAssembly module may do in a mounted directory.
    pub enum MountAccess {
        /// Only read.
        ReadOnly = "ro",
        /// Read and write.
        ReadWrite = "rw",
    }

    /// How a turn of a session ended.
    pub enum TurnEnd {
        /// The model had no more to do.
        Done = "done",
        /// The turn ended, and a rule or a person refused at least one call.
        Refused = "refused",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
        /// A budget is used up.
        Budget = "budget",
        /// The model repeated itself.
        Circles = "circles",
        /// The model could not be reached, or answered with an error.
        Model = "model",
        /// Another error.
        Error = "error",
    }

    /// What the web UI asks a person for.
    pub enum ApprovalKind {
        /// Permission for a call.
        Approval = "approval",
        /// Answers to questions of the model.
        Question = "question",
    }

    /// How a question to a person ended.
    pub enum ApprovalAnswer {
        /// Allowed once.
        Once = "once",
        /// Allowed for the session.
        Session = "session",
        /// Denied.
        Deny = "deny",
        /// The questions of the model were answered.
        Answered = "answered",
        /// Nobody answered in time.
        Timeout = "timeout",
        /// The caller stopped waiting.
        Gone = "gone",
    }
}

/// The value types above, by name, with the names of their values: for the generated list of events.
pub(super) const VALUE_TYPES: &[(&str, &[&str])] = &[
    ("PauseReason", PauseReason::NAMES),
    ("ContentKind", ContentKind::NAMES),
    ("ArtifactKind", ArtifactKind::NAMES),
    ("ExhaustedStatus", ExhaustedStatus::NAMES),
    ("ForgeRunStatus", ForgeRunStatus::NAMES),
    ("IntegrityResult", IntegrityResult::NAMES),
    ("TurnEnd", TurnEnd::NAMES),
    ("ApprovalKind", ApprovalKind::NAMES),
    ("ApprovalAnswer", ApprovalAnswer::NAMES),
];
