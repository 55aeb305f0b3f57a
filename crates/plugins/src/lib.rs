//! External tools: programs in any language that exchange JSON lines on standard input and output, and WebAssembly
//! modules ([`wasm`]).
//!
//! A plugin is started once in the session's sandbox and kept alive. It describes its tools, and each becomes an
//! [`Entry`] like a built-in tool: checked, gated, bounded and recorded by the engine.

mod lines;
mod plugin;
mod protocol;
mod schema;
#[cfg(any(test, fuzzing))]
pub mod trials;
pub mod wasm;

use std::{sync::Arc, time::Duration};

use helve_contract::{
    Annotations, Effects, Entry, PortSet, Result, SafePath, Spec,
    ports::{EnvVars, Host},
};

use crate::plugin::Plugin;

/// How to start a plugin.
#[derive(Clone, Debug)]
pub struct PluginConfig {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its working directory.
    pub dir: SafePath,
    /// The roots that it may access.
    pub roots: Vec<SafePath>,
    /// Additional environment variables.
    pub env: EnvVars,
    /// The timeout until its tools are known.
    pub start_timeout: Duration,
    /// The timeout of one call.
    pub call_timeout: Duration,
    /// The effects of its tools.
    pub effects: Effects,
}

impl PluginConfig {
    /// A program with default limits and the effects of an untrusted tool.
    pub fn new(argv: Vec<String>, dir: SafePath, roots: Vec<SafePath>) -> Self {
        Self {
            argv,
            dir,
            roots,
            env: EnvVars::new(),
            start_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(120),
            effects: Effects::READS.union(Effects::WRITES).union(Effects::NETWORK),
        }
    }
}

/// The maximum number of tools per plugin: a model finds none among too many.
const MAX_TOOLS: usize = 128;

/// Receives a plugin's standard error, and which of its tools are left out.
pub type StderrLog = Arc<dyn Fn(&str) + Send + Sync>;

/// Starts a plugin and returns its tools. The program lives as long as one of them.
///
/// A tool with an invalid name or schema is left out, and `log` gets the reason.
pub async fn start(settings: PluginConfig, host: Arc<dyn Host>, log: StderrLog) -> Result<Vec<Entry>> {
    let (timeout, effects) = (settings.call_timeout, settings.effects);
    let (plugin, mut tools) = Plugin::start(settings, host, log.clone()).await?;
    if tools.len() > MAX_TOOLS {
        log(&format!(
            "{} of {} tools are left out: a plugin has at most {MAX_TOOLS}",
            tools.len() - MAX_TOOLS,
            tools.len()
        ));
        tools.truncate(MAX_TOOLS);
    }
    let plugin = Arc::new(plugin);
    let mut entries: Vec<Entry> = Vec::new();
    for tool in tools {
        let name = tool.name;
        let taken = entries.iter().any(|it| it.spec.name == name);
        let schema = match schema::name_error(&name).or(taken.then_some("the plugin has another tool of that name")) {
            Some(why) => Err(why.to_owned()),
            None => schema::checked(tool.parameters),
        };
        let schema = match schema {
            Ok(schema) => schema,
            Err(why) => {
                log(&format!("the tool {:?} is left out: {why}", name.chars().take(100).collect::<String>()));
                continue;
            }
        };
        let spec = Spec {
            name: name.clone(),
            aliases: Vec::new(),
            rule_names: Vec::new(),
            description: clean_description(&tool.description),
            input_schema: schema,
            output_schema: None,
            effects,
            tier: None,
            // The plugin has its own timeout, because a timed-out call also restarts the program.
            timeout: timeout.saturating_add(Duration::from_secs(5)),
            needs: PortSet::NONE,
            profile: None,
            access: None,
            // A plugin does not declare destructive tools, so clients get the more dangerous hint.
            annotations: Some(Annotations { destructive_hint: !effects.is_read_only(), ..effects.annotations() }),
        };
        let stranger = format!("the plugin tool {name}");
        let plugin = plugin.clone();
        let entry = Entry::dynamic(spec, move |args, call| {
            let (plugin, name) = (plugin.clone(), name.clone());
            Box::pin(async move { plugin.call(&name, args, &call).await })
        });
        entries.push(entry.with_untrusted_origin(&stranger));
    }
    Ok(entries)
}

/// A description is untrusted text: bounded, and without invisible characters.
fn clean_description(text: &str) -> String {
    text.chars()
        .filter(|it| *it == '\n' || !(it.is_control() || helve_contract::invisible(*it).is_some()))
        .take(2048)
        .collect()
}
