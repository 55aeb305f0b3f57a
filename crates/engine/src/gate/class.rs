//! What a rule with content speaks of: files that are read or written, commands, or addresses.
//!
//! `Bash(rm:*)` in a deny rule means the command `rm`, whichever tool runs it. So a rule's tool name stands for a class,
//! and the class holds for every tool of every dialect.

use std::ops::BitOr;

use helve_contract::{AccessRequest, PatternPurpose, name_matches};

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleClass(u8);

impl RuleClass {
    /// Nothing is known of the tool: the rule holds for the tool alone.
    pub const NONE: Self = Self(0);
    /// The tool reads files.
    pub const READ: Self = Self(1);
    /// The tool creates, changes or removes files.
    pub const WRITE: Self = Self(1 << 1);
    /// The tool runs a command.
    pub const COMMAND: Self = Self(1 << 2);
    /// The tool fetches an address.
    pub const FETCH: Self = Self(1 << 3);

    /// Whether a class is in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0 && other.0 != 0
    }

    /// The classes of a tool whose calls use this.
    #[must_use]
    pub fn of_request(request: &AccessRequest) -> Self {
        [
            (!request.reads.is_empty(), Self::READ),
            (!request.writes.is_empty(), Self::WRITE),
            (request.command.is_some(), Self::COMMAND),
            (request.url.is_some(), Self::FETCH),
        ]
        .into_iter()
        .filter(|(is, _)| *is)
        .fold(Self::NONE, |set, (_, class)| set | class)
    }

    /// The classes of the tools that a rule's tool name, or pattern of names, means in any dialect.
    #[must_use]
    pub fn of_name(pattern: &str) -> Self {
        let named = |names: &[&str]| names.iter().any(|name| name_matches(pattern, name, PatternPurpose::Restrict));
        [(READERS, Self::READ), (WRITERS, Self::WRITE), (SHELLS, Self::COMMAND), (FETCHERS, Self::FETCH)]
            .into_iter()
            .filter(|(names, _)| named(names))
            .fold(Self::NONE, |set, (_, class)| set | class)
    }
}

impl BitOr for RuleClass {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

// Every name and alias that a dialect gives to such a tool, and names that other agents use for one. A test of the
// dialects compares these lists with what their tools report.

const READERS: &[&str] = &[
    "Read",
    "FileRead",
    "file_read",
    "Grep",
    "file_search",
    "Glob",
    "find",
    "ls",
    "file_list",
    "memory_get",
    "send_media",
    "vault_copyto",
];

const WRITERS: &[&str] = &[
    "Write",
    "FileWrite",
    "file_write",
    "Edit",
    "FileEdit",
    "file_edit",
    "MultiEdit",
    "apply_patch",
    "NotebookEdit",
    "file_delete",
    "attachment_save",
    "vault_copyto",
];

const SHELLS: &[&str] = &["Bash", "exec", "process", "run_command", "run_tests", "shell", "shell_exec", "plan_bash"];

const FETCHERS: &[&str] = &["WebFetch", "web_fetch"];

/// Names of classes that are no tool of a dialect. Rules may use them.
pub const CLASS_NAMES: &[&str] = &["MultiEdit", "run_command", "shell", "Read", "Edit", "Write", "Bash", "WebFetch"];
