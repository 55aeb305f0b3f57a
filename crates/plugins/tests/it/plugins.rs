//! Plugins that behave badly: what they may do to a call, and what they may not do to the next one.

use std::{
    collections::VecDeque,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Access, Call, Entry, Error, PathRules, PathStyle, Ports, Result, Root, Session, Workspace,
    ports::{Host, Process, ProcessEvent, ProcessExit, ProcessSpec, SandboxLevel, Signal},
};
use helve_hosts::{LocalHost, Spawn};
use helve_plugins::PluginConfig;
use serde_json::{Value, json};

/// What a plugin does with a message: how often it was started, and the message.
type Manners = fn(u32, &Value) -> Vec<ProcessEvent>;

/// Starts plugins that exist only here.
struct Fakes {
    manners: Manners,
    tools: usize,
    starts: Arc<AtomicU32>,
    alive: Arc<AtomicU32>,
}

struct Fake {
    manners: Manners,
    tools: usize,
    start: u32,
    did: VecDeque<ProcessEvent>,
    alive: Arc<AtomicU32>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Spawn for Fakes {
    async fn spawn(&self, _: &ProcessSpec) -> Result<Box<dyn Process>> {
        let start = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Fake {
            manners: self.manners,
            tools: self.tools,
            start,
            did: VecDeque::new(),
            alive: self.alive.clone(),
        }))
    }

    fn level(&self) -> SandboxLevel {
        SandboxLevel::None
    }
}

#[async_trait]
impl Process for Fake {
    async fn next(&mut self) -> ProcessEvent {
        match self.did.pop_front() {
            Some(did) => did,
            None => std::future::pending().await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let message: Value = serde_json::from_slice(bytes).unwrap();
        if message["type"] == "init" {
            // Without a schema: what becomes of it is an object.
            let mut tools: Vec<_> = (0..self.tools).map(|it| json!({"name": format!("t{it}")})).collect();
            if self.tools == 2 {
                tools.push(json!({"name": "badone", "parameters": {"properties": {"a": {"type": "strin"}}}}));
                tools.push(json!({"name": "bad name"}));
                tools.push(json!({"name": "t0", "description": "Once more."}));
                tools.push(json!({"name": "get-weather"}));
            }
            self.did.push_back(line(&json!({"type": "init", "tools": tools})));
        } else {
            self.did.extend((self.manners)(self.start, &message));
        }
        Ok(())
    }

    async fn close_stdin(&mut self) -> Result<()> {
        Ok(())
    }

    async fn signal(&mut self, _: Signal) -> Result<()> {
        Ok(())
    }

    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::None
    }
}

fn line(message: &Value) -> ProcessEvent {
    ProcessEvent::Stdout(format!("{message}\n").into_bytes())
}

fn result(id: &Value, text: &str) -> ProcessEvent {
    line(&json!({"type": "result", "call_id": id, "content": [{"type": "text", "text": text}]}))
}

fn ended(code: i32) -> ProcessEvent {
    ProcessEvent::Exit(ProcessExit { code, signal: None, left_behind: false, denials: Vec::new(), dir: None })
}

/// A session with a plugin in it.
struct Desk {
    tools: Vec<Entry>,
    session: Arc<Session>,
    starts: Arc<AtomicU32>,
    alive: Arc<AtomicU32>,
}

/// A log, and what came to it.
fn log() -> (helve_plugins::StderrLog, Arc<Mutex<Vec<String>>>) {
    let remarks = Arc::<Mutex<Vec<String>>>::default();
    let heard = remarks.clone();
    (Arc::new(move |text| heard.lock().unwrap().push(text.to_owned())), remarks)
}

impl Desk {
    async fn with(manners: Manners, change: impl FnOnce(&mut PluginConfig)) -> Self {
        Self::start(manners, change, log().0).await
    }

    async fn with_remarks(manners: Manners) -> (Self, Arc<Mutex<Vec<String>>>) {
        let (log, remarks) = log();
        (Self::start(manners, |_| (), log).await, remarks)
    }

    async fn start(manners: Manners, change: impl FnOnce(&mut PluginConfig), log: helve_plugins::StderrLog) -> Self {
        let (starts, alive) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let fakes = Fakes { manners, tools: 2, starts: starts.clone(), alive: alive.clone() };
        let host: Arc<dyn Host> = Arc::new(LocalHost::with_spawner(Arc::new(fakes)));
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).canonicalize().unwrap();
        let workspace = Workspace::new([Root::writable(dir)], PathRules::default(), PathStyle::Absolute);
        let mut settings =
            PluginConfig::new(vec!["fake".into()], workspace.primary_root(Access::Read).unwrap(), Vec::new());
        change(&mut settings);
        let tools = helve_plugins::start(settings, host.clone(), log).await.unwrap();
        let session = Arc::new(Session::new("s", workspace, Ports::new(host)));
        Self { tools, session, starts, alive }
    }

    async fn new(manners: Manners) -> Self {
        Self::with(manners, |_| ()).await
    }

    async fn call(&self, tool: usize) -> Result<String, Error> {
        let call = Call::new("1", self.session.clone());
        self.tools[tool].run(json!({}), call).await.map(|reply| reply.text)
    }
}

#[tokio::test]
async fn noise_halves_and_answers_to_others_are_passed_over() {
    let desk = Desk::new(|_, message| {
        let id = &message["call_id"];
        let noise = ProcessEvent::Stdout(b"[db] Connected\n{\"type\":\"result\",\n17\n\x1b[2J\n".to_vec());
        let answer = format!("answer to {}", id.as_str().unwrap());
        // Its own answer comes twice, the second time for whoever calls next.
        vec![noise, result(&json!("call-99"), "not yours"), result(id, &answer), result(id, "once more")]
    })
    .await;
    assert_eq!(desk.call(0).await.unwrap(), "answer to call-1");
    assert_eq!(desk.call(1).await.unwrap(), "answer to call-2");
    assert_eq!(desk.call(0).await.unwrap(), "answer to call-3");
    assert_eq!(desk.starts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_crash_fails_its_call_and_not_the_next() {
    let desk = Desk::new(|start, message| match start {
        1 => vec![ProcessEvent::Stderr(b"out of cheese\n".to_vec()), ended(3)],
        _ => vec![result(&message["call_id"], "back")],
    })
    .await;
    let why = desk.call(0).await.unwrap_err().to_string();
    assert_eq!(
        why,
        "the plugin ended with code 3 while it worked on this call; it is started again with the next one. \
         It said: out of cheese"
    );
    assert_eq!(desk.call(0).await.unwrap(), "back");
    assert_eq!((desk.starts.load(Ordering::SeqCst), desk.alive.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn a_line_without_end_and_silence_end_the_program() {
    let desk =
        Desk::new(|_, _| vec![ProcessEvent::Stdout(vec![b'x'; 5 << 20]), ProcessEvent::Stdout(vec![b'x'; 5 << 20])])
            .await;
    let why = desk.call(0).await.unwrap_err().to_string();
    assert_eq!(why, "the plugin wrote a line of more than 8388608 bytes");
    assert_eq!(desk.alive.load(Ordering::SeqCst), 0);

    let desk = Desk::with(|_, _| Vec::new(), |it| it.call_timeout = Duration::from_millis(20)).await;
    assert!(matches!(desk.call(0).await, Err(Error::Timeout(_))));
    assert_eq!(desk.alive.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_tool_that_cannot_be_used_leaves_the_others() {
    let (desk, remarks) = Desk::with_remarks(|_, message| {
        vec![line(&json!({"type": "result", "call_id": message["call_id"], "is_error": false}))]
    })
    .await;
    let names: Vec<_> = desk.tools.iter().map(|it| it.spec.name.as_str()).collect();
    assert_eq!(names, ["t0", "t1", "get-weather"]);
    assert!(desk.tools.iter().all(|it| it.spec.input_schema["type"] == "object"));
    let remarks = remarks.lock().unwrap().clone();
    assert!(remarks[0].starts_with("the tool \"badone\" is left out: its schema does not compile: "), "{remarks:?}");
    assert_eq!(
        remarks[1..],
        [
            "the tool \"bad name\" is left out: a tool's name has 1 to 64 letters, digits, `_` and `-`",
            "the tool \"t0\" is left out: the plugin has another tool of that name",
        ]
    );
    // A result from which an encoder left out all that is empty.
    assert_eq!(desk.call(2).await.unwrap(), "(the tool returned nothing)");
}

#[tokio::test]
async fn an_image_arrives_as_media() {
    let desk = Desk::new(|_, message| {
        let image = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="});
        vec![line(&json!({"type": "result", "call_id": message["call_id"], "content": [image]}))]
    })
    .await;
    let reply = desk.tools[0].run(json!({}), Call::new("1", desk.session.clone())).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.media.len()), ("", 1));
    assert_eq!(reply.media[0].mime, "image/png");
}

#[tokio::test]
async fn more_tools_than_anybody_reads_are_left_out() {
    let desk = Desk::new(|_, _| Vec::new()).await;
    let many = Fakes { manners: |_, _| Vec::new(), tools: 5_000, starts: Arc::default(), alive: Arc::default() };
    let dir = desk.session.workspace.primary_root(Access::Read).unwrap();
    let host = Arc::new(LocalHost::with_spawner(Arc::new(many)));
    let (log, remarks) = log();
    let tools = helve_plugins::start(PluginConfig::new(vec!["fake".into()], dir, Vec::new()), host, log).await.unwrap();
    assert_eq!(tools.len(), 128);
    assert_eq!(*remarks.lock().unwrap(), ["4872 of 5000 tools are left out: a plugin has at most 128"]);
}

#[tokio::test]
async fn a_program_that_was_replaced_is_not_started_again() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("plugin-{}", std::process::id()));
    fs::write(&path, "one").unwrap();
    let argv = vec!["fake".to_owned(), path.to_str().unwrap().to_owned()];
    let desk = Desk::with(|_, _| vec![ended(1)], |it| it.argv = argv).await;
    desk.call(0).await.unwrap_err();
    fs::write(&path, "two").unwrap();
    let why = desk.call(0).await.unwrap_err().to_string();
    fs::remove_file(&path).unwrap();
    assert_eq!(
        why,
        "the plugin's program is another one than was started; the new one is used when Helve is started anew"
    );
    assert_eq!(desk.starts.load(Ordering::SeqCst), 1);
}
