//! The effects of a tool, and the safety tiers, side-effect types and MCP annotations derived from them.

use std::ops::BitOr;

use serde::{Deserialize, Serialize};

/// The set of effects that a call can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects(u16);

impl Effects {
    /// No effect outside the call.
    pub const NONE: Self = Self(0);
    /// Reads files or records.
    pub const READS: Self = Self(1);
    /// Changes files or records.
    pub const WRITES: Self = Self(1 << 1);
    /// Uses the network.
    pub const NETWORK: Self = Self(1 << 2);
    /// Runs programs.
    pub const EXECUTES: Self = Self(1 << 3);
    /// Starts other agents.
    pub const SPAWNS: Self = Self(1 << 4);
    /// Waits for the user.
    pub const BLOCKS: Self = Self(1 << 5);
    /// May destroy existing content. MCP clients get it as `destructiveHint`.
    pub const DESTROYS: Self = Self(1 << 6);
    /// Changes only session state, such as the to-do list. Such a call runs alone and needs no approval.
    pub const SESSION_STATE: Self = Self(1 << 7);
    /// Sends something to a third party: a message, a file.
    pub const SENDS: Self = Self(1 << 8);

    /// No effects were declared. The tool counts as privileged: it may read, write, destroy and use the network.
    pub const UNKNOWN: Self =
        Self(Self::UNSTATED.0 | Self::READS.0 | Self::WRITES.0 | Self::NETWORK.0 | Self::DESTROYS.0);
    /// Marks a set as undeclared.
    const UNSTATED: Self = Self(1 << 9);

    /// The union of both sets. Usable in a constant.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a call changes nothing and sends nothing.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.0 & !Self::READS.0 == 0
    }

    /// Whether a call can run in parallel with others of the same answer. It is read-only, or it starts an agent whose
    /// calls pass the gate one by one.
    #[must_use]
    pub const fn is_parallel_safe(self) -> bool {
        self.0 & !Self::READS.0 & !Self::SPAWNS.0 == 0
    }

    /// The safety tier (seed 003).
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

    /// The side-effect type (seed 004): the most severe effect in the set.
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

    /// The MCP annotations for clients.
    #[must_use]
    pub const fn annotations(self) -> Annotations {
        Annotations {
            read_only_hint: self.is_read_only(),
            destructive_hint: self.contains(Self::DESTROYS) || self.contains(Self::EXECUTES),
            idempotent_hint: self.is_read_only(),
            open_world_hint: self.contains(Self::NETWORK) || self.contains(Self::EXECUTES),
        }
    }

    /// The names of the effects, as settings and documentation spell them.
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

/// How much a call can change (seed 003), ordered by increasing danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Changes nothing. Runs in parallel with other calls.
    ReadOnly,
    /// Changes files, records or external systems. Runs alone.
    SideEffecting,
    /// Can do everything that the host can. May need an approval.
    Privileged,
}

/// The side-effect type of a tool (seed 004).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SideEffect {
    /// No effect.
    None,
    /// Reads only.
    ReadOnly,
    /// Changes files or state.
    Mutating,
    /// Uses the network.
    Network,
    /// Waits for the user.
    Blocking,
    /// Starts agents.
    Spawns,
}

/// MCP tool annotations, in the spelling of the MCP specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// The tool changes nothing.
    pub read_only_hint: bool,
    /// The tool may destroy existing content.
    pub destructive_hint: bool,
    /// A second call with the same arguments has no further effect.
    pub idempotent_hint: bool,
    /// The tool reaches beyond the workspace of this machine.
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
