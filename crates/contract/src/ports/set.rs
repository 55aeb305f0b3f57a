//! Which ports a session has and which a tool needs. Open it to add a port that tools can name in
//! [`Tool::NEEDS`](crate::Tool::NEEDS).

use std::{
    fmt,
    ops::{BitOr, Sub},
};

/// A resource that a session may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// Running commands.
    Commands,
    /// Fetching web pages.
    Web,
    /// Searching the web.
    Search,
    /// Stored sessions and their messages.
    Sessions,
    /// Notes that outlive a session.
    Memory,
    /// Stored schedules.
    Schedules,
    /// Session state: scratchpad and to-do list.
    Slates,
    /// Starting other agents.
    Agents,
    /// A user who answers questions.
    User,
    /// Settings that a model may read.
    Settings,
    /// Sending messages to people.
    Channels,
    /// Sending files to the user of the session.
    HomeChannel,
    /// Files that the user sent with a turn.
    Attachments,
    /// A planned run with its artifacts.
    ForgeRun,
    /// The in-memory workspace in which plans are drafted.
    Draft,
    /// Connected MCP servers.
    McpServers,
}

impl Port {
    /// Every port.
    pub const ALL: [Self; 16] = [
        Self::Commands,
        Self::Web,
        Self::Search,
        Self::Sessions,
        Self::Memory,
        Self::Schedules,
        Self::Slates,
        Self::Agents,
        Self::User,
        Self::Settings,
        Self::Channels,
        Self::HomeChannel,
        Self::Attachments,
        Self::ForgeRun,
        Self::Draft,
        Self::McpServers,
    ];

    /// Its name in the documentation and in `helve tools --format json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Web => "web",
            Self::Search => "search",
            Self::Sessions => "sessions",
            Self::Memory => "memory",
            Self::Schedules => "schedules",
            Self::Slates => "slates",
            Self::Agents => "agents",
            Self::User => "user",
            Self::Settings => "settings",
            Self::Channels => "channels",
            Self::HomeChannel => "home_channel",
            Self::Attachments => "attachments",
            Self::ForgeRun => "forge_run",
            Self::Draft => "draft",
            Self::McpServers => "mcp_servers",
        }
    }

    /// Why a tool that needs this port does not work without it.
    #[must_use]
    pub const fn why_missing(self) -> &'static str {
        match self {
            Self::Commands => "commands are turned off in this session",
            Self::Web => "the web cannot be reached from this session",
            Self::Search => "the web cannot be searched from this session",
            Self::Sessions => "no sessions are stored here",
            Self::Memory => "no notes are stored here",
            Self::Schedules => "no schedules are stored here",
            Self::Slates => "no session records are stored here",
            Self::Agents => "no other agent can be started here, because no model is configured for this session",
            Self::User => "nobody can be asked here",
            Self::Settings => "no settings can be read here",
            Self::Channels => "no channels are configured here",
            Self::HomeChannel => "this session has no channel to the user that takes files",
            Self::Attachments => "this session takes no files from the user",
            Self::ForgeRun => "this session belongs to no planned run",
            Self::Draft => "there is nothing to draft a plan in here",
            Self::McpServers => "no MCP servers are configured",
        }
    }

    /// What the operator must do to provide it.
    #[must_use]
    pub const fn how_to_get(self) -> &'static str {
        match self {
            Self::Commands => "Set `tools.shell.enabled = true`.",
            Self::Web => "Start a session that has web access.",
            Self::Search => "Set `search.provider`.",
            Self::Sessions | Self::Slates => "Set `store.file` to a file that can be written.",
            Self::Memory => "Set `memory.enabled = true` and `store.file` to a file that can be written.",
            Self::Schedules => "Set `schedule.enabled = true` and `store.file` to a file that can be written.",
            Self::Agents => "Set `model.name` and `model.base_url`.",
            Self::User => "Use `helve chat`, `helve serve`, or an MCP client with elicitation.",
            Self::Settings => "Use `helve chat`, `helve run`, `helve serve` or `helve mcp`.",
            Self::Channels => "Add a table `[channels.NAME]`.",
            Self::HomeChannel => "Add a table `[channels.NAME]` and set `home_channel`.",
            Self::Attachments => "Send a file with the turn, as with `helve run --attach FILE`.",
            Self::ForgeRun => "Begin a run with `helve forge plan`.",
            Self::Draft => "Use the role `captain`.",
            Self::McpServers => "Add a table `[mcp.servers.NAME]`.",
        }
    }
}

/// A set of ports.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PortSet(u32);

impl PortSet {
    /// No port.
    pub const NONE: Self = Self(0);
    /// Every port.
    pub const ALL: Self = Self::of(&Port::ALL);

    /// The set of these ports. Usable in a constant.
    #[must_use]
    pub const fn of(ports: &[Port]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < ports.len() {
            bits |= 1 << ports[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// The union of both sets. Usable in a constant.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without a port.
    #[must_use]
    pub const fn without(self, port: Port) -> Self {
        Self(self.0 & !(1 << port as u32))
    }

    /// Whether a port is in the set.
    #[must_use]
    pub const fn has(self, port: Port) -> bool {
        self.0 & (1 << port as u32) != 0
    }

    /// Whether no port is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The ports in the set, in the order of [`Port::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Port> {
        Port::ALL.into_iter().filter(move |port| self.has(*port))
    }
}

impl BitOr for PortSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// The difference of two sets.
impl Sub for PortSet {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set = PortSet::of(&[Port::Web, Port::McpServers]);
        assert!(set.has(Port::Web) && set.has(Port::McpServers) && !set.has(Port::Commands));
        assert_eq!((set - PortSet::of(&[Port::Web])).iter().collect::<Vec<_>>(), [Port::McpServers]);
        assert_eq!(PortSet::ALL.iter().count(), Port::ALL.len());
        assert!(PortSet::NONE.is_empty() && set.without(Port::Web).without(Port::McpServers).is_empty());
    }
}
