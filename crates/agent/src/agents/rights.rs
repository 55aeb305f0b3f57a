//! Permissions of a child: never more than its parent has.

use std::{path::Path, sync::Arc};

use anyhow::anyhow;
use helve_contract::{
    Effects, Error, Result, RootPermission as Rooted, Session, Spec, closest_names, ports::AgentOrder,
};
use helve_engine::{Engine, Mode};

use super::{
    kinds::{AgentDefinition, AgentDefinitions, ToolAccess},
    purse::min_limit,
};
use crate::Budget;

/// What a child gets.
pub(super) struct ChildPermissions {
    /// The tools by name, in its parent's order.
    pub(super) tools: Vec<String>,
    pub(super) mode: Mode,
    pub(super) budget: Budget,
}

/// What can destroy, run, or start something, or wait for a person.
const DANGEROUS_EFFECTS: [Effects; 4] = [Effects::WRITES, Effects::EXECUTES, Effects::SPAWNS, Effects::DESTROYS];

impl ChildPermissions {
    /// What is left of the parent's rights for a child of this kind.
    pub(super) fn derive(
        parent: &Engine,
        kind: &AgentDefinition,
        order: &AgentOrder,
        left: Budget,
        most_turns: u32,
        may_start: bool,
    ) -> Result<Self> {
        let wanted = |spec: &Spec| {
            let starts = spec.effects.contains(Effects::SPAWNS);
            let is_ordered = order.tools.as_deref().is_none_or(|names| is_named(spec, names));
            is_of_kind(spec, kind) && is_ordered && (may_start || !starts)
        };
        let tools = parent.specs().filter(|spec| wanted(spec)).map(|spec| spec.name.clone()).collect();
        let now = parent.mode().get();
        let asked = order.mode.as_deref().map(str::parse::<Mode>).transpose().map_err(Error::failed)?;
        let mode = [asked, kind.mode].into_iter().flatten().fold(now, Mode::stricter);
        let turns = [order.max_turns, kind.max_turns, left.max_turns].into_iter().fold(Some(most_turns), min_limit);
        let cost = [order.max_cost, kind.max_cost].into_iter().fold(left.max_cost, min_limit);
        Ok(Self { tools, mode, budget: Budget { max_turns: turns, max_cost: cost, ..left } })
    }

    /// Verifies that the created session has no more than this.
    pub(super) fn verify(&self, engine: &Engine, child: &Session, parent: &Session) -> Result<()> {
        let more = engine.specs().find(|spec| !self.tools.contains(&spec.name));
        if let Some(spec) = more {
            return Err(Error::Internal(anyhow!(
                "the workshop gave an agent the tool {}, beyond its rights",
                spec.name
            )));
        }
        let mode = engine.mode().get();
        if mode.stricter(self.mode) != mode {
            return Err(Error::Internal(anyhow!("the workshop gave an agent the mode {}", mode.name())));
        }
        let Some(root) = child.workspace.roots().first() else { return Ok(()) };
        if !is_root_covered(parent, &root.dir, root.rights) {
            return Err(Error::Internal(anyhow!("the workshop gave an agent the folder {}", root.dir.display())));
        }
        Ok(())
    }
}

fn is_named(spec: &Spec, names: &[String]) -> bool {
    names.iter().any(|name| spec.has_name(name))
}

fn is_of_kind(spec: &Spec, kind: &AgentDefinition) -> bool {
    match &kind.tools {
        ToolAccess::All => true,
        ToolAccess::ReadOnly => !changes_something(spec),
        ToolAccess::Only(names) => is_named(spec, names),
    }
}

fn changes_something(spec: &Spec) -> bool {
    DANGEROUS_EFFECTS.iter().any(|effect| spec.effects.contains(*effect))
}

/// Whether an agent of this kind would have only tools of this parent that change nothing here.
pub(super) fn is_read_only(parent: &Engine, kind: &AgentDefinition) -> bool {
    !parent.specs().any(|spec| is_of_kind(&spec, kind) && changes_something(&spec))
}

fn is_root_covered(parent: &Session, dir: &Path, rights: Rooted) -> bool {
    let roots = parent.workspace.roots().iter();
    roots.into_iter().any(|root| dir.starts_with(&root.dir) && (rights == Rooted::Read || root.rights == rights))
}

/// The kind that an order asks for, or an error that names those there are.
pub(super) fn find_definition<'a>(kinds: &'a AgentDefinitions, name: Option<&str>) -> Result<&'a AgentDefinition> {
    kinds.get(name).ok_or_else(|| {
        let listed = kinds.list();
        let names: Vec<&str> = listed.iter().map(|kind| kind.name.as_str()).collect();
        let asked: String = name.unwrap_or("plain").chars().take(64).collect();
        let near = closest_names(&asked, names.iter().copied());
        let near = near.first().map(|name| format!(" Did you mean {name}?")).unwrap_or_default();
        Error::failed(format!("no agent is called `{}`; there are {}.{near}", asked.escape_debug(), names.join(", ")))
    })
}

/// What an agent is told first, beside what every agent is told.
pub(super) fn child_system_prompt(kind: &AgentDefinition, alone: bool) -> String {
    let alone = if alone { "\nYou work in the background: nobody can be asked, and nothing is approved." } else { "" };
    format!("{}{alone}", kind.prompt)
}

/// The order with the facts that go with it.
pub(super) fn task_prompt(order: &AgentOrder) -> String {
    let facts: Vec<&str> = order.facts.iter().map(|fact| fact.trim()).filter(|fact| !fact.is_empty()).collect();
    if facts.is_empty() {
        return order.prompt.clone();
    }
    format!("{}\n\nKey facts:\n- {}", order.prompt, facts.join("\n- "))
}

/// Verifies that a child shares no engine with its parent.
pub(super) fn ensure_separate_engines(child: &Arc<Engine>, parent: &Arc<Engine>) -> Result<()> {
    if Arc::ptr_eq(child, parent) {
        return Err(Error::Internal(anyhow!("the workshop gave an agent its parent's own engine")));
    }
    Ok(())
}
