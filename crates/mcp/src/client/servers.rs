//! All configured servers: what they offer now, and how they are.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use helve_contract::{CancellationToken, Effects, Entry, Error, PortSet, Result, Spec, nearest};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    call,
    definition::Definition,
    keeper,
    ledger::Ledger,
    link::Link,
    name, resources,
    settings::{Folders, Settings},
    stdio::Group,
};

/// The configured servers. Cheap to clone; they run until the last clone and the last of their tools are gone.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is being started.
    Starting,
    /// It answers.
    Connected,
    /// It does not answer, and is started again after a while.
    Failed(String),
    /// It is never started.
    Refused(String),
}

/// How a server is, for people.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// How many tools it offers.
    pub tools: usize,
    /// Lines that were no messages.
    pub noise: u64,
}

/// A tool that is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Whose tool it is.
    pub server: String,
    /// What its server calls it.
    pub tool: String,
    /// Why it is not offered.
    pub why: String,
}

/// A tool whose definition changed since it was approved, as it is now.
#[derive(Clone, Debug)]
pub struct Changed {
    /// What it is called here.
    pub name: String,
    /// What its server says about it.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
}

pub(crate) struct Inner {
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) folders: Folders,
    refused: Vec<Report>,
    stop: CancellationToken,
    keepers: Mutex<Vec<JoinHandle<()>>>,
    news: watch::Receiver<u64>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
        // At once: nobody may be left to drive what would do it politely.
        for server in &self.servers {
            server.hold(None);
        }
    }
}

pub(crate) struct Server {
    pub(crate) settings: Settings,
    pub(crate) ledger: Ledger,
    live: Mutex<Live>,
    news: watch::Sender<u64>,
}

struct Live {
    status: Status,
    link: Option<Arc<Link>>,
    group: Option<Group>,
    tools: Vec<Known>,
    /// Its tools when it was last there.
    last: Vec<Known>,
    left: Vec<LeftOut>,
    has_resources: bool,
}

#[derive(Clone)]
struct Known {
    tool: Arc<Definition>,
    /// Whether it is what it was when it was approved.
    holds: bool,
}

impl Servers {
    /// Starts all servers in the background, at the same time. Needs a runtime, and returns at once.
    pub fn start(settings: Vec<Settings>, folders: Folders) -> Self {
        let (news, heard) = watch::channel(0);
        let (mut servers, mut refused) = (Vec::<Arc<Server>>::new(), Vec::new());
        for settings in settings {
            let twice = servers.iter().any(|it| it.settings.name == settings.name);
            let why = name::fault(&settings.name).or(twice.then_some("another server has the same name"));
            match why {
                Some(why) => {
                    let status = Status::Refused(why.to_owned());
                    refused.push(Report { name: settings.name, status, tools: 0, noise: 0 });
                }
                None => servers.push(Arc::new(Server::new(settings, Ledger::new(&folders.state), news.clone()))),
            }
        }
        let stop = CancellationToken::new();
        let keepers = servers.iter().map(|it| tokio::spawn(keeper::keep(it.clone(), stop.clone()))).collect();
        Self { inner: Arc::new(Inner { servers, folders, refused, stop, keepers: Mutex::new(keepers), news: heard }) }
    }

    /// Waits until no server is being started any more, or for so long.
    pub async fn settled(&self, most: Duration) {
        let settled = |servers: &[Arc<Server>]| servers.iter().all(|it| it.live().status != Status::Starting);
        let mut news = self.inner.news.clone();
        let waiting = async { while !settled(&self.inner.servers) && news.changed().await.is_ok() {} };
        _ = tokio::time::timeout(most, waiting).await;
    }

    /// Waits until something about the servers or their tools is new since the last time this receiver was asked.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.inner.news.clone()
    }

    /// The tools that can be called now. Ask again after news: an entry whose tool is gone says so when it is called.
    pub fn entries(&self) -> Vec<Entry> {
        let (offered, _) = self.inner.table(false);
        offered.into_iter().map(|it| self.entry(it)).collect()
    }

    /// The same with the tools of servers that are away for the moment: who calls one is told to try again.
    pub fn lasting_entries(&self) -> Vec<Entry> {
        let (offered, _) = self.inner.table(true);
        offered.into_iter().map(|it| self.entry(it)).collect()
    }

    fn entry(&self, Offered { server, tool, name }: Offered) -> Entry {
        let spec = Spec {
            // Rules also know it by the server's own spelling, whatever it is offered as.
            rule_names: if tool.name == name { Vec::new() } else { vec![tool.name.clone()] },
            name,
            aliases: Vec::new(),
            description: tool.description.clone(),
            schema: tool.schema.clone(),
            output: None,
            // What a server says about its tools does not count at the gate; clients get it as it stands.
            annotations: Some(tool.annotations),
            effects: Effects::READS.and(Effects::WRITES).and(Effects::NETWORK),
            tier: None,
            // The call keeps the clock itself, so that the server is told; this is for the case that it cannot.
            timeout: server.settings.call.saturating_add(Duration::from_secs(5)),
            needs: PortSet::NONE,
            profile: None,
            access: None,
        };
        let inner = self.inner.clone();
        let stranger = format!("the MCP server {}", server.settings.name);
        Entry::dynamic(spec, move |args, call| {
            let (inner, server, tool) = (inner.clone(), server.clone(), tool.clone());
            Box::pin(async move { call::run(&inner, &server, &tool, args, call).await })
        })
        .of_stranger(&stranger)
    }

    /// The tools `ListMcpResources` and `ReadMcpResource`.
    pub fn resource_entries(&self) -> Vec<Entry> {
        resources::entries(&self.inner)
    }

    /// How every server is.
    pub fn reports(&self) -> Vec<Report> {
        let of = |server: &Arc<Server>| {
            let live = server.live();
            Report {
                name: server.settings.name.clone(),
                status: live.status.clone(),
                tools: live.tools.iter().filter(|it| it.holds).count(),
                noise: live.link.as_ref().map_or(0, |it| it.noise.load(Ordering::Relaxed)),
            }
        };
        self.inner.servers.iter().map(of).chain(self.inner.refused.iter().cloned()).collect()
    }

    /// The tools that are not offered, and why. Those that a list leaves out by its owner's wish are not among them.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.inner.table(false).1
    }

    /// The tools whose definition changed since it was approved.
    pub fn quarantined(&self) -> Vec<Changed> {
        let changed = |it: Listed| Changed {
            description: it.known.tool.description.clone(),
            schema: it.known.tool.schema.clone(),
            name: it.name,
        };
        self.inner.listed(false).into_iter().filter(|it| !it.known.holds).map(changed).collect()
    }

    /// Takes a tool as it is now, by the user's word.
    pub fn approve(&self, name: &str) -> Result<()> {
        let waiting: Vec<Listed> = self.inner.listed(false).into_iter().filter(|it| !it.known.holds).collect();
        let names: Vec<_> = waiting.iter().map(|it| (it.name.clone(), it.known.tool.name.clone())).collect();
        let Some(at) = name::meant(name, &names).map_err(Error::failed)? else {
            return Err(Error::failed(format!("no change of a tool `{name}` waits for approval")));
        };
        let Listed { server, known, .. } = &waiting[at];
        let (tool, print) = (&known.tool.tool, &known.tool.print);
        server.ledger.approve(&server.settings.name, tool, print).map_err(Error::failed)?;
        for now in &mut server.live().tools {
            // It may be another one by now, which waits for a yes of its own.
            now.holds |= now.tool.tool == *tool && now.tool.print == *print;
        }
        server.told();
        Ok(())
    }

    /// Takes a changed tool as a session last saw it, without starting its server.
    pub fn approve_recorded(folders: &Folders, name: &str) -> Result<()> {
        Ledger::new(&folders.state).approve_named(name).map_err(Error::failed)
    }

    /// The tools with a change that waits for approval, by the record alone.
    pub fn recorded_changes(folders: &Folders) -> Result<Vec<String>> {
        Ledger::new(&folders.state).changed().map_err(Error::failed)
    }

    /// Asks a server whether it is there.
    pub async fn ping(&self, server: &str) -> Result<()> {
        let server = self.inner.named(server)?;
        let asked = server.link()?.ask("ping", json!({}), server.settings.start, None).await;
        asked.map(|_| ()).map_err(|lost| Error::failed(lost.told()))
    }

    /// Ends all servers in good order, and waits for it.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        let keepers = std::mem::take(&mut *self.inner.keepers.lock().unwrap_or_else(PoisonError::into_inner));
        for keeper in keepers {
            _ = tokio::time::timeout(Duration::from_secs(5), keeper).await;
        }
    }
}

/// A tool that can be called, whose it is, and the name it is offered under.
struct Offered {
    server: Arc<Server>,
    tool: Arc<Definition>,
    name: String,
}

/// A tool that a server has, offered or not.
struct Listed {
    server: Arc<Server>,
    known: Known,
    name: String,
}

impl Inner {
    /// The tools of all servers with their names. With `lasting`, also those of servers that are away for the moment.
    fn listed(&self, lasting: bool) -> Vec<Listed> {
        let of = |server: &Arc<Server>| -> Vec<(Arc<Server>, Known)> {
            let live = server.live();
            let tools = if lasting && live.link.is_none() { &live.last } else { &live.tools };
            tools.iter().map(|known| (server.clone(), known.clone())).collect()
        };
        let all: Vec<_> = self.servers.iter().flat_map(of).collect();
        let servers: Vec<&str> = self.servers.iter().map(|it| it.settings.name.as_str()).collect();
        let keys: Vec<_> =
            all.iter().map(|(server, known)| (server.settings.name.as_str(), known.tool.tool.as_str())).collect();
        let names = name::assigned(&servers, &keys);
        all.into_iter().zip(names).map(|((server, known), name)| Listed { server, known, name }).collect()
    }

    /// What is offered, and what is not. Of two tools with one name the first is offered.
    fn table(&self, lasting: bool) -> (Vec<Offered>, Vec<LeftOut>) {
        let mut left: Vec<LeftOut> = self.servers.iter().flat_map(|it| it.live().left.clone()).collect();
        let mut offered = Vec::new();
        let mut owners: HashMap<String, String> = HashMap::new();
        for Listed { server, known: Known { tool, holds }, name } in self.listed(lasting) {
            let owner = server.settings.name.clone();
            let why = match owners.get(&name) {
                Some(other) => Some(format!("its name {name} is taken by a tool of `{other}`")),
                None if !holds => Some(changed(&name)),
                None => None,
            };
            owners.entry(name.clone()).or_insert_with(|| owner.clone());
            match why {
                Some(why) => left.push(LeftOut { server: owner, tool: tool.tool.clone(), why }),
                None => offered.push(Offered { server, tool, name }),
            }
        }
        (offered, left)
    }

    /// The server of this name.
    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Server>> {
        self.servers.iter().find(|it| it.settings.name == name).ok_or_else(|| {
            let names: HashSet<&str> = self.servers.iter().map(|it| it.settings.name.as_str()).collect();
            let mut sorted: Vec<&str> = names.iter().copied().collect();
            sorted.sort_unstable();
            match nearest(name, names).first() {
                Some(near) => Error::failed(format!("there is no MCP server `{name}`; did you mean `{near}`?")),
                None => Error::failed(format!("there is no MCP server `{name}`; there are: {}", sorted.join(", "))),
            }
        })
    }
}

fn changed(name: &str) -> String {
    format!("the definition of {name} changed since it was approved; it is not called until the user approves it again")
}

impl Server {
    fn new(settings: Settings, ledger: Ledger, news: watch::Sender<u64>) -> Self {
        let live = Live {
            status: Status::Starting,
            link: None,
            group: None,
            tools: Vec::new(),
            last: Vec::new(),
            left: Vec::new(),
            has_resources: false,
        };
        Self { settings, ledger, live: Mutex::new(live), news }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that something is new.
    pub(crate) fn told(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// It is not connected: being started, or not there.
    pub(crate) fn set(&self, status: Status) {
        {
            let mut live = self.live();
            live.status = status;
            live.link = None;
            live.group = None;
            live.tools.clear();
            live.left.clear();
        }
        self.told();
    }

    /// It answers, and its tools are known.
    pub(crate) fn connected(&self, link: Arc<Link>, has_resources: bool) {
        {
            let mut live = self.live();
            live.status = Status::Connected;
            live.link = Some(link);
            live.has_resources = has_resources;
        }
        self.told();
    }

    /// Its program; the one before is ended.
    pub(crate) fn hold(&self, group: Option<Group>) {
        self.live().group = group;
    }

    pub(crate) fn ask_to_end(&self) {
        if let Some(group) = &self.live().group {
            group.ask_to_end();
        }
    }

    /// Its tools, as it tells them now.
    pub(crate) fn take(&self, tools: Vec<Definition>, holds: Vec<bool>, left: Vec<LeftOut>) {
        let mut live = self.live();
        let tools = tools.into_iter().zip(holds).map(|(tool, holds)| Known { tool: Arc::new(tool), holds });
        let tools: Vec<_> = tools.collect();
        live.last.clone_from(&tools);
        live.tools = tools;
        live.left = left;
    }

    /// The way to it, if it answers.
    fn link(&self) -> Result<Arc<Link>> {
        let live = self.live();
        let name = &self.settings.name;
        match (&live.link, &live.status) {
            (Some(link), _) => Ok(link.clone()),
            (None, Status::Failed(why)) => Err(Error::failed(format!(
                "the MCP server `{name}` is not there: {why}. It is started again by itself; go another way, or try later"
            ))),
            (None, _) => Err(Error::failed(format!("the MCP server `{name}` is being started; try again in a moment"))),
        }
    }

    /// The way to it, if it has resources.
    pub(crate) fn link_for_resources(&self) -> Result<Option<Arc<Link>>> {
        let link = self.link()?;
        Ok(self.live().has_resources.then_some(link))
    }

    /// The way to one of its tools, if that is still what was approved.
    pub(crate) fn route(&self, tool: &Definition) -> Result<Arc<Link>> {
        let link = self.link()?;
        let known = self.live().tools.iter().find(|it| it.tool.tool == tool.tool).cloned();
        let Some(known) = known else {
            return Err(Error::failed(format!("the MCP server `{}` no longer has this tool", self.settings.name)));
        };
        // The user may have approved it elsewhere since.
        if !known.holds && !self.ledger.holds(&self.settings.name, &known.tool.tool, &known.tool.print) {
            return Err(Error::denied(changed(&tool.name)));
        }
        Ok(link)
    }
}
