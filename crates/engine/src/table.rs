//! `ToolRegistry`: the current tools and their names. External tools change; a call keeps the registry it started with.

use std::sync::Arc;

use helve_contract::{Entry, Spec};

use crate::{
    BuildError, ExternalRow, NotOffered, ToolStatus,
    builder::{RegisteredTool, ToolFilter, compile_external},
    lookup::NameIndex,
};

/// The tools of a session at one time.
pub(crate) struct ToolRegistry {
    tools: Vec<Arc<RegisteredTool>>,
    statuses: Vec<ToolStatus>,
    pub(crate) names: NameIndex,
}

impl ToolRegistry {
    /// A registry of the dialect's tools and the external ones, after filtering.
    pub(crate) fn new(
        own: &[Arc<RegisteredTool>],
        added: Vec<Arc<RegisteredTool>>,
        external: &[ExternalRow],
        wishes: &ToolFilter,
    ) -> Result<Self, BuildError> {
        let all: Vec<(Arc<RegisteredTool>, bool)> =
            own.iter().map(|slot| (slot.clone(), false)).chain(added.into_iter().map(|slot| (slot, true))).collect();
        let known = NameIndex::new(all.iter().map(|(slot, _)| &*slot.entry.spec))?;
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
            // The supplying crate did not supply it, so a port that it needs is missing.
            offered: wishes.judge_external(row).and(Err(NotOffered::Missing(row.needs))),
        });
        statuses.splice(own.len()..own.len(), absent);
        let names = NameIndex::new(tools.iter().map(|slot| &*slot.entry.spec))?;
        Ok(Self { tools, statuses, names })
    }

    /// Every row and every imported tool, offered or not.
    pub(crate) fn statuses(&self) -> &[ToolStatus] {
        &self.statuses
    }

    /// A copy with other external tools.
    pub(crate) fn with_external(
        own: &[Arc<RegisteredTool>],
        entries: Vec<Entry>,
        external: &[ExternalRow],
        wishes: &ToolFilter,
    ) -> Result<Self, BuildError> {
        let added = entries
            .into_iter()
            .map(|entry| Ok(Arc::new(compile_external(entry)?)))
            .collect::<Result<_, BuildError>>()?;
        Self::new(own, added, external, wishes)
    }

    /// The declarations for the model, in order.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &Arc<Spec>> {
        self.tools.iter().map(|slot| &slot.entry.spec)
    }

    /// The tool of this name or alias.
    pub(crate) fn find_exact(&self, name: &str) -> Option<&RegisteredTool> {
        self.names.exact(name).map(|at| &*self.tools[at])
    }

    /// The tool that a name means.
    pub(crate) fn find(&self, name: &str) -> Option<&RegisteredTool> {
        self.names.exact(name).or_else(|| self.names.find_normalized(name)).map(|at| &*self.tools[at])
    }

    /// Whether a model would see the same declarations.
    pub(crate) fn has_same_definitions(&self, other: &Self) -> bool {
        let same = |(one, two): (&Arc<Spec>, &Arc<Spec>)| {
            one.name == two.name && one.description == two.description && one.input_schema == two.input_schema
        };
        self.tools.len() == other.tools.len() && self.specs().zip(other.specs()).all(same)
    }
}
