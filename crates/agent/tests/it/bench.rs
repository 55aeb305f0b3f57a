//! A workspace, a store and an agent over a scripted model: what the stories are told with.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use helve_agent::{
    Agent, AgentEvent, Engine,
    model::{Endpoint, OpenAi, Timeouts},
};
use helve_contract::{
    Effects, Entry, PathRules, PortSet, Ports, Reply, Root, Session, Spec, Workspace,
    ports::{Message, MessagePart, MessageRole, Sessions},
};
use helve_dialects::by_name;
use helve_engine::{Gate, Mode, protected_path_rules};
use helve_hosts::LocalHost;
use helve_script::{MockModelServer, ModelScript};
use helve_store::SqliteStore;
use serde_json::json;

/// What a story needs.
pub(crate) struct Bench {
    pub(crate) agent: Agent,
    pub(crate) server: MockModelServer,
    pub(crate) store: SqliteStore,
    pub(crate) events: Arc<Mutex<Vec<String>>>,
    pub(crate) folder: tempfile::TempDir,
}

impl Bench {
    /// An agent that speaks claude's dialect, with two tools more: `Count` writes a line to `count.txt` (and is no
    /// reading), `Look` only looks.
    pub(crate) async fn new(script: ModelScript) -> Self {
        let folder = tempfile::Builder::new().prefix("bench").tempdir().unwrap();
        fs::create_dir(folder.path().join("w")).unwrap();
        let server = script.serve().await.unwrap();
        let (agent, store) = agent(folder.path(), &server.url());
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        let agent =
            Agent { listener: Arc::new(move |event: &AgentEvent| heard.lock().unwrap().extend(line(event))), ..agent };
        Self { agent, server, store, events, folder }
    }

    /// The workspace's directory.
    pub(crate) fn root(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join("w")
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        fs::write(self.root().join(name), text).unwrap();
    }

    /// A file's path as the model writes it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.root().join(name).display().to_string()
    }

    /// What `Count` has written.
    pub(crate) fn counted(&self) -> String {
        fs::read_to_string(self.root().join("count.txt")).unwrap_or_default()
    }

    /// What is kept of the session, a line a part.
    pub(crate) async fn kept(&self) -> Vec<String> {
        let here = self.root().display().to_string();
        let messages = self.store.messages("story", None, 10_000).await.unwrap();
        messages.iter().flat_map(shown).map(|it| it.replace(&here, "/w")).collect()
    }

    /// What happened, a line an event.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    /// Nothing was wrong with any request, and the script was followed to its end.
    pub(crate) fn all_was_well(&self) {
        assert_eq!(self.server.violations(), Vec::<String>::new());
        assert_eq!(self.server.steps_left(), 0);
    }
}

/// An agent over a directory: `w` is the workspace, `store.db` the store.
pub(crate) fn agent(folder: &Path, url: &str) -> (Agent, SqliteStore) {
    let folder = fs::canonicalize(folder).unwrap();
    let dialect = by_name("claude").unwrap();
    let roots = [Root::writable(folder.join("w"))];
    let workspace = Workspace::new(roots, PathRules::new(protected_path_rules()), dialect.path_style);
    let store = SqliteStore::open(folder.join("store.db")).unwrap();
    let ports = Ports { store: Arc::new(store.clone()), ..Ports::new(Arc::new(LocalHost::new())) };
    let session = Arc::new(Session::new("story", workspace, ports));
    let only = ["Read", "Write", "Edit", "Glob", "Grep", "Count", "Look"].map(str::to_owned).to_vec();
    let builder = Engine::builder(dialect).only(only).gate(Gate::new(Mode::Open));
    let engine = builder.tool(count(&folder.join("w/count.txt"))).tool(look()).build().unwrap();
    (Agent::new(Arc::new(engine), session, Arc::new(model(url))), store)
}

/// A model that is not patient.
pub(crate) fn model(url: &str) -> OpenAi {
    OpenAi::new(Endpoint { timeouts: hasty(), ..Endpoint::new(url, "scripted") }).unwrap()
}

pub(crate) fn hasty() -> Timeouts {
    Timeouts { backoff: Duration::from_millis(1), max_backoff: Duration::from_secs(2), ..Timeouts::default() }
}

/// Writes a line to a file, which shows whether it ran once.
fn count(file: &Path) -> Entry {
    let file = file.to_owned();
    Entry::dynamic(spec("Count", Effects::WRITES), move |args, _| {
        let file = file.clone();
        async move {
            use std::io::Write;
            let mut file = fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
            file.write_all(format!("{}\n", args["what"].as_str().unwrap_or("?")).as_bytes()).unwrap();
            Ok(Reply::from("counted"))
        }
        .boxed()
    })
}

/// Answers what it is asked, and fails where that is `fail`.
fn look() -> Entry {
    Entry::dynamic(spec("Look", Effects::READS), move |args, call| {
        async move {
            let what = args["what"].as_str().unwrap_or("?").to_owned();
            call.report_progress(&format!("looking at {what}"));
            match what.as_str() {
                "fail" => Err(helve_contract::Error::failed("there is nothing of this name")),
                "big" => Ok(Reply::from("x".repeat(2_000_000))),
                "long" => Ok(Reply::from(format!("{what} {}", "word ".repeat(1_200)))),
                "wait" => {
                    call.cancel.cancelled().await;
                    Err(helve_contract::Error::Cancelled)
                }
                _ => Ok(Reply::from(format!("saw {what}"))),
            }
        }
        .boxed()
    })
}

fn spec(name: &str, effects: Effects) -> Spec {
    Spec {
        name: name.to_owned(),
        aliases: Vec::new(),
        rule_names: Vec::new(),
        annotations: None,
        description: format!("{name}s something"),
        input_schema: json!({ "type": "object", "properties": { "what": { "type": "string" } }, "required": ["what"] }),
        output_schema: None,
        effects,
        tier: None,
        timeout: Duration::from_secs(60),
        needs: PortSet::NONE,
        profile: None,
        access: None,
    }
}

/// A message of the store, a line a part.
pub(crate) fn shown(message: &Message) -> Vec<String> {
    let role = match message.role {
        MessageRole::User => "user",
        MessageRole::Assistant => "model",
        MessageRole::Tool => "tool",
        MessageRole::System => "note",
    };
    let parts = message.parts.iter().map(|part| match part {
        MessagePart::Text { text } => format!("{role}: {text}"),
        MessagePart::Opaque { api, .. } => format!("{role} keeps an item of {api}"),
        MessagePart::Reasoning { thinking } => format!("{role} thinks: {thinking}"),
        MessagePart::ToolCall { name, input, .. } => format!("{role} calls {name} {input}"),
        MessagePart::ToolResult { content, is_error: false, .. } => format!("{role}: {content}"),
        MessagePart::ToolResult { content, is_error: true, .. } => format!("{role} failed: {content}"),
        MessagePart::Finish { reason } => format!("{role} ends: {reason}"),
        MessagePart::Binary { mime_type, path, .. } => format!("{role} shows {mime_type} of {path}"),
    });
    parts.collect()
}

fn line(event: &AgentEvent) -> Option<String> {
    Some(match event {
        AgentEvent::ModelRequested { turn } => format!("asking {turn}"),
        AgentEvent::Text(text) => format!("text {text}"),
        AgentEvent::Reasoning(text) => format!("thought {text}"),
        AgentEvent::ToolCallStarted { name, .. } => format!("calling {name}"),
        AgentEvent::Progress { text, .. } => format!("progress {text}"),
        AgentEvent::ToolCallFinished { name, reply, .. } => {
            format!("called {name} {}", if reply.is_error { "failed" } else { "well" })
        }
        AgentEvent::Retrying { why, .. } => format!("retrying {why}"),
        AgentEvent::Compacted { .. } => "compacted".to_owned(),
        AgentEvent::Notice(text) => format!("notice {text}"),
        AgentEvent::TurnEnded(outcome) => format!("ended {:?}", outcome.stop_reason),
        AgentEvent::Usage(_) | AgentEvent::TodosChanged(_) | AgentEvent::SubAgent { .. } => return None,
    })
}
