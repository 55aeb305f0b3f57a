//! `EngineBuilder`: selects the tools, the gate, the limits and the event log of an engine.

use std::sync::Arc;

use helve_contract::{Entry, PatternPurpose, PortSet, name_matches};
use serde_json::{Value, json};

use tokio::sync::watch;

use crate::{
    Dialect, Engine, EventLog, ExternalRow, Gate, LimitSettings, NotOffered, Redactor, Role, Spill,
    strangers::UntrustedSources, table::ToolRegistry, validate::CompiledSchema,
};

/// A tool of an engine with its compiled schema.
pub(crate) struct RegisteredTool {
    pub(crate) entry: Entry,
    pub(crate) schema: CompiledSchema,
}

/// Builds an [`Engine`].
pub struct EngineBuilder {
    dialect: Dialect,
    role: Option<String>,
    filter: ToolFilter,
    added: Vec<AddedTool>,
    gate: Option<Gate>,
    events: EventLog,
    spill: Option<Spill>,
    limits: LimitSettings,
    redactor: Redactor,
    untrusted_sources: UntrustedSources,
    commands: ShellNetwork,
}

/// Whether commands can reach the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShellNetwork {
    /// They cannot, so a secret in a command line stays on this machine.
    #[default]
    Offline,
    /// They can, so a secret in a command line may leave this machine.
    Online,
}

struct AddedTool {
    entry: Entry,
    replaces: bool,
}

/// Why an engine could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The dialect has no such role.
    #[error("the dialect {dialect} has no role `{role}`; {}", describe_roles(.known))]
    UnknownRole {
        /// The dialect.
        dialect: &'static str,
        /// The requested role.
        role: String,
        /// The existing roles.
        known: Vec<&'static str>,
    },
    /// A name that is no name.
    #[error("`{0}` cannot be a tool's name: 1 to 64 letters, digits, `_` and `-` are allowed")]
    InvalidName(String),
    /// A name that is taken.
    #[error("there are two tools called `{0}`; rename one, or ask for it to be replaced")]
    Duplicate(String),
    /// A tool to be replaced that is not there.
    #[error("there is no tool `{0}` to replace")]
    NothingToReplace(String),
    /// A schema that does not compile.
    #[error("the schema of `{tool}` does not compile: {why}")]
    InvalidSchema {
        /// The tool.
        tool: String,
        /// What is wrong with its schema.
        why: String,
    },
}

fn describe_roles(known: &[&str]) -> String {
    if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) }
}

impl EngineBuilder {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            role: None,
            filter: ToolFilter::default(),
            added: Vec::new(),
            gate: None,
            events: EventLog::none(),
            spill: None,
            limits: LimitSettings::default(),
            redactor: Redactor::standard(),
            untrusted_sources: UntrustedSources::default(),
            commands: ShellNetwork::default(),
        }
    }

    /// Offers only the tools of this role of the dialect.
    pub fn role(mut self, name: &str) -> Self {
        self.role = Some(name.to_owned());
        self
    }

    /// Offers only these tools, by name or alias; `*` matches any characters. Repeated calls intersect.
    pub fn only(mut self, names: Vec<String>) -> Self {
        match &mut self.filter.only {
            None => self.filter.only = Some(names),
            Some(before) => {
                before
                    .retain(|old| names.iter().any(|new| new == old || name_matches(new, old, PatternPurpose::Grant)));
            }
        }
        self
    }

    /// Excludes these tools, by name or alias; `*` matches any characters. It overrides all other selections.
    pub fn exclude(mut self, names: Vec<String>) -> Self {
        self.filter.exclude.extend(names);
        self
    }

    /// The ports of the session. A tool that needs another one is not offered, and a call to it returns the reason. The
    /// default is all ports.
    pub fn available(mut self, ports: PortSet) -> Self {
        self.filter.available = ports;
        self
    }

    /// Adds a tool. Every role with `imports` offers it.
    pub fn tool(mut self, entry: Entry) -> Self {
        self.added.push(AddedTool { entry, replaces: false });
        self
    }

    /// Replaces the tool of the same name.
    pub fn replace(mut self, entry: Entry) -> Self {
        self.added.push(AddedTool { entry, replaces: true });
        self
    }

    /// Sets the gate. The default is a gate in the dialect's mode.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Sets the event log.
    pub fn events(mut self, events: EventLog) -> Self {
        self.events = events;
        self
    }

    /// Sets the directory for spill files.
    pub fn spill(mut self, spill: Spill) -> Self {
        self.spill = Some(spill);
        self
    }

    /// Overrides the dialect's output limits. No limit exceeds 4 MiB.
    pub fn limits(mut self, limits: LimitSettings) -> Self {
        self.limits = limits;
        self
    }

    /// Sets what counts as a secret.
    pub fn redactor(mut self, scrub: Redactor) -> Self {
        self.redactor = scrub;
        self
    }

    /// Tools whose output is trusted, by name or alias; `*` matches any characters.
    pub fn trust_tools(mut self, names: Vec<String>) -> Self {
        self.untrusted_sources.trusted = names;
        self
    }

    /// Files beneath the roots with untrusted content, as patterns such as `downloads/**`.
    pub fn untrusted_files(mut self, globs: &[String]) -> Self {
        self.untrusted_sources = self.untrusted_sources.with_files(globs);
        self
    }

    /// Sets whether commands can reach the network.
    pub fn shell_network(mut self, commands: ShellNetwork) -> Self {
        self.commands = commands;
        self
    }

    /// Builds the engine.
    pub fn build(mut self) -> Result<Engine, BuildError> {
        self.filter.role = self.selected_role()?;
        let mut own: Vec<Arc<RegisteredTool>> = std::mem::take(&mut self.dialect.tools)
            .into_iter()
            .map(|entry| Arc::new(RegisteredTool { entry, schema: CompiledSchema::lazy() }))
            .collect();
        let mut added = Vec::new();
        for AddedTool { entry, replaces } in std::mem::take(&mut self.added) {
            let slot = Arc::new(compile_external(entry)?);
            if replaces {
                replace_tool(&mut own, &mut added, slot)?;
            } else {
                added.push(slot);
            }
        }
        self.dialect.tools = own.iter().chain(&added).map(|slot| slot.entry.clone()).collect();
        let table = ToolRegistry::new(&own, added, self.dialect.external, &self.filter)?;
        Ok(Engine {
            gate: self.gate.unwrap_or_else(|| Gate::new(self.dialect.mode)),
            dialect: self.dialect,
            builtin_tools: own,
            filter: self.filter,
            registry: watch::Sender::new(Arc::new(table)),
            events: self.events,
            spill: self.spill,
            limits: self.limits,
            redactor: self.redactor,
            untrusted_sources: self.untrusted_sources,
            shell_network: self.commands,
        })
    }

    fn selected_role(&self) -> Result<Option<Role>, BuildError> {
        let Some(name) = self.role.as_deref().or(self.dialect.default_role) else { return Ok(None) };
        let role = self.dialect.roles.iter().find(|role| role.name == name);
        role.copied().map(Some).ok_or_else(|| BuildError::UnknownRole {
            dialect: self.dialect.name,
            role: name.to_owned(),
            known: self.dialect.roles.iter().map(|role| role.name).collect(),
        })
    }
}

/// Decides which tools a session offers.
pub(crate) struct ToolFilter {
    role: Option<Role>,
    only: Option<Vec<String>>,
    exclude: Vec<String>,
    available: PortSet,
}

impl Default for ToolFilter {
    fn default() -> Self {
        Self { role: None, only: None, exclude: Vec::new(), available: PortSet::ALL }
    }
}

impl ToolFilter {
    /// Whether the session offers this tool, or why not.
    pub(crate) fn judge(&self, entry: &Entry, imported: bool) -> Result<(), NotOffered> {
        let spec = &entry.spec;
        self.judge_names(&|pattern, purpose| spec.is_covered_by(pattern, purpose), imported)?;
        self.judge_ports(spec.needs)
    }

    /// Whether the session would offer a row that another crate supplies.
    pub(crate) fn judge_external(&self, row: &ExternalRow) -> Result<(), NotOffered> {
        self.judge_names(&|pattern, purpose| name_matches(pattern, row.name, purpose), true)?;
        self.judge_ports(row.needs)
    }

    fn judge_names(&self, covers: &dyn Fn(&str, PatternPurpose) -> bool, imported: bool) -> Result<(), NotOffered> {
        if self.exclude.iter().any(|pattern| covers(pattern, PatternPurpose::Restrict)) {
            return Err(NotOffered::Disabled);
        }
        let granted = |pattern: &str| covers(pattern, PatternPurpose::Grant);
        if self.only.as_deref().is_some_and(|only| !only.iter().any(|it| granted(it))) {
            return Err(NotOffered::NotSelected);
        }
        let in_role = |role: &Role| if imported { role.imports } else { role.tools.iter().any(|it| granted(it)) };
        match &self.role {
            Some(role) if !in_role(role) => Err(NotOffered::Role(role.name)),
            _ => Ok(()),
        }
    }

    fn judge_ports(&self, needs: PortSet) -> Result<(), NotOffered> {
        let missing = needs - self.available;
        if missing.is_empty() { Ok(()) } else { Err(NotOffered::Missing(missing)) }
    }
}

/// Registers an external tool and compiles its schema.
pub(crate) fn compile_external(entry: Entry) -> Result<RegisteredTool, BuildError> {
    let entry = entry.map_spec(|spec| ensure_object_schema(&mut spec.input_schema));
    let schema = CompiledSchema::compile(&entry.spec.input_schema)
        .map_err(|why| BuildError::InvalidSchema { tool: entry.spec.name.clone(), why })?;
    Ok(RegisteredTool { entry, schema })
}

/// Replaces the tool of the same name.
fn replace_tool(
    own: &mut [Arc<RegisteredTool>],
    added: &mut [Arc<RegisteredTool>],
    slot: Arc<RegisteredTool>,
) -> Result<(), BuildError> {
    let old = own.iter_mut().chain(added).find(|old| old.entry.spec.name == slot.entry.spec.name);
    let Some(old) = old else { return Err(BuildError::NothingToReplace(slot.entry.spec.name.clone())) };
    *old = slot;
    Ok(())
}

/// Providers require an object at the root of a schema; external tools do not always declare it.
fn ensure_object_schema(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.entry("type").or_insert_with(|| "object".into());
            map.entry("properties").or_insert_with(|| json!({}));
        }
        _ => *schema = json!({ "type": "object", "properties": {} }),
    }
}

/// Whether a granting pattern covers a tool.
pub(crate) fn grants(pattern: &str, entry: &Entry) -> bool {
    entry.spec.is_covered_by(pattern, PatternPurpose::Grant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_becomes_an_object() {
        let mut seen = [json!({ "properties": { "a": {} } }), json!(true), json!({ "type": "object" })];
        seen.iter_mut().for_each(ensure_object_schema);
        assert_eq!(
            seen,
            [
                json!({ "properties": { "a": {} }, "type": "object" }),
                json!({ "type": "object", "properties": {} }),
                json!({ "type": "object", "properties": {} }),
            ]
        );
    }
}
