//! Starts the configured MCP servers and adds their tools to sessions.

use std::{
    collections::{BTreeMap, HashSet},
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use helve_contract::Entry;
use helve_engine::{Dialect, Engine};
use helve_hosts::kill_on_exit;
use helve_mcp::client::{self, McpDirs, McpServers, ServerStatus, Transport};
use tokio::runtime::{Handle, Runtime};

use crate::{
    config::{McpServer, McpTransport, Settings},
    print, remark, state,
};

/// How long `helve call` waits for the server of its tool.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which servers a session needs.
pub enum Wanted<'a> {
    /// All configured servers. A slow server is left out.
    All,
    /// All configured servers. A slow server joins the session later.
    Persistent,
    /// Those that may have this tool.
    WithTool(&'a str),
}

/// Starts the required servers and waits briefly for their tools. `None` if none are configured or required.
pub fn start(
    settings: &Settings,
    dialect: &Dialect,
    wanted: &Wanted<'_>,
    (state, blobs): (&Path, &Path),
    runtime: &Runtime,
) -> Option<McpServers> {
    if !settings.config.mcp.servers.is_empty() && env::var_os("STARTED_BY_HELVE").is_some() {
        remark!("helve: no MCP servers are started by one that is itself started as such");
        return None;
    }
    let mut list = Vec::new();
    for (name, server) in &settings.config.mcp.servers {
        if !is_wanted(name, dialect, wanted) || !server.is_enabled() {
            continue;
        }
        match read(settings, name, server, state) {
            Ok(server) => list.push(server),
            Err(why) => remark!("helve: the MCP server {name} is left out: {why}"),
        }
    }
    if list.is_empty() {
        return None;
    }
    let folders = McpDirs { state: state.to_owned(), blobs: blobs.to_owned() };
    let most = match wanted {
        Wanted::All | Wanted::Persistent => settings.config.mcp.wait_secs.duration(),
        Wanted::WithTool(_) => PATIENCE,
    };
    let servers = runtime.block_on(async {
        let servers = McpServers::start(list, folders);
        servers.wait_started(most).await;
        servers
    });
    warn_missing(&servers, wanted);
    Some(servers)
}

/// Reports missing servers on standard error, and whether they may still join.
fn warn_missing(servers: &McpServers, wanted: &Wanted<'_>) {
    for report in servers.reports() {
        let how = match (report.status, wanted) {
            (ServerStatus::Connected, _) => continue,
            (ServerStatus::Starting, Wanted::Persistent) => {
                "is still starting; its tools join when it answers".to_owned()
            }
            (ServerStatus::Starting, _) => "is left out: it takes too long to start".to_owned(),
            (ServerStatus::Failed(why), Wanted::Persistent) => {
                format!("does not work, and is tried again from time to time: {}", print::escape_for_terminal(&why))
            }
            (ServerStatus::Failed(why) | ServerStatus::Refused(why), _) => {
                format!("is left out: {}", print::escape_for_terminal(&why))
            }
        };
        remark!("helve: the MCP server {} {how}", report.name);
    }
    for left in servers.skipped() {
        remark!(
            "helve: {} of the MCP server {} is left out: {}",
            left.tool,
            left.server,
            print::escape_for_terminal(&left.why)
        );
    }
    if !servers.quarantined().is_empty() {
        remark!("helve: `helve config approve` shows changed tools, `helve config approve NAME` accepts one");
    }
}

fn is_wanted(server: &str, dialect: &Dialect, wanted: &Wanted<'_>) -> bool {
    let Wanted::WithTool(tool) = wanted else { return true };
    !dialect.tools.iter().any(|entry| entry.spec.has_name(tool))
        && (tool.contains("McpResource") || client::is_tool_of(server, tool))
}

/// Updates an engine's external tools when servers start late or change their tools. A server that disconnects briefly
/// keeps its tools; a changed tool is left out until it is approved.
pub fn watch_tool_changes(
    engine: &Arc<Engine>,
    dialect: Dialect,
    fixed: Vec<Entry>,
    servers: McpServers,
    runtime: &Handle,
) {
    let engine = Arc::downgrade(engine);
    let mut news = servers.subscribe();
    let mut told: HashSet<String> = servers.skipped().into_iter().map(|it| it.why).collect();
    runtime.spawn(async move {
        while news.changed().await.is_ok() {
            let Some(engine) = engine.upgrade() else { break };
            let mut entries = fixed.clone();
            entries.extend(servers.entries_with_offline());
            let (free, _) = split_by_name_clash(&dialect, entries);
            if let Err(error) = engine.replace_external_tools(free) {
                remark!(
                    "helve: the tools of MCP servers stay as they were: {}",
                    print::escape_for_terminal(&error.to_string())
                );
            }
            for left in servers.skipped() {
                if told.insert(left.why.clone()) {
                    let why = print::escape_for_terminal(&left.why);
                    remark!("helve: {} of the MCP server {} is left out: {why}", left.tool, left.server);
                }
            }
        }
    });
}

/// The tools of servers and plugins, without those whose name is taken.
pub fn drop_name_clashes(dialect: &Dialect, entries: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    let (free, taken) = split_by_name_clash(dialect, entries);
    for name in taken {
        remark!("helve: the tool {name} from outside is left out: there is one of that name");
    }
    free
}

/// The tools whose name is free, and the names of the others.
fn split_by_name_clash(dialect: &Dialect, entries: impl IntoIterator<Item = Entry>) -> (Vec<Entry>, Vec<String>) {
    let names = |entry: &Entry| -> Vec<String> {
        std::iter::once(&entry.spec.name).chain(&entry.spec.aliases).cloned().collect()
    };
    let mut taken: HashSet<String> = dialect.tools.iter().flat_map(names).collect();
    let (mut free, mut others) = (Vec::new(), Vec::new());
    for entry in entries {
        let own = names(&entry);
        if own.iter().any(|name| taken.contains(name)) {
            others.push(entry.spec.name.clone());
            continue;
        }
        taken.extend(own);
        free.push(entry);
    }
    (free, others)
}

/// A server as it is configured.
fn read(settings: &Settings, name: &str, server: &McpServer, state: &Path) -> Result<client::McpClientConfig, String> {
    let transport = match (&server.command, &server.url) {
        (Some(command), None) => {
            let cwd = match &server.cwd {
                Some(cwd) => cwd.clone(),
                None => default_cwd(&state::tenant_dir(settings, state), name)?,
            };
            let (command, args) = kill_on_exit(command, &server.args, &cwd);
            Transport::Stdio { command, args, env: expand_env_map(&server.env)?, cwd: Some(cwd) }
        }
        (None, Some(url)) => {
            let (url, headers) = (url.clone(), expand_env_map(&server.headers)?);
            match server.transport {
                Some(McpTransport::Sse) => Transport::Sse { url, headers },
                Some(McpTransport::Http | McpTransport::Stdio) | None => Transport::Http { url, headers },
            }
        }
        _ => return Err("it needs either `command` or `url`".into()),
    };
    let mut it = client::McpClientConfig::new(name, transport);
    it.allow.clone_from(&server.allow);
    it.deny.clone_from(&server.deny);
    if server.roots {
        it.roots = vec![settings.workspace.clone()];
    }
    if let Some(limit) = server.timeout_secs {
        it.call_timeout = limit.duration();
    }
    Ok(it)
}

/// The default start directory of a server. Not the workspace: the user did not choose its content.
fn default_cwd(state: &Path, name: &str) -> Result<PathBuf, String> {
    if !name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-') {
        return Err("a server's name has letters, digits, `_` and `-`".into());
    }
    let folder = state.join("mcp").join(name);
    state::private(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Names and values, with `${NAME}` replaced from the environment.
fn expand_env_map(pairs: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    pairs.iter().map(|(name, value)| Ok((name.clone(), expand_env(value)?))).collect()
}

fn expand_env(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a `${` without its `}`")?;
        let value = env::var(name).map_err(|_| format!("the variable {name} is not set"))?;
        out.push_str(before);
        out.push_str(&value);
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let home = env::var("HOME").unwrap_or_default();
        if !home.is_empty() {
            assert_eq!(expand_env("a ${HOME}/b").unwrap(), format!("a {home}/b"));
        }
        assert_eq!(expand_env("plain $x {y}").unwrap(), "plain $x {y}");
        assert_eq!(
            expand_env("${NO_SUCH_VARIABLE_HERE}").unwrap_err(),
            "the variable NO_SUCH_VARIABLE_HERE is not set"
        );
        assert_eq!(expand_env("${open").unwrap_err(), "a `${` without its `}`");
    }
}
