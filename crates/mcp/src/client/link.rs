//! A conversation with a server: what was asked and is not answered yet, and what the server asks us.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use helve_contract::{Call, CancellationToken};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::sync::{Notify, mpsc, oneshot};

use super::text;
use crate::wire::{Id, Message};

/// Messages that wait to be sent.
const QUEUE: usize = 256;
/// Bytes of one piece of progress.
const PIECE: usize = 4 << 10;

/// A conversation with a server, whatever carries it.
pub(crate) struct Link {
    out: mpsc::Sender<Value>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next: AtomicU64,
    /// What the server is told when it asks for roots.
    roots: Vec<PathBuf>,
    /// The revision that was agreed on.
    pub(crate) revision: OnceLock<String>,
    /// The server says that its tools are others now.
    pub(crate) changed: Notify,
    /// We want to end it.
    pub(crate) closing: CancellationToken,
    /// It is over.
    pub(crate) ended: CancellationToken,
    why: OnceLock<String>,
    /// What came that was no message.
    pub(crate) noise: AtomicU64,
}

struct Waiting {
    answer: oneshot::Sender<Result<Value, Lost>>,
    listener: Option<Call>,
}

/// Why a question got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It took too long.
    Timeout,
    /// The server said no.
    Refused(i64, String),
    /// The conversation broke off.
    Ended(String),
}

impl Lost {
    /// For people and models.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Timeout => "did not answer in time".into(),
            Self::Refused(code, message) => format!("answered with an error: {message} ({code})"),
            Self::Ended(why) => why.clone(),
        }
    }
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

impl Link {
    /// A conversation, and what is to be carried to the server.
    pub(crate) fn new(roots: Vec<PathBuf>) -> (Arc<Self>, mpsc::Receiver<Value>) {
        let (out, queue) = mpsc::channel(QUEUE);
        let link = Self {
            out,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            roots,
            revision: OnceLock::new(),
            changed: Notify::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            why: OnceLock::new(),
            noise: AtomicU64::new(0),
        };
        (Arc::new(link), queue)
    }

    /// Asks, and waits for the answer. A question that is dropped or takes too long is taken back.
    pub(crate) async fn ask(
        &self,
        method: &str,
        mut params: Value,
        limit: Duration,
        listener: Option<&Call>,
    ) -> Result<Value, Lost> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting().insert(id, Waiting { answer, listener: listener.cloned() });
        let mut question = Question { link: self, id, may_be_cancelled: false };
        if listener.is_some() {
            params["_meta"] = json!({ "progressToken": id });
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let exchange = async {
            if self.out.send(message).await.is_ok() {
                question.may_be_cancelled = method != "initialize";
            }
            answered.await.unwrap_or_else(|_| Err(Lost::Ended(self.why())))
        };
        tokio::select! {
            biased;
            answer = exchange => answer,
            () = self.ended.cancelled() => Err(Lost::Ended(self.why())),
            () = tokio::time::sleep(limit) => Err(Lost::Timeout),
        }
    }

    /// Tells something that needs no answer.
    pub(crate) async fn tell(&self, method: &str) {
        _ = self.out.send(json!({ "jsonrpc": "2.0", "method": method })).await;
    }

    /// Takes what the server sent.
    pub(crate) fn take(&self, bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return self.noise() };
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if text.starts_with('[') {
            match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(several) => several.iter().for_each(|it| self.take_one(it.get())),
                Err(_) => self.noise(),
            }
            return;
        }
        self.take_one(text);
    }

    fn take_one(&self, text: &str) {
        let Ok(message) = Message::read(text) else { return self.noise() };
        let Ok(id) = message.id() else { return self.noise() };
        match (&message.method, id) {
            (Some(method), Some(id)) => self.answer(method, &id),
            (Some(method), None) => self.notice(method, message.params),
            (None, Some(id)) => self.answered(&id, &message),
            (None, None) => self.noise(),
        }
    }

    /// An answer of the server. One that nobody waits for is dropped.
    fn answered(&self, id: &Id, message: &Message<'_>) {
        let Id::Number(number) = id else { return };
        let Some(waiting) = number.as_u64().and_then(|id| self.waiting().remove(&id)) else { return };
        let answer = match (message.result, message.error) {
            (Some(result), None) => serde_json::from_str(result.get())
                .map_err(|error| Lost::Refused(-32603, format!("an answer that cannot be read: {error}"))),
            (_, Some(error)) => {
                let error: Refusal = serde_json::from_str(error.get())
                    .unwrap_or(Refusal { code: -32603, message: "an error that cannot be read".into() });
                Err(Lost::Refused(error.code, text::remark(&error.message)))
            }
            (None, None) => Err(Lost::Refused(-32603, "an answer without a result".into())),
        };
        _ = waiting.answer.send(answer);
    }

    /// A question of the server. A flood of them is not all answered.
    fn answer(&self, method: &str, id: &Id) {
        let reply = match method {
            "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            "roots/list" if !self.roots.is_empty() => {
                let roots: Vec<_> = self.roots.iter().map(|it| json!({ "uri": uri(it) })).collect();
                json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": roots } })
            }
            _ => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "Method not found" } }),
        };
        _ = self.out.try_send(reply);
    }

    fn notice(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed" => self.changed.notify_one(),
            "notifications/progress" => {
                let params = params.and_then(|it| serde_json::from_str::<Value>(it.get()).ok()).unwrap_or_default();
                let call = params["progressToken"]
                    .as_u64()
                    .and_then(|id| self.waiting().get(&id).and_then(|it| it.listener.clone()));
                if let Some(call) = call {
                    call.say(&progress(&params));
                }
            }
            _ => {}
        }
    }

    /// Nobody will be told any more: the first reason counts.
    pub(crate) fn end(&self, why: impl Into<String>) {
        _ = self.why.set(why.into());
        self.ended.cancel();
        self.fail_all(&Lost::Ended(self.why()));
    }

    /// Every open question gets this for an answer.
    pub(crate) fn fail_all(&self, lost: &Lost) {
        let open: Vec<_> = self.waiting().drain().collect();
        for (_, waiting) in open {
            _ = waiting.answer.send(Err(lost.clone()));
        }
    }

    /// One open question gets this for an answer.
    pub(crate) fn fail(&self, id: u64, lost: Lost) {
        if let Some(waiting) = self.waiting().remove(&id) {
            _ = waiting.answer.send(Err(lost));
        }
    }

    /// Whether this question is still open.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.waiting().contains_key(&id)
    }

    /// Why it is over.
    pub(crate) fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "the connection ended".into())
    }

    fn noise(&self) {
        self.noise.fetch_add(1, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question on its way. When nobody waits any more, the server is told.
struct Question<'a> {
    link: &'a Link,
    id: u64,
    may_be_cancelled: bool,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let open = self.link.waiting().remove(&self.id).is_some();
        if open && self.may_be_cancelled {
            let params = json!({ "requestId": self.id, "reason": "nobody waits for it any more" });
            let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            _ = self.link.out.try_send(message);
        }
    }
}

fn progress(params: &Value) -> String {
    let words = params["message"].as_str().unwrap_or_default();
    let words = text::plain(&words[..words.floor_char_boundary(PIECE)]);
    let steps = match (params["progress"].as_f64(), params["total"].as_f64()) {
        (Some(done), Some(total)) => format!("{done}/{total}"),
        (Some(done), None) => done.to_string(),
        _ => String::new(),
    };
    match (words.is_empty(), steps.is_empty()) {
        (true, _) => steps,
        (_, true) => words,
        _ => format!("{steps} {words}"),
    }
}

/// A folder as a URI.
fn uri(path: &std::path::Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
