//! All configured servers: their tools and states.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use helve_contract::{CancellationToken, Effects, Entry, Error, PortSet, Result, Spec, closest_names};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    call,
    definition::ToolDefinition,
    keeper,
    ledger::ToolPins,
    link::RpcConnection,
    name, resources,
    settings::{McpClientConfig, McpDirs},
    stdio::ProcessGroup,
};

/// The configured servers. Cheap to clone; they run until the last clone and the last of their tools are dropped.
#[derive(Clone)]
pub struct McpServers {
    inner: Arc<McpServersInner>,
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStatus {
    /// It is being started.
    Starting,
    /// Connected.
    Connected,
    /// Disconnected; it is restarted after a delay.
    Failed(String),
    /// It is never started.
    Refused(String),
}

/// A server's state, for display.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Its state.
    pub status: ServerStatus,
    /// How many tools it offers.
    pub tools: usize,
    /// Lines that were no messages.
    pub garbage_lines: u64,
}

/// A tool that is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedTool {
    /// Whose tool it is.
    pub server: String,
    /// What its server calls it.
    pub tool: String,
    /// Why it is not offered.
    pub why: String,
}

/// A tool whose definition changed since it was approved, in its current form.
#[derive(Clone, Debug)]
pub struct ChangedTool {
    /// Its local name.
    pub name: String,
    /// The server's description.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
}

pub(crate) struct McpServersInner {
    pub(crate) servers: Vec<Arc<ConnectedServer>>,
    pub(crate) folders: McpDirs,
    refused: Vec<ServerReport>,
    stop: CancellationToken,
    supervisors: Mutex<Vec<JoinHandle<()>>>,
    changes: watch::Receiver<u64>,
}

impl Drop for McpServersInner {
    fn drop(&mut self) {
        self.stop.cancel();
        // Kills immediately: no runtime may be left for an orderly shutdown.
        for server in &self.servers {
            server.set_process_group(None);
        }
    }
}

pub(crate) struct ConnectedServer {
    pub(crate) settings: McpClientConfig,
    pub(crate) ledger: ToolPins,
    live: Mutex<ServerState>,
    news: watch::Sender<u64>,
}

struct ServerState {
    status: ServerStatus,
    link: Option<Arc<RpcConnection>>,
    group: Option<ProcessGroup>,
    tools: Vec<KnownTool>,
    /// Its tools when it was last there.
    last_tools: Vec<KnownTool>,
    skipped: Vec<SkippedTool>,
    has_resources: bool,
}

#[derive(Clone)]
struct KnownTool {
    tool: Arc<ToolDefinition>,
    /// Whether it is what it was when it was approved.
    is_pinned: bool,
}

impl McpServers {
    /// Starts all servers concurrently in the background and returns immediately. Requires a runtime.
    pub fn start(settings: Vec<McpClientConfig>, folders: McpDirs) -> Self {
        let (news, heard) = watch::channel(0);
        let (mut servers, mut refused) = (Vec::<Arc<ConnectedServer>>::new(), Vec::new());
        for settings in settings {
            let twice = servers.iter().any(|it| it.settings.name == settings.name);
            let why = name::server_name_error(&settings.name).or(twice.then_some("another server has the same name"));
            match why {
                Some(why) => {
                    let status = ServerStatus::Refused(why.to_owned());
                    refused.push(ServerReport { name: settings.name, status, tools: 0, garbage_lines: 0 });
                }
                None => {
                    servers.push(Arc::new(ConnectedServer::new(settings, ToolPins::new(&folders.state), news.clone())));
                }
            }
        }
        let stop = CancellationToken::new();
        let keepers = servers.iter().map(|it| tokio::spawn(keeper::supervise(it.clone(), stop.clone()))).collect();
        Self {
            inner: Arc::new(McpServersInner {
                servers,
                folders,
                refused,
                stop,
                supervisors: Mutex::new(keepers),
                changes: heard,
            }),
        }
    }

    /// Waits until no server is starting, up to this time.
    pub async fn wait_started(&self, most: Duration) {
        let settled =
            |servers: &[Arc<ConnectedServer>]| servers.iter().all(|it| it.live().status != ServerStatus::Starting);
        let mut news = self.inner.changes.clone();
        let waiting = async { while !settled(&self.inner.servers) && news.changed().await.is_ok() {} };
        _ = tokio::time::timeout(most, waiting).await;
    }

    /// A receiver that changes with the servers or their tools.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.changes.clone()
    }

    /// The tools that can be called now. Read them again after a change: a removed tool returns an error.
    pub fn entries(&self) -> Vec<Entry> {
        let (offered, _) = self.inner.resolve_tools(false);
        offered.into_iter().map(|it| self.entry(it)).collect()
    }

    /// Like `entries`, including tools of disconnected servers, whose calls ask to retry.
    pub fn entries_with_offline(&self) -> Vec<Entry> {
        let (offered, _) = self.inner.resolve_tools(true);
        offered.into_iter().map(|it| self.entry(it)).collect()
    }

    fn entry(&self, OfferedTool { server, tool, name }: OfferedTool) -> Entry {
        let spec = Spec {
            // Rules also match the server's spelling.
            rule_names: if tool.name == name { Vec::new() } else { vec![tool.name.clone()] },
            name,
            aliases: Vec::new(),
            description: tool.description.clone(),
            input_schema: tool.schema.clone(),
            output_schema: None,
            // The gate ignores the server's annotations; clients get them unchanged.
            annotations: Some(tool.annotations),
            effects: Effects::READS.union(Effects::WRITES).union(Effects::NETWORK),
            tier: None,
            // The call has its own timeout and notifies the server; this one is a fallback.
            timeout: server.settings.call_timeout.saturating_add(Duration::from_secs(5)),
            needs: PortSet::NONE,
            profile: None,
            access: None,
        };
        let inner = self.inner.clone();
        let stranger = format!("the MCP server {}", server.settings.name);
        Entry::dynamic(spec, move |args, call| {
            let (inner, server, tool) = (inner.clone(), server.clone(), tool.clone());
            Box::pin(async move { call::call_tool(&inner, &server, &tool, args, call).await })
        })
        .with_untrusted_origin(&stranger)
    }

    /// The tools `ListMcpResources` and `ReadMcpResource`.
    pub fn resource_entries(&self) -> Vec<Entry> {
        resources::entries(&self.inner)
    }

    /// The state of every server.
    pub fn reports(&self) -> Vec<ServerReport> {
        let of = |server: &Arc<ConnectedServer>| {
            let live = server.live();
            ServerReport {
                name: server.settings.name.clone(),
                status: live.status.clone(),
                tools: live.tools.iter().filter(|it| it.is_pinned).count(),
                garbage_lines: live.link.as_ref().map_or(0, |it| it.garbage_lines.load(Ordering::Relaxed)),
            }
        };
        self.inner.servers.iter().map(of).chain(self.inner.refused.iter().cloned()).collect()
    }

    /// The tools that are not offered, and why. Excludes those that a list filters.
    pub fn skipped(&self) -> Vec<SkippedTool> {
        self.inner.resolve_tools(false).1
    }

    /// The tools whose definition changed since it was approved.
    pub fn quarantined(&self) -> Vec<ChangedTool> {
        let changed = |it: Listed| ChangedTool {
            description: it.known.tool.description.clone(),
            schema: it.known.tool.schema.clone(),
            name: it.name,
        };
        self.inner.listed(false).into_iter().filter(|it| !it.known.is_pinned).map(changed).collect()
    }

    /// Approves the current definition of a tool.
    pub fn approve(&self, name: &str) -> Result<()> {
        let waiting: Vec<Listed> = self.inner.listed(false).into_iter().filter(|it| !it.known.is_pinned).collect();
        let names: Vec<_> = waiting.iter().map(|it| (it.name.clone(), it.known.tool.name.clone())).collect();
        let Some(at) = name::meant(name, &names).map_err(Error::failed)? else {
            return Err(Error::failed(format!("no change of a tool `{name}` waits for approval")));
        };
        let Listed { server, known, .. } = &waiting[at];
        let (tool, print) = (&known.tool.server_name, &known.tool.fingerprint);
        server.ledger.approve(&server.settings.name, tool, print).map_err(Error::failed)?;
        for now in &mut server.live().tools {
            // It may have changed again, which needs another approval.
            now.is_pinned |= now.tool.server_name == *tool && now.tool.fingerprint == *print;
        }
        server.notify_changed();
        Ok(())
    }

    /// Approves a changed tool as last seen by a session, without starting its server.
    pub fn approve_recorded(folders: &McpDirs, name: &str) -> Result<()> {
        ToolPins::new(&folders.state).approve_named(name).map_err(Error::failed)
    }

    /// The tools with a pending change, according to the pins.
    pub fn recorded_changes(folders: &McpDirs) -> Result<Vec<String>> {
        ToolPins::new(&folders.state).pending().map_err(Error::failed)
    }

    /// Asks a server whether it is there.
    pub async fn ping(&self, server: &str) -> Result<()> {
        let server = self.inner.find(server)?;
        let asked = server.link()?.request("ping", json!({}), server.settings.start_timeout, None).await;
        asked.map(|_| ()).map_err(|lost| Error::failed(lost.message()))
    }

    /// Shuts down all servers and waits for it.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        let keepers = std::mem::take(&mut *self.inner.supervisors.lock().unwrap_or_else(PoisonError::into_inner));
        for keeper in keepers {
            _ = tokio::time::timeout(Duration::from_secs(5), keeper).await;
        }
    }
}

/// A tool that can be called, whose it is, and the name it is offered under.
struct OfferedTool {
    server: Arc<ConnectedServer>,
    tool: Arc<ToolDefinition>,
    name: String,
}

/// A tool that a server has, offered or not.
struct Listed {
    server: Arc<ConnectedServer>,
    known: KnownTool,
    name: String,
}

impl McpServersInner {
    /// The tools of all servers with their names. With `lasting`, includes those of disconnected servers.
    fn listed(&self, lasting: bool) -> Vec<Listed> {
        let of = |server: &Arc<ConnectedServer>| -> Vec<(Arc<ConnectedServer>, KnownTool)> {
            let live = server.live();
            let tools = if lasting && live.link.is_none() { &live.last_tools } else { &live.tools };
            tools.iter().map(|known| (server.clone(), known.clone())).collect()
        };
        let all: Vec<_> = self.servers.iter().flat_map(of).collect();
        let servers: Vec<&str> = self.servers.iter().map(|it| it.settings.name.as_str()).collect();
        let keys: Vec<_> = all
            .iter()
            .map(|(server, known)| (server.settings.name.as_str(), known.tool.server_name.as_str()))
            .collect();
        let names = name::assigned(&servers, &keys);
        all.into_iter().zip(names).map(|((server, known), name)| Listed { server, known, name }).collect()
    }

    /// What is offered, and what is not. Of two tools with one name the first is offered.
    fn resolve_tools(&self, lasting: bool) -> (Vec<OfferedTool>, Vec<SkippedTool>) {
        let mut left: Vec<SkippedTool> = self.servers.iter().flat_map(|it| it.live().skipped.clone()).collect();
        let mut offered = Vec::new();
        let mut owners: HashMap<String, String> = HashMap::new();
        for Listed { server, known: KnownTool { tool, is_pinned: holds }, name } in self.listed(lasting) {
            let owner = server.settings.name.clone();
            let why = match owners.get(&name) {
                Some(other) => Some(format!("its name {name} is taken by a tool of `{other}`")),
                None if !holds => Some(changed_message(&name)),
                None => None,
            };
            owners.entry(name.clone()).or_insert_with(|| owner.clone());
            match why {
                Some(why) => left.push(SkippedTool { server: owner, tool: tool.server_name.clone(), why }),
                None => offered.push(OfferedTool { server, tool, name }),
            }
        }
        (offered, left)
    }

    /// The server of this name.
    pub(crate) fn find(&self, name: &str) -> Result<&Arc<ConnectedServer>> {
        self.servers.iter().find(|it| it.settings.name == name).ok_or_else(|| {
            let names: HashSet<&str> = self.servers.iter().map(|it| it.settings.name.as_str()).collect();
            let mut sorted: Vec<&str> = names.iter().copied().collect();
            sorted.sort_unstable();
            match closest_names(name, names).first() {
                Some(near) => Error::failed(format!("there is no MCP server `{name}`; did you mean `{near}`?")),
                None => Error::failed(format!("there is no MCP server `{name}`; there are: {}", sorted.join(", "))),
            }
        })
    }
}

fn changed_message(name: &str) -> String {
    format!("the definition of {name} changed since it was approved; it is not called until the user approves it again")
}

impl ConnectedServer {
    fn new(settings: McpClientConfig, ledger: ToolPins, news: watch::Sender<u64>) -> Self {
        let live = ServerState {
            status: ServerStatus::Starting,
            link: None,
            group: None,
            tools: Vec::new(),
            last_tools: Vec::new(),
            skipped: Vec::new(),
            has_resources: false,
        };
        Self { settings, ledger, live: Mutex::new(live), news }
    }

    fn live(&self) -> MutexGuard<'_, ServerState> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that something is new.
    pub(crate) fn notify_changed(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Marks it as disconnected.
    pub(crate) fn set_disconnected(&self, status: ServerStatus) {
        {
            let mut live = self.live();
            live.status = status;
            live.link = None;
            live.group = None;
            live.tools.clear();
            live.skipped.clear();
        }
        self.notify_changed();
    }

    /// Marks it as connected, with its tools.
    pub(crate) fn set_connected(&self, link: Arc<RpcConnection>, has_resources: bool) {
        {
            let mut live = self.live();
            live.status = ServerStatus::Connected;
            live.link = Some(link);
            live.has_resources = has_resources;
        }
        self.notify_changed();
    }

    /// Sets its process group; the previous one is killed.
    pub(crate) fn set_process_group(&self, group: Option<ProcessGroup>) {
        self.live().group = group;
    }

    pub(crate) fn terminate(&self) {
        if let Some(group) = &self.live().group {
            group.terminate();
        }
    }

    /// Its tools, as it tells them now.
    pub(crate) fn set_tools(&self, tools: Vec<ToolDefinition>, holds: Vec<bool>, left: Vec<SkippedTool>) {
        let mut live = self.live();
        let tools =
            tools.into_iter().zip(holds).map(|(tool, holds)| KnownTool { tool: Arc::new(tool), is_pinned: holds });
        let tools: Vec<_> = tools.collect();
        live.last_tools.clone_from(&tools);
        live.tools = tools;
        live.skipped = left;
    }

    /// The connection, if it is connected.
    fn link(&self) -> Result<Arc<RpcConnection>> {
        let live = self.live();
        let name = &self.settings.name;
        match (&live.link, &live.status) {
            (Some(link), _) => Ok(link.clone()),
            (None, ServerStatus::Failed(why)) => Err(Error::failed(format!(
                "the MCP server `{name}` is not there: {why}. It is started again by itself; go another way, or try later"
            ))),
            (None, _) => Err(Error::failed(format!("the MCP server `{name}` is being started; try again in a moment"))),
        }
    }

    /// The way to it, if it has resources.
    pub(crate) fn link_for_resources(&self) -> Result<Option<Arc<RpcConnection>>> {
        let link = self.link()?;
        Ok(self.live().has_resources.then_some(link))
    }

    /// The connection for one of its tools, if the definition is still the approved one.
    pub(crate) fn connection_for(&self, tool: &ToolDefinition) -> Result<Arc<RpcConnection>> {
        let link = self.link()?;
        let known = self.live().tools.iter().find(|it| it.tool.server_name == tool.server_name).cloned();
        let Some(known) = known else {
            return Err(Error::failed(format!("the MCP server `{}` no longer has this tool", self.settings.name)));
        };
        // The user may have approved it in another process.
        if !known.is_pinned
            && !self.ledger.is_pinned(&self.settings.name, &known.tool.server_name, &known.tool.fingerprint)
        {
            return Err(Error::denied(changed_message(&tool.name)));
        }
        Ok(link)
    }
}
