//! The server: validates requests and answers with the next step.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Method, Request, Response,
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};

use crate::{
    ScriptStep, validate_request,
    wire::{StreamAction, full_response, stream_actions},
};

/// The script of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelScript {
    /// The answers, in order.
    pub steps: VecDeque<ScriptStep>,
    /// Separate answers for requests whose system prompt or first user message contains certain text.
    pub lanes: Vec<ScriptBranch>,
    /// The maximum number of characters of a request; a longer one exceeds the context window.
    pub window: Option<usize>,
    /// The key that every request must have.
    pub key: Option<String>,
    /// A field that this server refuses.
    pub refuses: Option<String>,
    /// The answer after the last step; `None` makes such a request an error.
    pub then: Option<String>,
    /// The port; 0 chooses a free one.
    pub port: u16,
    /// A log file for every request and problem, one per line.
    #[serde(skip)]
    pub log: Option<PathBuf>,
}

/// Answers for matching requests only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptBranch {
    /// Text in the system prompt or the first user message.
    pub when: String,
    /// The answers, in order.
    pub steps: VecDeque<ScriptStep>,
}

/// A running server. Dropping it stops the server.
pub struct MockModelServer {
    at: SocketAddr,
    state: Arc<ServerShared>,
    work: JoinHandle<()>,
}

struct ServerShared {
    script: Mutex<ModelScript>,
    requests: Mutex<Vec<Value>>,
    wrong: Mutex<Vec<String>>,
}

impl ModelScript {
    /// A script with these answers, in order.
    pub fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Adds separate answers for requests whose system prompt or first user message contains this text.
    pub fn branch(mut self, when: &str, steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        self.lanes.push(ScriptBranch { when: when.to_owned(), steps: steps.into_iter().collect() });
        self
    }

    /// Sets the maximum number of characters of a request.
    pub fn window(mut self, characters: usize) -> Self {
        self.window = Some(characters);
        self
    }

    /// Requires this key.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Refuses requests with this field.
    pub fn reject_field(mut self, field: &str) -> Self {
        self.refuses = Some(field.to_owned());
        self
    }

    /// Sets the answer after the last step.
    pub fn fallback(mut self, text: &str) -> Self {
        self.then = Some(text.to_owned());
        self
    }

    /// Starts a server on a loopback port.
    pub async fn serve(self) -> io::Result<MockModelServer> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        let at = listener.local_addr()?;
        let state =
            Arc::new(ServerShared { script: Mutex::new(self), requests: Mutex::default(), wrong: Mutex::default() });
        let work = tokio::spawn(accept(listener, state.clone()));
        Ok(MockModelServer { at, state, work })
    }
}

impl MockModelServer {
    /// The base URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.at)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Value> {
        lock(&self.state.requests).clone()
    }

    /// The problems of the requests so far.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.state.wrong).clone()
    }

    /// The number of remaining steps.
    pub fn steps_left(&self) -> usize {
        let script = lock(&self.state.script);
        script.steps.len() + script.lanes.iter().map(|it| it.steps.len()).sum::<usize>()
    }

    /// Appends a step.
    pub fn push(&self, step: ScriptStep) {
        lock(&self.state.script).steps.push_back(step);
    }

    /// Serves forever.
    pub async fn run(mut self) {
        _ = (&mut self.work).await;
    }
}

impl Drop for MockModelServer {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl ServerShared {
    fn note(&self, what: &str, value: Value) {
        let Some(path) = lock(&self.script).log.clone() else { return };
        if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
            _ = writeln!(file, "{}", json!({ what: value }));
        }
    }

    fn record_violation(&self, what: String) {
        self.note("violation", what.as_str().into());
        lock(&self.wrong).push(what);
    }

    /// The step that answers a request.
    fn next(&self, request: &Value) -> Option<ScriptStep> {
        let mut script = lock(&self.script);
        let opening = prompt_text(request);
        let script = &mut *script;
        let lane = script.lanes.iter_mut().find(|lane| opening.contains(&lane.when) && !lane.steps.is_empty());
        let steps = lane.map_or(&mut script.steps, |lane| &mut lane.steps);
        match steps.front_mut() {
            Some(step) if step.times > 1 => {
                step.times -= 1;
                Some(step.clone())
            }
            Some(_) => steps.pop_front(),
            None => script.then.as_ref().map(ScriptStep::text),
        }
    }
}

/// The system prompt and the first user message.
fn prompt_text(request: &Value) -> String {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = |role: &str| messages.iter().find(|it| it["role"] == role).map(|it| it["content"].to_string());
    [first("system"), first("user")].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<ServerShared>) {
    while let Ok((stream, _)) = listener.accept().await {
        // Without this, the kernel delays the second part of an answer by 40 ms, until the first is acknowledged.
        _ = stream.set_nodelay(true);
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(handle(request, &state).await) }
            });
            _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle(request: Request<Incoming>, state: &Arc<ServerShared>) -> Response<ChannelBody> {
    let path = request.uri().path().to_owned();
    let key = request.headers().get("authorization").and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    let method = request.method().clone();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let wanted = lock(&state.script).key.clone();
    if wanted.is_some_and(|it| key != format!("Bearer {it}")) {
        return text_response(401, r#"{"error":{"message":"Incorrect API key provided.","code":"invalid_api_key"}}"#);
    }
    match (method, path.as_str()) {
        (Method::GET, "/v1/models") => text_response(
            200,
            r#"{"object":"list","data":[{"id":"scripted","object":"model","context_length":128000,"pricing":{"prompt":"0.000001","completion":"0.000002"}}]}"#,
        ),
        (Method::POST, "/v1/embeddings") => embeddings(&body),
        (Method::POST, "/v1/chat/completions") => chat(&body, state),
        _ => text_response(404, r#"{"error":{"message":"there is nothing here"}}"#),
    }
}

fn embeddings(body: &Bytes) -> Response<ChannelBody> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let count = request["input"].as_array().map_or(1, Vec::len);
    let data: Vec<Value> =
        (0..count).map(|at| json!({ "object": "embedding", "index": at, "embedding": [1.0, 0.0, 0.0] })).collect();
    text_response(
        200,
        &json!({ "object": "list", "data": data, "usage": { "prompt_tokens": 1, "total_tokens": 1 } }).to_string(),
    )
}

fn chat(body: &Bytes, state: &Arc<ServerShared>) -> Response<ChannelBody> {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        state.record_violation("the body is not JSON".to_owned());
        return bad_request("the body is not JSON");
    };
    let number = {
        let mut requests = lock(&state.requests);
        requests.push(request.clone());
        requests.len() as u64
    };
    state.note("request", request.clone());
    let (window, refuses) = {
        let script = lock(&state.script);
        (script.window, script.refuses.clone())
    };
    if let Some(field) = refuses.filter(|it| !request[it.as_str()].is_null()) {
        return bad_request(&format!("Unrecognized request argument supplied: {field}"));
    }
    let wrong = validate_request(&request);
    if !wrong.is_empty() {
        let words = wrong.join("; ");
        for it in wrong {
            state.record_violation(format!("request {number}: {it}"));
        }
        return bad_request(&words);
    }
    if window.is_some_and(|it| body.len() > it) {
        let words = r#"{"error":{"message":"This model's maximum context length is exceeded.","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
        return text_response(400, words);
    }
    let Some(mut step) = state.next(&request) else {
        state.record_violation(format!("request {number}: the script has no more steps"));
        return bad_request("the script has no more steps");
    };
    for _ in 0..8 {
        let Some(by) = step.by.clone() else { break };
        step = (by.0)(&request);
    }
    if let Some(words) = step.expect.as_ref().filter(|it| !request.to_string().contains(it.as_str())) {
        state.record_violation(format!("request {number}: `{words}` is not in it"));
    }
    respond_with(&step, number, &request)
}

/// Answers with a step.
fn respond_with(step: &ScriptStep, number: u64, request: &Value) -> Response<ChannelBody> {
    let (send, receive) = mpsc::channel(16);
    let mut response = Response::builder().status(step.status.unwrap_or(200));
    for (name, value) in &step.headers {
        response = response.header(name, value);
    }
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    let streams = request["stream"] == true && step.body.is_none();
    if !step.headers.contains_key("content-type") {
        response = response.header("content-type", if streams { "text/event-stream" } else { "application/json" });
    }
    let beats = match &step.body {
        Some(body) => vec![StreamAction::Send(body.clone())],
        None if streams => stream_actions(step, number, &model),
        None => vec![StreamAction::Send(full_response(step, number, &model).to_string())],
    };
    tokio::spawn(send_actions(beats, step.split.bytes, Duration::from_millis(step.wait), send));
    response.body(ChannelBody(receive)).unwrap_or_else(|_| bad_request("the step's headers cannot be sent"))
}

async fn send_actions(beats: Vec<StreamAction>, size: usize, wait: Duration, send: mpsc::Sender<io::Result<Bytes>>) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    for beat in beats {
        match beat {
            StreamAction::Send(text) => {
                let size = if size == 0 { text.len().max(1) } else { size };
                for piece in text.as_bytes().chunks(size) {
                    if send.send(Ok(Bytes::copy_from_slice(piece))).await.is_err() {
                        return;
                    }
                }
            }
            StreamAction::Cut => {
                // Earlier output is flushed first.
                while send.capacity() < send.max_capacity() && !send.is_closed() {
                    tokio::task::yield_now().await;
                }
                tokio::task::yield_now().await;
                _ = send.send(Err(io::Error::other("cut on purpose"))).await;
            }
            StreamAction::Stall => send.closed().await,
        }
    }
}

fn bad_request(words: &str) -> Response<ChannelBody> {
    text_response(400, &json!({ "error": { "message": words, "type": "invalid_request_error" } }).to_string())
}

fn text_response(status: u16, body: &str) -> Response<ChannelBody> {
    let (send, receive) = mpsc::channel(1);
    _ = send.try_send(Ok(Bytes::copy_from_slice(body.as_bytes())));
    let mut response = Response::new(ChannelBody(receive));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

/// A body that comes through a channel.
struct ChannelBody(mpsc::Receiver<io::Result<Bytes>>);

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|it| it.map(|it| it.map(Frame::data)))
    }
}
