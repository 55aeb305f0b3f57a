//! The tools that can be called now, and their names. Tools from outside come and go; a call keeps the table it began with.

use std::sync::Arc;

use helve_contract::{Entry, Spec};

use crate::{
    BuildError,
    builder::{Slot, Wishes, outside},
    lookup::Names,
};

/// The tools of a session at one time.
pub(crate) struct Table {
    tools: Vec<Arc<Slot>>,
    pub(crate) names: Names,
}

impl Table {
    /// A table of the dialect's own tools and those from outside, as far as they are wished for.
    pub(crate) fn new(own: &[Arc<Slot>], added: Vec<Arc<Slot>>, wishes: &Wishes) -> Result<Self, BuildError> {
        let all: Vec<(Arc<Slot>, bool)> =
            own.iter().map(|slot| (slot.clone(), false)).chain(added.into_iter().map(|slot| (slot, true))).collect();
        let known = Names::new(all.iter().map(|(slot, _)| &*slot.entry.spec))?;
        let tools: Vec<Arc<Slot>> =
            all.into_iter().filter(|(slot, added)| wishes.want(&slot.entry, *added)).map(|(slot, _)| slot).collect();
        let names = Names::new(tools.iter().map(|slot| &*slot.entry.spec))?.among(known);
        Ok(Self { tools, names })
    }

    /// The same with other tools from outside.
    pub(crate) fn with(own: &[Arc<Slot>], entries: Vec<Entry>, wishes: &Wishes) -> Result<Self, BuildError> {
        let added =
            entries.into_iter().map(|entry| Ok(Arc::new(outside(entry)?))).collect::<Result<_, BuildError>>()?;
        Self::new(own, added, wishes)
    }

    /// What the model is told, in order.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &Arc<Spec>> {
        self.tools.iter().map(|slot| &slot.entry.spec)
    }

    /// The tool of this name or alias.
    pub(crate) fn exact(&self, name: &str) -> Option<&Slot> {
        self.names.exact(name).map(|at| &*self.tools[at])
    }

    /// The tool that a name means.
    pub(crate) fn find(&self, name: &str) -> Option<&Slot> {
        self.names.exact(name).or_else(|| self.names.loose(name)).map(|at| &*self.tools[at])
    }

    /// Whether a model would see the same.
    pub(crate) fn tells_the_same(&self, other: &Self) -> bool {
        let same = |(one, two): (&Arc<Spec>, &Arc<Spec>)| {
            one.name == two.name && one.description == two.description && one.schema == two.schema
        };
        self.tools.len() == other.tools.len() && self.specs().zip(other.specs()).all(same)
    }
}
