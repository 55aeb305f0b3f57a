//! The MCP service: an engine's tools in a session, for any number of clients.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use helve_contract::Session;
use helve_engine::{Engine, ToolChanges};
use serde_json::{Value, json};

use crate::{call, elicit::ElicitApprover, fixtures};

/// Spill files that are remembered; the oldest are forgotten.
const MAX_SPILLS: usize = 256;

/// The operator's settings of a server.
#[derive(Clone, Default)]
pub struct McpServerConfig {
    /// Advice for the model on using the tools.
    pub instructions: Option<String>,
    /// Does not offer files as resources. Rules that name tools do not apply to resources (path rules do), so a
    /// session that denies reading disables them.
    pub without_resources: bool,
    /// The approver that the engine's gate asks, when clients shall put its questions to their users.
    pub elicit: Option<Arc<ElicitApprover>>,
}

/// An engine's tools in a session, for any number of clients.
pub struct McpService {
    pub(crate) engine: Arc<Engine>,
    pub(crate) session: Arc<Session>,
    pub(crate) options: McpServerConfig,
    listed: Mutex<ToolListCache>,
    spills: Mutex<VecDeque<String>>,
    fixtures: bool,
}

/// The tools as they were last told.
struct ToolListCache {
    changes: ToolChanges,
    tools: Option<Arc<str>>,
}

impl McpService {
    /// A server of these tools.
    pub fn new(engine: Arc<Engine>, session: Arc<Session>, options: McpServerConfig) -> Self {
        let listed = Mutex::new(ToolListCache { changes: engine.tool_changes(), tools: None });
        Self { engine, session, options, listed, spills: Mutex::default(), fixtures: false }
    }

    /// The same, with what the protocol's conformance suite asks for. Only for tests.
    #[doc(hidden)]
    pub fn with_fixtures(self) -> Self {
        Self { fixtures: true, ..self }
    }

    /// Whether the fixtures of the conformance suite are there.
    pub(crate) fn has_fixtures(&self) -> bool {
        self.fixtures
    }

    /// The JSON of the tools, written at the first question and when they have changed.
    pub(crate) fn tools(&self) -> Arc<str> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = listed.changes.has_changed();
        match &listed.tools {
            Some(tools) if !changed => tools.clone(),
            _ => listed.tools.insert(self.list().into()).clone(),
        }
    }

    fn list(&self) -> String {
        let specs: Vec<_> = self.engine.specs().collect();
        let own = call::list(specs.iter().map(AsRef::as_ref));
        if !self.fixtures {
            return own;
        }
        let own: Vec<Value> = serde_json::from_str(&own).unwrap_or_default();
        fixtures::tools().into_iter().chain(own).collect::<Value>().to_string()
    }

    /// A unique call id: clients number their own requests, and two may use the same number.
    pub(crate) fn next_call_id() -> String {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        format!("mcp-{}", CALLS.fetch_add(1, Ordering::Relaxed))
    }

    /// The session that calls run in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The schema of a tool's arguments.
    pub(crate) fn schema(&self, tool: &str) -> Option<Value> {
        let fixture = self.fixtures.then(|| fixtures::schema(tool)).flatten();
        fixture.or_else(|| Some(self.engine.get(tool)?.spec.input_schema.clone()))
    }

    /// What we can do.
    pub(crate) fn capabilities(&self) -> Value {
        if self.fixtures {
            return fixtures::capabilities();
        }
        let mut can = json!({ "tools": { "listChanged": true }, "logging": {} });
        if !self.options.without_resources {
            can["resources"] = json!({});
        }
        can
    }

    /// Remembers a file that holds the whole of a reply that was cut.
    pub(crate) fn remember_spill(&self, file: &str) {
        let mut spills = self.spills.lock().unwrap_or_else(PoisonError::into_inner);
        if spills.len() >= MAX_SPILLS {
            spills.pop_front();
        }
        spills.push_back(file.to_owned());
    }

    /// The files that were remembered, the newest last.
    pub(crate) fn spills(&self) -> Vec<String> {
        self.spills.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
