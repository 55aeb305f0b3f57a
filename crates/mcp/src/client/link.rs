//! The connection to a server: outstanding requests and the server's own requests.

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
use crate::wire::{RequestId, RpcMessage};

/// Messages that wait to be sent.
const MAX_QUEUED: usize = 256;
/// Bytes of one piece of progress.
const MAX_PROGRESS_BYTES: usize = 4 << 10;

/// A session with a server, whatever carries it.
pub(crate) struct RpcConnection {
    out: mpsc::Sender<Value>,
    waiting: Mutex<HashMap<u64, ResponseWaiter>>,
    next: AtomicU64,
    /// The roots that the server gets when it asks.
    roots: Vec<PathBuf>,
    /// The revision that was agreed on.
    pub(crate) revision: OnceLock<String>,
    /// Signalled when the server's tools have changed.
    pub(crate) changed: Notify,
    /// A shutdown was requested.
    pub(crate) closing: CancellationToken,
    /// The connection has ended.
    pub(crate) ended: CancellationToken,
    close_reason: OnceLock<String>,
    /// The number of lines that were no messages.
    pub(crate) garbage_lines: AtomicU64,
}

struct ResponseWaiter {
    answer: oneshot::Sender<Result<Value, RpcClientError>>,
    listener: Option<Call>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RpcClientError {
    /// It took too long.
    Timeout,
    /// The server returned an error.
    Refused(i64, String),
    /// The session broke off.
    Closed(String),
}

impl RpcClientError {
    /// For people and models.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Timeout => "did not answer in time".into(),
            Self::Refused(code, message) => format!("answered with an error: {message} ({code})"),
            Self::Closed(why) => why.clone(),
        }
    }
}

#[derive(Deserialize)]
struct RpcErrorObject {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

impl RpcConnection {
    /// A session, and what is to be carried to the server.
    pub(crate) fn new(roots: Vec<PathBuf>) -> (Arc<Self>, mpsc::Receiver<Value>) {
        let (out, queue) = mpsc::channel(MAX_QUEUED);
        let link = Self {
            out,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            roots,
            revision: OnceLock::new(),
            changed: Notify::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            close_reason: OnceLock::new(),
            garbage_lines: AtomicU64::new(0),
        };
        (Arc::new(link), queue)
    }

    /// Sends a request and waits for the answer. Dropping it or a timeout cancels the request.
    pub(crate) async fn request(
        &self,
        method: &str,
        mut params: Value,
        limit: Duration,
        listener: Option<&Call>,
    ) -> Result<Value, RpcClientError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting().insert(id, ResponseWaiter { answer, listener: listener.cloned() });
        let mut question = OutstandingRequest { link: self, id, may_be_cancelled: false };
        if listener.is_some() {
            params["_meta"] = json!({ "progressToken": id });
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let exchange = async {
            if self.out.send(message).await.is_ok() {
                question.may_be_cancelled = method != "initialize";
            }
            answered.await.unwrap_or_else(|_| Err(RpcClientError::Closed(self.close_reason())))
        };
        tokio::select! {
            biased;
            answer = exchange => answer,
            () = self.ended.cancelled() => Err(RpcClientError::Closed(self.close_reason())),
            () = tokio::time::sleep(limit) => Err(RpcClientError::Timeout),
        }
    }

    /// Tells something that needs no answer.
    pub(crate) async fn notify(&self, method: &str) {
        _ = self.out.send(json!({ "jsonrpc": "2.0", "method": method })).await;
    }

    /// Takes what the server sent.
    pub(crate) fn receive(&self, bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return self.count_garbage() };
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if text.starts_with('[') {
            match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(several) => several.iter().for_each(|it| self.receive_one(it.get())),
                Err(_) => self.count_garbage(),
            }
            return;
        }
        self.receive_one(text);
    }

    fn receive_one(&self, text: &str) {
        let Ok(message) = RpcMessage::parse(text) else { return self.count_garbage() };
        let Ok(id) = message.id() else { return self.count_garbage() };
        match (&message.method, id) {
            (Some(method), Some(id)) => self.handle_request(method, &id),
            (Some(method), None) => self.handle_notification(method, message.params),
            (None, Some(id)) => self.handle_response(&id, &message),
            (None, None) => self.count_garbage(),
        }
    }

    /// Handles an answer. An answer without a waiting request is dropped.
    fn handle_response(&self, id: &RequestId, message: &RpcMessage<'_>) {
        let RequestId::Number(number) = id else { return };
        let Some(waiting) = number.as_u64().and_then(|id| self.waiting().remove(&id)) else { return };
        let answer = match (message.result, message.error) {
            (Some(result), None) => serde_json::from_str(result.get())
                .map_err(|error| RpcClientError::Refused(-32603, format!("an answer that cannot be read: {error}"))),
            (_, Some(error)) => {
                let error: RpcErrorObject = serde_json::from_str(error.get())
                    .unwrap_or(RpcErrorObject { code: -32603, message: "an error that cannot be read".into() });
                Err(RpcClientError::Refused(error.code, text::quote_message(&error.message)))
            }
            (None, None) => Err(RpcClientError::Refused(-32603, "an answer without a result".into())),
        };
        _ = waiting.answer.send(answer);
    }

    /// Handles a request of the server. Excess requests are not answered.
    fn handle_request(&self, method: &str, id: &RequestId) {
        let reply = match method {
            "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            "roots/list" if !self.roots.is_empty() => {
                let roots: Vec<_> = self.roots.iter().map(|it| json!({ "uri": file_uri(it) })).collect();
                json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": roots } })
            }
            _ => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "Method not found" } }),
        };
        _ = self.out.try_send(reply);
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed" => self.changed.notify_one(),
            "notifications/progress" => {
                let params = params.and_then(|it| serde_json::from_str::<Value>(it.get()).ok()).unwrap_or_default();
                let call = params["progressToken"]
                    .as_u64()
                    .and_then(|id| self.waiting().get(&id).and_then(|it| it.listener.clone()));
                if let Some(call) = call {
                    call.report_progress(&progress(&params));
                }
            }
            _ => {}
        }
    }

    /// Closes the connection: the first reason is kept.
    pub(crate) fn close(&self, why: impl Into<String>) {
        _ = self.close_reason.set(why.into());
        self.ended.cancel();
        self.fail_all(&RpcClientError::Closed(self.close_reason()));
    }

    /// Fails all outstanding requests.
    pub(crate) fn fail_all(&self, lost: &RpcClientError) {
        let open: Vec<_> = self.waiting().drain().collect();
        for (_, waiting) in open {
            _ = waiting.answer.send(Err(lost.clone()));
        }
    }

    /// Fails one outstanding request.
    pub(crate) fn fail(&self, id: u64, lost: RpcClientError) {
        if let Some(waiting) = self.waiting().remove(&id) {
            _ = waiting.answer.send(Err(lost));
        }
    }

    /// Whether this question is still open.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.waiting().contains_key(&id)
    }

    /// Why it is over.
    pub(crate) fn close_reason(&self) -> String {
        self.close_reason.get().cloned().unwrap_or_else(|| "the connection ended".into())
    }

    fn count_garbage(&self) {
        self.garbage_lines.fetch_add(1, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, ResponseWaiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An outstanding request. Dropping it cancels it at the server.
struct OutstandingRequest<'a> {
    link: &'a RpcConnection,
    id: u64,
    may_be_cancelled: bool,
}

impl Drop for OutstandingRequest<'_> {
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
    let words = text::strip_control(&words[..words.floor_char_boundary(MAX_PROGRESS_BYTES)]);
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

/// A directory as a URI.
fn file_uri(path: &std::path::Path) -> String {
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
