//! Commands: the walls they run behind, and the programs they may name.

use std::{path::Path, sync::Arc};

use helve_contract::ports::{Host, NoTasks, Tasks};
use helve_engine::NameList;
use helve_hosts::Local;

use crate::{config::Settings, fault::Fault};

/// Something that was found out about the walls.
pub enum Found {
    /// It works.
    Good(&'static str, String),
    /// It does not, and what to do.
    Weak(&'static str, String, String),
}

/// The host and its tasks, by the settings.
pub fn open(settings: &Settings, _state: &Path) -> Result<(Arc<dyn Host>, Arc<dyn Tasks>), Fault> {
    if !settings.flag("tools.shell.enabled") {
        return Ok((Arc::new(Local::new()), Arc::new(NoTasks)));
    }
    Ok((Arc::new(Local::new()), Arc::new(NoTasks)))
}

/// The programs that commands may name, where the settings say anything about it.
pub fn names(settings: &Settings) -> Result<Option<NameList>, Fault> {
    let (allow, deny) = (settings.list("tools.shell.allow"), settings.list("tools.shell.deny"));
    NameList::new(allow, deny).map(Some).map_err(Fault::usage)
}

/// Tries the walls.
pub fn examine(_settings: &Settings) -> Vec<Found> {
    Vec::new()
}
