//! The class of a rule with content: files that are read or written, commands, or addresses.
//!
//! `Bash(rm:*)` in a deny rule means the command `rm`, whichever tool runs it. So a rule's tool name denotes a class,
//! which covers tools of all dialects.

use std::ops::BitOr;

use helve_contract::{AccessRequest, PatternPurpose, name_matches};

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleClass(u8);

impl RuleClass {
    /// No class: the rule applies to the named tool alone.
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

    /// The classes of a tool with this access request.
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

    /// The classes that a rule's tool name or name pattern denotes, in any dialect.
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

// All names and aliases of such tools in the dialects, and names in other agents. A test in the dialects crate compares
// these lists with what the tools report.

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

/// Class names that are not tools of a dialect. Rules may use them.
pub const CLASS_NAMES: &[&str] = &["MultiEdit", "run_command", "shell", "Read", "Edit", "Write", "Bash", "WebFetch"];
