//! What a tool can do to the world, and what the seeds' own classes follow from it.

use std::ops::BitOr;

use serde::{Deserialize, Serialize};

/// The base fact about a tool: which kinds of effect a call can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects(u16);

impl Effects {
    /// Touches nothing outside the call.
    pub const NONE: Self = Self(0);
    /// Looks at files or records.
    pub const READS: Self = Self(1);
    /// Changes files or records.
    pub const WRITES: Self = Self(1 << 1);
    /// Talks to the network.
    pub const NETWORK: Self = Self(1 << 2);
    /// Runs programs.
    pub const EXECUTES: Self = Self(1 << 3);
    /// Starts other agents.
    pub const SPAWNS: Self = Self(1 << 4);
    /// Waits for a person.
    pub const BLOCKS: Self = Self(1 << 5);
    /// May destroy what was there before. Told to MCP clients as `destructiveHint`.
    pub const DESTROYS: Self = Self(1 << 6);
    /// Changes the session's own notes and nothing else: its to-do list, how it shows things. Runs alone; never asked.
    pub const SESSION_STATE: Self = Self(1 << 7);
    /// Hands something to somebody outside: a message, a file.
    pub const SENDS: Self = Self(1 << 8);

    /// Nobody said what a call can do: it may read, write, destroy and reach the network, and counts as privileged.
    pub const UNKNOWN: Self =
        Self(Self::UNSTATED.0 | Self::READS.0 | Self::WRITES.0 | Self::NETWORK.0 | Self::DESTROYS.0);
    /// Marks a set that nobody stated.
    const UNSTATED: Self = Self(1 << 9);

    /// Both sets together, in a constant.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a call changes nothing and goes nowhere.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.0 & !Self::READS.0 == 0
    }

    /// Whether a call can run beside others of the same answer: it only looks, or it starts an agent, whose own calls are
    /// judged one by one.
    #[must_use]
    pub const fn is_parallel_safe(self) -> bool {
        self.0 & !Self::READS.0 & !Self::SPAWNS.0 == 0
    }

    /// Seed 003's safety tier.
    #[must_use]
    pub const fn tier(self) -> Tier {
        if self.contains(Self::EXECUTES) || self.contains(Self::UNSTATED) {
            Tier::Privileged
        } else if self.is_read_only() {
            Tier::ReadOnly
        } else {
            Tier::SideEffecting
        }
    }

    /// Seed 004's side-effect type: the gravest effect in the set.
    #[must_use]
    pub const fn side_effect(self) -> SideEffect {
        if self.contains(Self::SPAWNS) {
            SideEffect::Spawns
        } else if self.contains(Self::BLOCKS) {
            SideEffect::Blocking
        } else if self.contains(Self::NETWORK) {
            SideEffect::Network
        } else if self.contains(Self::EXECUTES) || self.contains(Self::WRITES) || self.contains(Self::SESSION_STATE) {
            SideEffect::Mutating
        } else if self.contains(Self::READS) {
            SideEffect::ReadOnly
        } else {
            SideEffect::None
        }
    }

    /// MCP's hints for a client.
    #[must_use]
    pub const fn annotations(self) -> Annotations {
        Annotations {
            read_only_hint: self.is_read_only(),
            destructive_hint: self.contains(Self::DESTROYS) || self.contains(Self::EXECUTES),
            idempotent_hint: self.is_read_only(),
            open_world_hint: self.contains(Self::NETWORK) || self.contains(Self::EXECUTES),
        }
    }

    /// The names of the effects in the set, as configuration and documentation spell them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Effects, &str); 10] = [
            (Effects::READS, "reads"),
            (Effects::WRITES, "writes"),
            (Effects::NETWORK, "network"),
            (Effects::EXECUTES, "executes"),
            (Effects::SPAWNS, "spawns"),
            (Effects::BLOCKS, "blocks"),
            (Effects::DESTROYS, "destroys"),
            (Effects::SESSION_STATE, "notes"),
            (Effects::SENDS, "sends"),
            (Effects::UNSTATED, "unknown"),
        ];
        NAMES.into_iter().filter(move |(effect, _)| self.contains(*effect)).map(|(_, name)| name)
    }
}

impl BitOr for Effects {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// How much a call can change (seed 003). The order is the order of danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Changes nothing. Runs beside other calls.
    ReadOnly,
    /// Changes files, records or the outside world. Runs alone.
    SideEffecting,
    /// Can do anything the host can. May ask the user first.
    Privileged,
}

/// Seed 004's side-effect type of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SideEffect {
    /// Touches nothing.
    None,
    /// Looks only.
    ReadOnly,
    /// Changes files or state.
    Mutating,
    /// Goes to the network.
    Network,
    /// Waits for a person.
    Blocking,
    /// Starts agents.
    Spawns,
}

/// MCP's tool annotations, in MCP's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// The tool changes nothing.
    pub read_only_hint: bool,
    /// The tool may destroy what was there.
    pub destructive_hint: bool,
    /// A second equal call changes nothing more.
    pub idempotent_hint: bool,
    /// The tool reaches beyond this machine's workspace.
    pub open_world_hint: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_of_the_seeds_follow_from_the_effects() {
        let read = Effects::READS;
        let write = Effects::READS | Effects::WRITES;
        let shell = write | Effects::EXECUTES;
        let seen = [read, write, shell, Effects::NETWORK, Effects::UNKNOWN].map(|it| (it.tier(), it.side_effect()));
        assert_eq!(
            seen,
            [
                (Tier::ReadOnly, SideEffect::ReadOnly),
                (Tier::SideEffecting, SideEffect::Mutating),
                (Tier::Privileged, SideEffect::Mutating),
                (Tier::SideEffecting, SideEffect::Network),
                (Tier::Privileged, SideEffect::Network),
            ]
        );
        assert!(Effects::UNKNOWN.names().eq(["reads", "writes", "network", "destroys", "unknown"]));
        assert!(Effects::UNKNOWN.annotations().destructive_hint && !Effects::UNKNOWN.is_parallel_safe());
    }
}
