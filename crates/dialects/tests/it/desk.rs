//! A workspace in a temporary folder, and a dialect's engine over it: what the pages and the other tests call.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use helve_contract::{Call, PathRules, Ports, Reading, Reply, Root, Session, Workspace};
use helve_dialects::by_name;
use helve_engine::{Engine, Gate, Mode, Spill, protected};
use helve_hosts::{Local, Runner};

use crate::bare::Bare;

/// A workspace of its own, on the real disk.
pub(crate) struct Desk {
    folder: tempfile::TempDir,
    session: Vec<(String, Arc<Session>)>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("desk").tempdir().unwrap();
        for name in ["w", "tmp", "vault", "spill", "tasks"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, session: Vec::new() }
    }

    /// The workspace's folder.
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

    /// One session a dialect, as long as the desk stands: background tasks live on between calls.
    fn session(&mut self, dialect: &str) -> Arc<Session> {
        if let Some((_, session)) = self.session.iter().find(|(name, _)| name == dialect) {
            return session.clone();
        }
        let top = fs::canonicalize(self.folder.path()).unwrap();
        let reading = by_name(dialect).unwrap().reading;
        let mut roots = vec![Root::writable(self.root()).named("shared")];
        if reading == Reading::Virtual {
            roots.push(Root::writable(top.join("tmp")).named("tmp"));
            roots.push(Root::readable(top.join("vault")).named("vault"));
        }
        roots.push(Root::readable(top.join("spill")).named("spill"));
        let workspace = Workspace::new(roots, PathRules::new(protected()), reading);
        let host = Arc::new(Local::with(Arc::new(Bare)));
        let ports = Ports { tasks: Arc::new(Runner::new(host.clone(), top.join("tasks"))), ..Ports::new(host) };
        let session = Arc::new(Session::new(format!("desk-{dialect}"), workspace, ports));
        self.session.push((dialect.to_owned(), session.clone()));
        session
    }

    pub(crate) async fn call(&mut self, dialect: &str, tool: &str, args: &str) -> Reply {
        let session = self.session(dialect);
        let spill = Spill::new(self.folder.path().join("spill"), Duration::from_secs(3600));
        let mut builder = Engine::builder(by_name(dialect).unwrap());
        if dialect == "preset" {
            builder = builder.role("all");
        }
        let engine = builder.gate(Gate::new(Mode::Open)).spill(spill).build().unwrap();
        let here = self.root().display().to_string();
        let mut reply = engine.run(tool, on_disk(args, &here), Call::new("1", session)).await;
        reply.text = on_page(&reply.text, &here, self.folder.path());
        reply
    }
}

/// Pages write the workspace as `/w`; on the disk it is elsewhere.
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
