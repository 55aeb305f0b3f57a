//! The tools that can be called now, and their names. Tools from outside come and go; a call keeps the table it began with.

use std::sync::Arc;

use helve_contract::{Entry, Spec};

use crate::{
    BuildError, ExternalRow, NotOffered, ToolStatus,
    builder::{Slot, Wishes, outside},
    lookup::Names,
};

/// The tools of a session at one time.
pub(crate) struct Table {
    tools: Vec<Arc<Slot>>,
    statuses: Vec<ToolStatus>,
    pub(crate) names: Names,
}

impl Table {
    /// A table of the dialect's own tools and those from outside, as far as they are wished for.
    pub(crate) fn new(
        own: &[Arc<Slot>],
        added: Vec<Arc<Slot>>,
        external: &[ExternalRow],
        wishes: &Wishes,
    ) -> Result<Self, BuildError> {
        let all: Vec<(Arc<Slot>, bool)> =
            own.iter().map(|slot| (slot.clone(), false)).chain(added.into_iter().map(|slot| (slot, true))).collect();
        let known = Names::new(all.iter().map(|(slot, _)| &*slot.entry.spec))?;
        let (mut tools, mut statuses) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
        for (slot, imported) in all {
            let spec = &slot.entry.spec;
            let offered = wishes.judge(&slot.entry, imported);
            statuses.push(ToolStatus {
                name: spec.name.clone(),
                description: spec.description.clone(),
                spec: Some(spec.clone()),
                needs: spec.needs,
                imported,
                offered,
            });
            if offered.is_ok() {
                tools.push(slot);
            }
        }
        let absent = external.iter().filter(|row| known.exact(row.name).is_none()).map(|row| ToolStatus {
            name: row.name.to_owned(),
            description: row.about.to_owned(),
            spec: None,
            needs: row.needs,
            imported: false,
            // The crate that supplies it did not, so a port that it needs is missing, whatever the session says.
            offered: wishes.judge_external(row).and(Err(NotOffered::Missing(row.needs))),
        });
        statuses.splice(own.len()..own.len(), absent);
        let names = Names::new(tools.iter().map(|slot| &*slot.entry.spec))?;
        Ok(Self { tools, statuses, names })
    }

    /// Every row and every imported tool, offered or not.
    pub(crate) fn statuses(&self) -> &[ToolStatus] {
        &self.statuses
    }

    /// The same with other tools from outside.
    pub(crate) fn with(
        own: &[Arc<Slot>],
        entries: Vec<Entry>,
        external: &[ExternalRow],
        wishes: &Wishes,
    ) -> Result<Self, BuildError> {
        let added =
            entries.into_iter().map(|entry| Ok(Arc::new(outside(entry)?))).collect::<Result<_, BuildError>>()?;
        Self::new(own, added, external, wishes)
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
