//! A dialect: a table of tools, and how their model is spoken to.

use std::path::PathBuf;

use helve_contract::{Cut, Entry, Error, Keep, PortSet, Reading, Reply};

/// Everything that makes one dialect: what the model calls, how it writes paths, how it is answered.
#[derive(Clone)]
pub struct Dialect {
    /// Its name: `claude`.
    pub name: &'static str,
    /// One line about it, for people.
    pub about: &'static str,
    /// The tools, in the order in which the model sees them.
    pub tools: Vec<Entry>,
    /// Rows that another crate supplies while the program runs, such as tools over the resources of MCP servers.
    pub external: &'static [ExternalRow],
    /// The named sets of tools that a session can choose from: the seed's roles or presets.
    pub roles: &'static [Role],
    /// The role when none is chosen; `None` gives every tool.
    pub default_role: Option<&'static str>,
    /// How its model writes paths.
    pub reading: Reading,
    /// What fits into a reply, by tool.
    pub limits: Limits,
    /// How it is told of errors, cuts and the like.
    pub words: Words,
    /// What is asked before a call, when nothing else is configured.
    pub mode: crate::Mode,
}

/// A named set of tools: a seed's role or preset.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its name: `readonly`, `captain`.
    pub name: &'static str,
    /// The tools it has, by name; `["*"]` is all of them.
    pub tools: &'static [&'static str],
    /// Whether tools of plugins, modules and MCP servers belong to it too.
    pub imports: bool,
}

/// A row of a dialect's table whose tool is built outside of the dialect.
#[derive(Clone, Copy, Debug)]
pub struct ExternalRow {
    /// The name that the model calls.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The ports that it needs.
    pub needs: PortSet,
}

/// What fits into a reply.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For every tool that is not named below.
    pub general: Limit,
    /// For single tools, by name.
    pub by_tool: &'static [(&'static str, Limit)],
}

/// What fits into one reply. Only whole lines are kept, where there are lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes of text.
    pub bytes: usize,
    /// Lines of text.
    pub lines: usize,
}

impl Limits {
    /// The limit of a tool.
    pub fn of(&self, tool: &str) -> Limit {
        self.by_tool.iter().find(|(name, _)| *name == tool).map_or(self.general, |(_, limit)| *limit)
    }
}

/// How a dialect words what the engine says.
#[derive(Clone, Copy)]
pub struct Words {
    /// An error of any kind, for the model; `tool` is the name it called.
    pub error: fn(tool: &str, error: &Error) -> Reply,
    /// The line that tells of a cut. It stands after the text that was kept (before it, where the tail was kept).
    pub notice: fn(&Notice) -> String,
    /// What a call says that was cancelled.
    pub cancelled: &'static str,
}

/// What there is to say about a cut.
#[derive(Clone, Debug)]
pub struct Notice {
    /// What the whole was.
    pub cut: Cut,
    /// What was kept, in bytes and lines.
    pub kept: (usize, usize),
    /// Which end was kept.
    pub keep: Keep,
    /// The limit that cut it.
    pub limit: Limit,
    /// The file with the whole, as the model can name it.
    pub file: Option<PathBuf>,
}
