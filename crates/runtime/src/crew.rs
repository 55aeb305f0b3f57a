//! Other agents of a conversation: their supervisor, by the settings.

use std::{
    path::Path,
    sync::{Arc, Weak},
};

use helve_agent::{Kinds, Limits, Need, Supervisor, Workshop, model::Model};
use helve_contract::{Error, Result, Session};
use helve_engine::Engine;

use crate::{remark, workshop::Bench};

/// A workshop that does not keep itself open.
struct Door(Weak<Bench>);

impl Door {
    fn bench(&self) -> Result<Arc<Bench>> {
        self.0.upgrade().ok_or_else(|| Error::failed("the program is about to end"))
    }
}

impl Workshop for Door {
    fn equip(&self, need: &Need) -> Result<(Arc<Engine>, Arc<Session>)> {
        self.bench()?.equip(need)
    }
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
        self.bench()?.model(name)
    }
}

/// A supervisor for conversations in this dialect.
pub fn hire(bench: &Arc<Bench>, dialect: &str) -> Arc<Supervisor> {
    let settings = bench.settings();
    let mut kinds = Kinds::of_dialect(dialect);
    let mut remarks = Vec::new();
    for folder in settings.list("agents.folders") {
        kinds.folder(Path::new(&folder), &mut remarks);
    }
    for text in remarks {
        remark!("helve: {text}");
    }
    let limits = Limits { at_once: settings.number("agents.max") as usize, ..Limits::default() };
    let supervisor = Supervisor::new(Arc::new(Door(Arc::downgrade(bench))), bench.store().clone(), kinds, limits);
    bench.employ(supervisor.clone());
    supervisor
}
