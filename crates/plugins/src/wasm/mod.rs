//! WebAssembly tools, as modules (`wasm32-wasip1`) or components (`wasm32-wasip2`). They see only the directories of
//! their profile.
//!
//! A module is compiled once. Every call gets a fresh memory and one JSON object on standard input, and answers with
//! one on standard output. Files are accessed through the session's host, so its rules apply inside the module too.

mod bridge;
mod canonical;
mod component;
mod definition;
mod files;
mod guest;
mod handles;
mod profile;
mod tool;
mod wasi;
mod wasi2;

use std::{path::PathBuf, sync::Arc, time::Duration};

use helve_contract::{Entry, Result, events::WasmCall};

pub use self::definition::ModuleManifest;
pub use helve_contract::CapabilityProfile;

/// A module, what the model is told about it, and its limits.
#[derive(Clone, Debug)]
pub struct WasmConfig {
    /// The module's file.
    pub module: PathBuf,
    /// What it is called and what it may reach.
    pub definition: ModuleManifest,
    /// How many steps one call may take.
    pub fuel: u64,
    /// How many bytes of memory it may use, and as many again for the files it has open.
    pub memory: usize,
    /// How long one call may take.
    pub deadline: Duration,
}

impl WasmConfig {
    /// A module with the usual limits: 64 MiB and ten seconds.
    pub fn new(module: impl Into<PathBuf>, definition: ModuleManifest) -> Self {
        Self {
            module: module.into(),
            definition,
            fuel: 10_000_000_000,
            memory: 64 * 1024 * 1024,
            deadline: Duration::from_secs(10),
        }
    }

    /// A module whose definition is in the JSON file of the same name beside it: `count.json` for `count.wasm`.
    pub fn from_module(module: impl Into<PathBuf>) -> Result<Self> {
        let module = module.into();
        let definition = ModuleManifest::read_beside(&module)?;
        Ok(Self::new(module, definition))
    }
}

/// Takes the record of each call: `{request_id, operation, tool_name, profile, mounts}`.
pub type AuditLog = Arc<dyn Fn(&WasmCall) + Send + Sync>;

/// Compiles a module and returns it as a tool.
pub fn load(settings: WasmConfig, audit: AuditLog) -> Result<Entry> {
    let definition = settings.definition.validated(&settings.module)?;
    let module = tool::compile(&settings.module)?;
    Ok(tool::entry(settings, definition, module, audit))
}
