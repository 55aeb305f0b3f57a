//! The approval and path rules of the settings: parses them, checks their tool names, and passes them to the gate and
//! hosts.

use helve_contract::{Access, Entry, PathGlob, PathRule, PatternPurpose, RuleScope, closest_names, name_matches};
use helve_engine::{CLASS_NAMES, Dialect, Rule, RuleClass};

use crate::{config::Settings, fault::CliError};

/// The rules of `[approval]`.
pub struct ApprovalRules {
    /// Calls that need no approval.
    pub allow: Vec<Rule>,
    /// Calls that always need approval.
    pub ask: Vec<Rule>,
    /// Calls that are denied.
    pub deny: Vec<Rule>,
}

impl ApprovalRules {
    /// Parses the rules. A malformed rule, or one with an impossible tool name, is an error.
    pub fn read(settings: &Settings) -> Result<Self, CliError> {
        let approval = &settings.config.approval;
        let read = |key: &str, list: &[String]| -> Result<Vec<Rule>, CliError> {
            list.iter().map(|text| parse(settings, key, text)).collect()
        };
        Ok(Self {
            allow: read("approval.allow", &approval.allow)?,
            ask: read("approval.ask", &approval.ask)?,
            deny: read("approval.deny", &approval.deny)?,
        })
    }

    /// Rules about tools that the dialect lacks. They apply as soon as such a tool exists.
    pub fn absent(&self, dialect: &Dialect) -> Vec<&str> {
        let is_there = |rule: &&Rule| {
            let purpose = PatternPurpose::Restrict;
            dialect.tools.iter().any(|entry| entry.spec.is_covered_by(rule.tool(), purpose))
                || dialect.external.iter().any(|row| name_matches(rule.tool(), row.name, purpose))
        };
        let restricting = self.ask.iter().chain(&self.deny).filter(|rule| !rule.has_class());
        restricting.chain(&self.allow).filter(|rule| !is_there(rule)).map(Rule::source).collect()
    }

    /// The rules about paths that hosts enforce: for file tools, and by mounts for commands.
    pub fn path_rules(&self) -> impl Iterator<Item = PathRule> {
        let denied = self.deny.iter().filter_map(Rule::path_rule);
        denied.chain(self.ask.iter().filter_map(Rule::search_rule))
    }
}

/// `paths.deny_read` and `paths.deny_write` as path rules.
pub fn denied_paths(settings: &Settings) -> impl Iterator<Item = PathRule> {
    let paths = &settings.config.paths;
    let scope = RuleScope { binds_commands: true, ..RuleScope::default() };
    let rule = move |denies, why: &'static str| {
        move |text: &String| PathRule::new(PathGlob::new(text), denies, why).scoped(scope)
    };
    let reads = rule(Access::Read, "may not be read here; go on without it, or ask the user");
    let writes = rule(Access::Write, "may not be changed here; ask the user to change it");
    paths.deny_read.iter().map(reads).chain(paths.deny_write.iter().map(writes))
}

/// Refuses rules with a tool name that does not exist here. Tools of plugins and modules are known only once these run,
/// so this is called again then; [`ApprovalRules::read`] accepts other names if there are any.
pub fn check_external_names(settings: &Settings, external: &[Entry]) -> Result<(), CliError> {
    let approval = &settings.config.approval;
    let lists =
        [("approval.allow", &approval.allow), ("approval.ask", &approval.ask), ("approval.deny", &approval.deny)];
    for (key, text) in lists.iter().flat_map(|(key, list)| list.iter().map(move |text| (key, text))) {
        let Ok(rule) = Rule::parse(text) else { continue };
        let is_external = external.iter().any(|it| it.spec.is_covered_by(rule.tool(), PatternPurpose::Restrict));
        if let Some(why) = unknown_name(settings, rule.tool(), false).filter(|_| !is_external) {
            return Err(CliError::usage(format!("{key}: `{text}`: {why} Fix or remove the rule.")));
        }
    }
    Ok(())
}

fn parse(settings: &Settings, key: &str, text: &str) -> Result<Rule, CliError> {
    let rule = Rule::parse(text).map_err(|why| CliError::usage(format!("{key}: `{text}`: {why}")))?;
    match unknown_name(settings, rule.tool(), true) {
        None => Ok(rule),
        Some(why) => Err(CliError::usage(format!("{key}: `{text}`: {why} Fix or remove the rule."))),
    }
}

/// Why no tool can have this name here. With `may_come`, tools of plugins that have not started count.
fn unknown_name(settings: &Settings, name: &str, may_come: bool) -> Option<String> {
    let covers = |known: &str| name_matches(name, known, PatternPurpose::Restrict);
    // Most rules name a class, which avoids building the tables of all dialects.
    if RuleClass::of_name(name) != RuleClass::NONE || CLASS_NAMES.iter().any(|known| covers(known)) {
        return None;
    }
    let config = &settings.config;
    if let Some(rest) = name.strip_prefix("mcp__") {
        let server = rest.split_once("__").map_or(rest, |(server, _)| server);
        let known =
            |server: &str| config.mcp.servers.keys().any(|it| name_matches(server, it, PatternPurpose::Restrict));
        let is_pattern = server.contains('*');
        return (!is_pattern && !known(server)).then(|| {
            let near = closest_names(server, config.mcp.servers.keys().map(String::as_str));
            format!("no MCP server `{server}` is configured{}", suggestion(&near))
        });
    }
    // The names of their tools are known only when they run.
    if may_come && (config.all_plugins().next().is_some() || !config.wasm.is_empty()) {
        return None;
    }
    let dialects = helve_dialects::all();
    let names: Vec<&str> = dialects
        .iter()
        .flat_map(|dialect| {
            let rows = dialect
                .tools
                .iter()
                .flat_map(|entry| std::iter::once(&entry.spec.name).chain(&entry.spec.aliases).map(String::as_str));
            rows.chain(dialect.external.iter().map(|row| row.name))
        })
        .chain(CLASS_NAMES.iter().copied())
        .collect();
    if names.iter().any(|known| covers(known)) {
        return None;
    }
    let near = closest_names(name, names);
    Some(format!("no tool of any dialect, MCP server or plugin has the name `{name}`{}", suggestion(&near)))
}

fn suggestion(near: &[&str]) -> String {
    near.first().map_or_else(|| ".".to_owned(), |name| format!(". Did you mean `{name}`?"))
}
