//! Tools from outside: programs that speak JSON lines on their standard input and output, in any language, and
//! WebAssembly modules ([`wasm`]).
//!
//! A plugin is started once, in the session's sandbox, and kept alive. It tells its tools, and each becomes an
//! [`Entry`] like any built-in: checked, gated, bounded and recorded by the engine.

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
    /// Where it starts.
    pub dir: SafePath,
    /// What it may reach.
    pub roots: Vec<SafePath>,
    /// What is in its environment beside the usual.
    pub env: EnvVars,
    /// How long it may take to tell its tools.
    pub start_timeout: Duration,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// What its tools can do to the world, as far as anybody knows.
    pub effects: Effects,
}

impl PluginConfig {
    /// A program with the usual limits, and the effects of a tool that nobody vouches for.
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

/// How many tools one plugin may bring; a model that is shown more finds none of them.
const MAX_TOOLS: usize = 128;

/// Takes what a plugin writes to its standard error, and which of its tools are left out.
pub type StderrLog = Arc<dyn Fn(&str) + Send + Sync>;

/// Starts a plugin and returns its tools. The program lives as long as one of them does.
///
/// A tool with a name or a schema that cannot be used is left out, and `log` is told why.
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
            // The plugin keeps the clock itself, so that a call that runs out of time also restarts the program.
            timeout: timeout.saturating_add(Duration::from_secs(5)),
            needs: PortSet::NONE,
            profile: None,
            access: None,
            // A plugin does not say what its tools destroy, so clients are told the graver.
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

/// A description is a stranger's text: bounded, and without characters that are not seen.
fn clean_description(text: &str) -> String {
    text.chars()
        .filter(|it| *it == '\n' || !(it.is_control() || helve_contract::invisible(*it).is_some()))
        .take(2048)
        .collect()
}
