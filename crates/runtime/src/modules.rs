//! WebAssembly modules of the user's choice as tools, and the record of their calls.

use std::sync::{Arc, OnceLock, Weak};

use helve_contract::{Entry, Error, Event, Result};
use helve_engine::Engine;
use helve_plugins::wasm::{self, AuditLog};

use crate::{
    config::{Settings, WasmModule},
    remark,
};

/// Where the calls of modules are recorded: the log of an engine that is built after them.
#[derive(Clone, Default)]
pub struct WasmCallLog(Arc<OnceLock<Weak<Engine>>>);

impl WasmCallLog {
    /// From now on calls are recorded here.
    pub fn attach(&self, engine: &Arc<Engine>) {
        _ = self.0.set(Arc::downgrade(engine));
    }

    /// Records one event, where an engine listens.
    pub(crate) fn emit(&self, event: impl Into<Event>) {
        if let Some(engine) = self.0.get().and_then(Weak::upgrade) {
            // A log that fails never fails a call; the call's own events say that it did.
            _ = engine.events().emit(event);
        }
    }

    fn audit_callback(&self) -> AuditLog {
        let record = self.clone();
        Arc::new(move |call| record.emit(call.clone()))
    }
}

/// Loads the modules that the settings name. One that cannot be loaded is told and left out.
pub fn load(settings: &Settings, record: &WasmCallLog) -> Vec<Entry> {
    let mut tools = Vec::new();
    for module in &settings.config.wasm {
        match read(module).and_then(|it| wasm::load(it, record.audit_callback())) {
            Ok(tool) => tools.push(tool),
            Err(error) => remark!("helve: a WebAssembly tool is left out: {error}"),
        }
    }
    tools
}

/// A module without a definition in the settings has it in the JSON file beside it.
fn read(WasmModule { path, definition }: &WasmModule) -> Result<wasm::WasmConfig> {
    if definition.is_empty() {
        return wasm::WasmConfig::from_module(path);
    }
    let definition = serde_json::from_value(definition.clone().into())
        .map_err(|error| Error::failed(format!("the settings of the module {path}: {error}")))?;
    Ok(wasm::WasmConfig::new(path, definition))
}
