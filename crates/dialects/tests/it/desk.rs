//! Test support: a temporary workspace with a dialect's engine, for scenario pages and other tests.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use helve_contract::{
    Call, PathRules, PathStyle, Ports, Reply, Root, Session, TaskContext, Workspace,
    jiff::Timestamp,
    ports::{
        Attachment, ClaimedRun, Clock, LeaseClaim, Message, MessagePart, MessageRole, OverlapPolicy, RunArtifacts,
        RunCompletion, SESSION_LEASE, ScheduleRun, ScheduleRunStatus, Schedules, SessionRecord, Sessions, TokenUsage,
    },
    serde_json::json,
};
use helve_dialects::by_name;
use helve_engine::{Engine, Gate, Mode, Spill, protected_path_rules};
use helve_hosts::{LocalHost, TaskRunner, memory::MemoryHost};
use helve_store::{FileArtifacts, SqliteStore};

use helve_web::channels::{Attachments, ChannelRegistry, Settings, StdoutUse};

use crate::{bare::Bare, shelf::Shelf};

/// A temporary workspace on disk.
pub(crate) struct Desk {
    folder: tempfile::TempDir,
    store: SqliteStore,
    /// The artifacts of the pages' run, shared by all roles.
    artifacts: RunArtifacts,
    session: Vec<(String, Arc<Session>)>,
    /// Random ids in order of appearance; pages write them as `<id-1>`, `<id-2>` …
    ids: Vec<String>,
}

/// Pages always use the same time.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-01-02T12:00:00Z".parse().unwrap()
    }
}

/// A clock with another time.
struct At(Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

impl Desk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("desk").tempdir().unwrap();
        for name in ["w", "tmp", "vault", "spill", "tasks", "artifacts"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let store = SqliteStore::lazy(folder.path().join("state/store.db")).with_clock(Arc::new(Noon));
        let artifacts = RunArtifacts::new(Arc::new(FileArtifacts::at(folder.path())), "run-1");
        Self { folder, store, artifacts, session: Vec::new(), ids: Vec::new() }
    }

    /// The workspace's directory.
    pub(crate) fn root(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join("w")
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.root().join(name)).unwrap_or_default()
    }

    /// One session per dialect, kept between calls so that background tasks survive.
    fn session(&mut self, named: &str) -> Arc<Session> {
        if let Some((_, session)) = self.session.iter().find(|(name, _)| name == named) {
            return session.clone();
        }
        let top = fs::canonicalize(self.folder.path()).unwrap();
        let (dialect, role) = with_role(named);
        let reading = by_name(dialect).unwrap().path_style;
        let mut roots = vec![Root::writable(self.root()).with_name("shared")];
        if reading == PathStyle::Virtual {
            roots.push(Root::writable(top.join("tmp")).with_name("tmp"));
            roots.push(Root::readable(top.join("vault")).with_name("vault"));
        }
        roots.push(Root::readable(top.join("spill")).with_name("spill"));
        let workspace = Workspace::new(roots, PathRules::new(protected_path_rules()), reading);
        let host = Arc::new(LocalHost::with_spawner(Arc::new(Bare)));
        let ports = Ports {
            tasks: Arc::new(TaskRunner::new(host.clone(), top.join("tasks"))),
            store: Arc::new(self.store.clone()),
            clock: Arc::new(Noon),
            web: Arc::new(Shelf),
            channels: Arc::new(self.channels(dialect)),
            ..Ports::new(host)
        };
        let mut session = Session::new(format!("desk-{dialect}"), workspace, ports);
        session.schedule_rules.is_driven = true;
        session.draft_session = Some(Arc::new(MemoryHost::new().session("draft")));
        session.role = role.map(str::to_owned);
        session.task = (dialect == "forge").then(|| errand(&self.artifacts, role));
        let session = Arc::new(session);
        self.session.push((named.to_owned(), session.clone()));
        session
    }

    /// Runs git in the workspace, one command per line, with a fixed name and time.
    pub(crate) fn git(&self, lines: &str) {
        for line in lines.lines() {
            let words = line.split(' ');
            let mut git = std::process::Command::new("git");
            git.args(words).current_dir(self.root()).env("GIT_CONFIG_GLOBAL", "/dev/null");
            for who in ["AUTHOR", "COMMITTER"] {
                git.env(format!("GIT_{who}_NAME"), "A").env(format!("GIT_{who}_EMAIL"), "a@b");
                git.env(format!("GIT_{who}_DATE"), "2026-01-01T00:00:00Z");
            }
            let done = git.output().unwrap();
            assert!(done.status.success(), "git {line}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }

    /// A channel that writes to `sent.ndjson`, and two files attached to the user's turn.
    fn channels(&self, dialect: &str) -> ChannelRegistry {
        let allow = ["+1555*", "user"];
        let log = json!({"signal": {"kind": "log", "to": self.root().join("sent.ndjson"), "allow": allow}});
        let outlets = ChannelRegistry::open(&Settings::read_all(&log).unwrap(), StdoutUse::Taken, |_| None).unwrap();
        let attachments = Attachments::default();
        let files = vec![
            Attachment::new("note.txt", b"from the user\n".to_vec()),
            Attachment::new("picture.png", b"\x89PNG\r\n\x1a\n".to_vec()),
        ];
        attachments.set(&format!("desk-{dialect}"), files);
        outlets.with_default_recipient("signal:user").unwrap().with_attachments(attachments)
    }

    /// Stores an earlier session, one message per line: `user: text`. The first line is its title.
    pub(crate) async fn converse(&self, id: &str, user: &str, lines: &str) {
        let title = lines.lines().next().unwrap_or_default().to_owned();
        let record = SessionRecord {
            id: id.to_owned(),
            label: None,
            parent: None,
            user: user.to_owned(),
            agent: "main".into(),
            title,
            dialect: "solo".into(),
            model: "m".into(),
            workspace: "/w".into(),
            messages: 0,
            spent: TokenUsage::default(),
            view_from: None,
            created: "2026-01-01T08:00:00Z".parse().unwrap(),
            updated: "2026-01-01T08:00:00Z".parse().unwrap(),
        };
        let lease = self.store_at("2026-01-01T08:00:00Z").claim_session(id, "desk", SESSION_LEASE).await.unwrap();
        self.store_at("2026-01-01T08:00:00Z").create_session(&lease, &record).await.unwrap();
        for (minute, line) in lines.lines().skip(1).enumerate() {
            let (role, text) = line.split_once(": ").unwrap();
            let role = if role == "user" { MessageRole::User } else { MessageRole::Assistant };
            let created = format!("2026-01-01T09:{minute:02}:00Z");
            let store = self.store_at(&created);
            let parts = vec![MessagePart::Text { text: text.to_owned() }];
            let message = Message { seq: 0, role, parts, created: created.parse().unwrap() };
            let spent = TokenUsage { prompt_tokens: 100, completion_tokens: 10, cost: 0.25, ..TokenUsage::default() };
            store.append_messages(&lease, &[message], spent).await.unwrap();
        }
        self.store.release_session(&lease).await.unwrap();
    }

    /// The same store at another time.
    fn store_at(&self, time: &str) -> SqliteStore {
        self.store.clone().with_clock(Arc::new(At(time.parse().unwrap())))
    }

    pub(crate) async fn call(&mut self, dialect: &str, tool: &str, args: &str) -> Reply {
        if self.artifacts.lease().is_none() {
            self.artifacts.claim().await.unwrap();
        }
        let session = self.session(dialect);
        let spill = Spill::new(self.folder.path().join("spill"), Duration::from_secs(3600));
        let (dialect, role) = with_role(dialect);
        let mut builder = Engine::builder(by_name(dialect).unwrap());
        if let Some(role) = role.or((dialect == "preset").then_some("all")) {
            builder = builder.role(role);
        }
        let engine = builder.gate(Gate::new(Mode::Open)).spill(spill).build().unwrap();
        let here = self.root().display().to_string();
        let args = self.with_ids(args);
        let mut reply = engine.run(tool, on_disk(&args, &here), Call::new("1", session)).await;
        reply.text = on_page(&reply.text, &here, self.folder.path());
        reply.text = self.without_ids(&reply.text);
        reply
    }

    /// The content of the spill file of a reply.
    pub(crate) fn full_output(&self, reply: &Reply) -> String {
        String::from_utf8(self.full_bytes(reply)).unwrap()
    }

    /// The same as bytes.
    pub(crate) fn full_bytes(&self, reply: &Reply) -> Vec<u8> {
        let name = Path::new(reply.spill_file.as_deref().unwrap()).file_name().unwrap();
        let found = ["spill", "tasks"].map(|folder| self.folder.path().join(folder).join(name));
        let file = found.into_iter().find(|file| file.exists()).unwrap();
        fs::read(file).unwrap()
    }

    /// The content of a file that a reply names as saved.
    pub(crate) fn saved_output(&self, shown: &str) -> String {
        let name = Path::new(shown).file_name().unwrap();
        fs::read_to_string(self.folder.path().join("spill").join(name)).unwrap()
    }

    /// Records that a schedule ran at 13:00 with this output.
    pub(crate) async fn ran(&self, schedule: &str, output: &str) {
        let schedule = self.store.schedule(&self.with_ids(schedule)).await.unwrap().unwrap();
        let time = |minute: u8| format!("2026-01-02T13:{minute:02}:00Z").parse::<Timestamp>().unwrap();
        let claim = LeaseClaim {
            schedule: schedule.id,
            due: time(0),
            next: None,
            owner: "desk".into(),
            length: Duration::from_secs(300),
            // Fixed on every page, but random in appearance.
            run: "0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f".into(),
            skipped: 0,
            overlap: OverlapPolicy::Manual,
        };
        let ClaimedRun { run, lease } = self.store_at("2026-01-02T13:00:00Z").claim_run(&claim).await.unwrap().unwrap();
        let run = ScheduleRun {
            finished: Some(time(1)),
            status: ScheduleRunStatus::Success,
            summary: output.chars().take(20).collect(),
            output: output.to_owned(),
            turns: 2,
            cost: 0.01,
            notified: true,
            ..run
        };
        let finish = RunCompletion { run, status: None, failures: 0, keep_runs: 20 };
        self.store_at("2026-01-02T13:01:00Z").finish_run(&lease, &finish).await.unwrap();
    }

    fn with_ids(&self, text: &str) -> String {
        self.ids.iter().enumerate().fold(text.to_owned(), |text, (n, id)| text.replace(&format!("<id-{}>", n + 1), id))
    }

    fn without_ids(&mut self, text: &str) -> String {
        let ids = text.split(|it: char| !it.is_ascii_hexdigit() && it != '-');
        for id in ids.filter_map(uuid) {
            if !self.ids.iter().any(|known| known == id) {
                self.ids.push(id.to_owned());
            }
        }
        self.ids.iter().enumerate().fold(text.to_owned(), |text, (n, id)| text.replace(id, &format!("<id-{}>", n + 1)))
    }
}

/// A dialect, and a role in it: `forge/type1`.
fn with_role(named: &str) -> (&str, Option<&str>) {
    named.split_once('/').map_or((named, None), |(dialect, role)| (dialect, Some(role)))
}

/// The run of the pages: every role except captain and executor works on its first task.
fn errand(artifacts: &RunArtifacts, role: Option<&str>) -> TaskContext {
    let task = (!matches!(role, Some("captain" | "executor"))).then(|| "task-001".to_owned());
    TaskContext {
        run: "run-1".into(),
        label: "run-1".into(),
        branch: task.as_ref().map(|task| format!("forge/{task}/1")),
        task,
        attempt: 1,
        base: "main".into(),
        artifacts: artifacts.clone(),
    }
}

/// The UUID that a word ends with.
fn uuid(word: &str) -> Option<&str> {
    let id = word.get(word.len().checked_sub(36)?..)?;
    id.split('-').map(str::len).eq([8, 4, 4, 4, 12]).then_some(id)
}

/// Pages write the workspace as `/w`; on disk it is elsewhere.
fn on_disk(text: &str, here: &str) -> String {
    text.replace("'/w/", &format!("'{here}/"))
        .replace("\"/w/", &format!("\"{here}/"))
        .replace("\"/w\"", &format!("\"{here}\""))
        .replace(" /w/", &format!(" {here}/"))
}

fn on_page(text: &str, here: &str, top: &Path) -> String {
    let top = fs::canonicalize(top).unwrap();
    text.replace(here, "/w").replace(&top.display().to_string(), "/state")
}
