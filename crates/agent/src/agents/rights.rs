//! What a child gets: never more than its parent has.

use std::{path::Path, sync::Arc};

use anyhow::anyhow;
use helve_contract::{Effects, Error, Result, Rights as Rooted, Session, Spec, nearest, ports::AgentOrder};
use helve_engine::{Engine, Mode};

use super::{
    kinds::{Hands, Kind, Kinds},
    purse::least,
};
use crate::Budget;

/// What a child gets.
pub(super) struct Rights {
    /// The tools by name, in its parent's order.
    pub(super) tools: Vec<String>,
    pub(super) mode: Mode,
    pub(super) budget: Budget,
}

/// What can destroy, run, or start something, or wait for a person.
const GRAVE: [Effects; 4] = [Effects::WRITES, Effects::EXECUTES, Effects::SPAWNS, Effects::DESTROYS];

impl Rights {
    /// What is left of the parent's rights for a child of this kind.
    pub(super) fn of(
        parent: &Engine,
        kind: &Kind,
        order: &AgentOrder,
        left: Budget,
        most_turns: u32,
        may_start: bool,
    ) -> Result<Self> {
        let wanted = |spec: &Spec| {
            let starts = spec.effects.has(Effects::SPAWNS);
            let is_ordered = order.tools.as_deref().is_none_or(|names| is_named(spec, names));
            is_of_kind(spec, kind) && is_ordered && (may_start || !starts)
        };
        let tools = parent.specs().filter(|spec| wanted(spec)).map(|spec| spec.name.clone()).collect();
        let now = parent.mode().get();
        let asked = order.mode.as_deref().map(str::parse::<Mode>).transpose().map_err(Error::failed)?;
        let mode = [asked, kind.mode].into_iter().flatten().fold(now, Mode::at_most);
        let turns = [order.max_turns, kind.max_turns, left.turns].into_iter().fold(Some(most_turns), least);
        let cost = [order.max_cost, kind.max_cost].into_iter().fold(left.cost, least);
        Ok(Self { tools, mode, budget: Budget { turns, cost, ..left } })
    }

    /// Makes sure that what the workshop made is no more than this.
    pub(super) fn hold(&self, engine: &Engine, child: &Session, parent: &Session) -> Result<()> {
        let more = engine.specs().find(|spec| !self.tools.contains(&spec.name));
        if let Some(spec) = more {
            return Err(Error::Internal(anyhow!(
                "the workshop gave an agent the tool {}, beyond its rights",
                spec.name
            )));
        }
        let mode = engine.mode().get();
        if mode.at_most(self.mode) != mode {
            return Err(Error::Internal(anyhow!("the workshop gave an agent the mode {}", mode.name())));
        }
        let Some(root) = child.workspace.roots().first() else { return Ok(()) };
        if !covered(parent, &root.dir, root.rights) {
            return Err(Error::Internal(anyhow!("the workshop gave an agent the folder {}", root.dir.display())));
        }
        Ok(())
    }
}

fn is_named(spec: &Spec, names: &[String]) -> bool {
    names.iter().any(|name| spec.answers_to(name))
}

fn is_of_kind(spec: &Spec, kind: &Kind) -> bool {
    match &kind.hands {
        Hands::All => true,
        Hands::Looking => !changes_something(spec),
        Hands::Only(names) => is_named(spec, names),
    }
}

fn changes_something(spec: &Spec) -> bool {
    GRAVE.iter().any(|effect| spec.effects.has(*effect))
}

/// Whether an agent of this kind would have only tools of this parent that change nothing here.
pub(super) fn is_read_only(parent: &Engine, kind: &Kind) -> bool {
    !parent.specs().any(|spec| is_of_kind(&spec, kind) && changes_something(&spec))
}

fn covered(parent: &Session, dir: &Path, rights: Rooted) -> bool {
    let roots = parent.workspace.roots().iter();
    roots.into_iter().any(|root| dir.starts_with(&root.dir) && (rights == Rooted::Read || root.rights == rights))
}

/// The kind that an order asks for, or an error that names those there are.
pub(super) fn kind<'a>(kinds: &'a Kinds, name: Option<&str>) -> Result<&'a Kind> {
    kinds.get(name).ok_or_else(|| {
        let listed = kinds.listed();
        let names: Vec<&str> = listed.iter().map(|kind| kind.name.as_str()).collect();
        let asked: String = name.unwrap_or("plain").chars().take(64).collect();
        let near = nearest(&asked, names.iter().copied());
        let near = near.first().map(|name| format!(" Did you mean {name}?")).unwrap_or_default();
        Error::failed(format!("no agent is called `{}`; there are {}.{near}", asked.escape_debug(), names.join(", ")))
    })
}

/// What an agent is told first, beside what every agent is told.
pub(super) fn told(kind: &Kind, alone: bool) -> String {
    let alone = if alone { "\nYou work in the background: nobody can be asked, and nothing is approved." } else { "" };
    format!("{}{alone}", kind.system)
}

/// The order with the facts that go with it.
pub(super) fn words(order: &AgentOrder) -> String {
    let facts: Vec<&str> = order.facts.iter().map(|fact| fact.trim()).filter(|fact| !fact.is_empty()).collect();
    if facts.is_empty() {
        return order.prompt.clone();
    }
    format!("{}\n\nKey facts:\n- {}", order.prompt, facts.join("\n- "))
}

/// Everything that a child gets is its own: no door is shared with its parent.
pub(super) fn apart(child: &Arc<Engine>, parent: &Arc<Engine>) -> Result<()> {
    if Arc::ptr_eq(child, parent) {
        return Err(Error::Internal(anyhow!("the workshop gave an agent its parent's own engine")));
    }
    Ok(())
}
