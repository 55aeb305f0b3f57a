//! Loads WebAssembly modules as tools, and records their calls.

use std::sync::{Arc, OnceLock, Weak};

use helve_contract::{Entry, Error, Event, Result};
use helve_engine::Engine;
use helve_plugins::wasm::{self, AuditLog};

use crate::{
    config::{Settings, WasmModule},
    remark,
};

/// The event log for calls of modules. The engine is built after the modules.
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
            // A failing log never fails a call; the call's own events report it.
            _ = engine.events().emit(event);
        }
    }

    fn audit_callback(&self) -> AuditLog {
        let record = self.clone();
        Arc::new(move |call| record.emit(call.clone()))
    }
}

/// Loads the configured modules. A module that cannot be loaded is reported and left out.
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

/// A module without a definition in the settings has one in the JSON file beside it.
fn read(WasmModule { path, definition }: &WasmModule) -> Result<wasm::WasmConfig> {
    if definition.is_empty() {
        return wasm::WasmConfig::from_module(path);
    }
    let definition = serde_json::from_value(definition.clone().into())
        .map_err(|error| Error::failed(format!("the settings of the module {path}: {error}")))?;
    Ok(wasm::WasmConfig::new(path, definition))
}
