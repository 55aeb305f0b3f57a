//! The client's roots (MCP roots): they narrow the workspace of its session and never widen it. Roots that do not
//! overlap the workspace are ignored, because the operator chose the workspace.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use helve_contract::{CancellationToken, Session, events::McpRoots};
use serde_json::{Value, json};
use tokio::sync::{Mutex, oneshot};

use crate::{
    answer,
    peer::{Outbox, Peer},
    resources,
    wire::truncate_name,
};

/// How long a call waits for the client's roots. Afterwards it continues, and they apply when they arrive.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(2);
/// Directories of one client that are looked at.
const MAX_ROOTS: usize = 64;

/// Whether a client that has these capabilities can name its directories.
pub(crate) fn supports_roots(capabilities: &Value) -> bool {
    capabilities.get("roots").is_some_and(Value::is_object)
}

/// The state of a client's roots. They are requested with the first call on the stream of that call, where every
/// client listens.
pub(crate) struct ClientRoots {
    stale: AtomicBool,
    known: Mutex<ClientRootsState>,
}

#[derive(Default)]
struct ClientRootsState {
    session: Option<Arc<Session>>,
    asked: Option<oneshot::Receiver<Value>>,
}

impl Default for ClientRoots {
    fn default() -> Self {
        Self { stale: AtomicBool::new(true), known: Mutex::default() }
    }
}

impl ClientRoots {
    /// The directories are others now; they are asked for again with the next call.
    pub(crate) fn invalidate(&self) {
        self.stale.store(true, Ordering::Release);
    }

    /// The session, narrowed to the client's directories. Calls that come meanwhile wait for the same answer.
    pub(crate) async fn session(
        &self,
        peer: &Peer,
        out: &dyn Outbox,
        (given_up, closing): (&CancellationToken, &CancellationToken),
    ) -> Arc<Session> {
        let mut known = self.known.lock().await;
        let asks = self.stale.swap(false, Ordering::AcqRel);
        if asks {
            let (id, answered) = peer.client_requests.begin();
            known.asked = Some(answered);
            out.send(answer::request(&id, "roots/list", &json!({})));
        }
        if let Some(answered) = known.asked.as_mut() {
            let patience = if asks { ROOTS_TIMEOUT } else { Duration::ZERO };
            let heard = tokio::select! {
                biased;
                answer = answered => Some(answer.unwrap_or_default()),
                () = given_up.cancelled() => None,
                () = closing.cancelled() => None,
                () = tokio::time::sleep(patience) => None,
            };
            if let Some(answer) = heard {
                known.asked = None;
                known.session = narrow_session(peer, known.session.take(), &answer).await;
            }
        }
        known.session.clone().unwrap_or_else(|| peer.server.session.clone())
    }
}

/// The session in the directories that a client named. A client that names none says nothing about where to work.
async fn narrow_session(peer: &Peer, before: Option<Arc<Session>>, answer: &Value) -> Option<Arc<Session>> {
    let whole = &peer.server.session;
    let named = answer.get("roots").and_then(Value::as_array).filter(|it| !it.is_empty())?;
    let names: Vec<String> =
        named.iter().take(MAX_ROOTS).filter_map(|it| Some(it.get("uri")?.as_str()?.to_owned())).collect();
    let top = whole.workspace.roots().first()?.dir.clone();
    let found = tokio::task::spawn_blocking(move || resolve_roots(&top, names)).await.ok()??;

    let (workspace, mut ignored) = whole.workspace.narrow_to(&found.folders);
    ignored.extend(found.ignored);
    let dirs: Vec<_> = workspace.roots().iter().map(|root| root.dir.clone()).collect();
    let roots = dirs.iter().map(|dir| dir.to_string_lossy().into_owned()).collect();
    // A failing event log never fails a call.
    _ = peer.server.engine.events().emit(McpRoots { session: whole.id.clone(), roots, ignored });
    // If the roots are unchanged, the working directory of the last command is kept.
    let same = |it: &Arc<Session>| it.workspace.roots().iter().map(|root| &root.dir).eq(dirs.iter());
    before.filter(same).or_else(|| Some(Arc::new(whole.with_workspace(workspace))))
}

struct ResolvedRoots {
    folders: Vec<PathBuf>,
    ignored: Vec<String>,
}

/// The directories of the roots without symbolic links. `None` if the workspace is on another machine, where the
/// client's directories do not apply.
fn resolve_roots(top: &Path, names: Vec<String>) -> Option<ResolvedRoots> {
    if !top.is_dir() {
        return None;
    }
    let (mut folders, mut ignored) = (Vec::new(), Vec::new());
    for name in names {
        let real =
            resources::parse_file_uri(&name).and_then(|path| fs::canonicalize(path).ok()).filter(|it| it.is_dir());
        match real {
            Some(real) => folders.push(real),
            None => ignored.push(format!("{}: no folder of this machine", truncate_name(&name))),
        }
    }
    Some(ResolvedRoots { folders, ignored })
}
