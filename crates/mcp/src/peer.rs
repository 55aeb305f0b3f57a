//! One client: its negotiated state, its requests, and requests to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{FutureExt, future::BoxFuture};
use helve_contract::{Call, CancellationToken, Error, Session};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::Semaphore;

use crate::{
    answer::{self, ResponseBuilder, server_info},
    call,
    elicit::{self, ClientRequests},
    fixtures,
    flight::{InFlight, RequestGuard},
    progress::ProgressReporter,
    resources,
    revision::{self, MODERN, ProtocolEra},
    roots::{self, ClientRoots},
    server::McpService,
    wire::{RequestId, RequestParams, RpcError, RpcMessage},
};

/// Calls of one client that run at the same time; others wait for their turn.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 64;
/// Messages in one array.
const MAX_BATCH: usize = 1000;
/// How long a client may keep a list of what lasts as long as we do.
const HOUR_MS: u32 = 3_600_000;
/// The same for tools: some come from servers that may change them.
const MINUTE_MS: u32 = 60_000;

/// Sends messages to a client, whole and in order.
pub trait Outbox: Send + Sync {
    /// Sends one message. Does nothing if the client is gone.
    fn send(&self, message: Vec<u8>);

    /// Allows the client to resume later, if the transport supports it.
    fn pause(&self) {}
}

/// The result of a message.
pub enum MessageResponse {
    /// Nothing is answered.
    None,
    /// The answer, ready to be sent.
    Ready(Vec<u8>),
    /// The answer comes later. Poll it once before spawning it: most are ready.
    Pending(PendingResponse),
}

/// A pending answer; `None` if the client cancelled it. Dropping it cancels it.
pub type PendingResponse = BoxFuture<'static, Option<Vec<u8>>>;

/// One client of a server.
pub struct Peer {
    pub(crate) server: Arc<McpService>,
    pub(crate) client_requests: ClientRequests,
    agreed: Mutex<NegotiatedState>,
    client_roots: ClientRoots,
    pub(crate) in_flight: Arc<InFlight>,
    call_slots: Arc<Semaphore>,
    /// Set when no more messages come: subscriptions end, calls may finish.
    closing: CancellationToken,
}

/// What was agreed at the handshake, where there was one.
#[derive(Clone, Copy, Default)]
struct NegotiatedState {
    revision: Option<&'static str>,
    elicits: bool,
    roots: bool,
    level: Option<usize>,
}

/// A request with all that is known about it.
struct RpcRequest<'a> {
    id: RequestId,
    method: &'a str,
    params: RequestParams<'a>,
    era: ProtocolEra,
    elicits: bool,
    roots: bool,
    level: Option<usize>,
}

impl RpcRequest<'_> {
    fn for_fixtures(&self, params: Option<&RawValue>) -> fixtures::FixtureRequest {
        fixtures::FixtureRequest {
            id: self.id.clone(),
            method: self.method.to_owned(),
            era: self.era,
            logs: self.level.is_some(),
            params: params.and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default(),
        }
    }
}

impl Peer {
    /// A client that has said nothing yet.
    pub fn new(server: Arc<McpService>) -> Arc<Self> {
        Self::with_call_slots(server, Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)))
    }

    /// A client that waits for the same turns as others.
    pub(crate) fn with_call_slots(server: Arc<McpService>, turns: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            server,
            client_requests: ClientRequests::default(),
            agreed: Mutex::default(),
            client_roots: ClientRoots::default(),
            in_flight: Arc::default(),
            call_slots: turns,
            closing: CancellationToken::new(),
        })
    }

    /// Processes one message from the client. Messages before the answer go to `out`.
    pub fn receive(self: &Arc<Self>, message: &[u8], out: &Arc<dyn Outbox>) -> MessageResponse {
        let Ok(text) = std::str::from_utf8(message) else {
            return error_response(None, &RpcError::parse_error("not JSON: the message is not UTF-8"));
        };
        if text.trim_start().starts_with('[') { self.handle_batch(text, out) } else { self.handle_message(text, out) }
    }

    /// No more messages come from the client; it may still wait for answers.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// The client is gone: cancels its calls.
    pub fn disconnect(&self) {
        self.close();
        self.in_flight.cancel_all();
        self.client_requests.cancel_all();
    }

    /// The client gives up on a request.
    pub(crate) fn cancel(&self, id: &RequestId) {
        self.in_flight.cancel(id);
    }

    /// Whether any of its requests is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The tools have changed: a client that has shaken hands is told.
    pub(crate) fn notify_tools_changed(&self, out: &dyn Outbox) {
        if self.agreed().revision.is_some() {
            out.send(answer::notification("notifications/tools/list_changed", &json!({})));
        }
    }

    /// Tells of every change of the tools from now on, for as long as it is polled.
    pub(crate) fn watch_tool_changes(self: Arc<Self>, out: Arc<dyn Outbox>) -> impl Future<Output = ()> {
        // Subscribes before the first poll, so that no change is missed.
        let mut news = self.server.engine.tool_changes();
        async move {
            while news.changed().await {
                self.notify_tools_changed(&*out);
            }
        }
    }

    /// The revision that was agreed on at the handshake.
    pub(crate) fn revision(&self) -> Option<&'static str> {
        self.agreed().revision
    }

    /// An array of messages, as the older revisions have them: answered with an array.
    fn handle_batch(self: &Arc<Self>, text: &str, out: &Arc<dyn Outbox>) -> MessageResponse {
        let messages: Vec<&RawValue> = match serde_json::from_str(text) {
            Ok(messages) => messages,
            Err(error) => return error_response(None, &RpcError::parse_error(format!("not JSON: {error}"))),
        };
        if self.agreed().revision.is_none_or(|it| !revision::has_batches(it)) {
            return error_response(
                None,
                &RpcError::invalid_request("one message at a time: this revision has no batches"),
            );
        }
        if messages.is_empty() || messages.len() > MAX_BATCH {
            return error_response(
                None,
                &RpcError::invalid_request(format!("a batch has between 1 and {MAX_BATCH} messages")),
            );
        }

        let parts: Vec<_> = messages.into_iter().map(|it| self.handle_message(it.get(), out)).collect();
        let works = parts.into_iter().map(|part| match part {
            MessageResponse::None => futures::future::ready(None).boxed(),
            MessageResponse::Ready(answer) => futures::future::ready(Some(answer)).boxed(),
            MessageResponse::Pending(work) => work,
        });
        let all = futures::future::join_all(works);
        MessageResponse::Pending(async move { answer::batch(all.await.into_iter().flatten().collect()) }.boxed())
    }

    fn handle_message(self: &Arc<Self>, text: &str, out: &Arc<dyn Outbox>) -> MessageResponse {
        let message = match RpcMessage::parse(text) {
            Ok(message) => message,
            Err(fault) => return error_response(None, &fault),
        };
        let id = match message.id() {
            Ok(id) => id,
            Err(fault) => return error_response(None, &fault),
        };
        match (message.method.as_deref(), id) {
            (Some(method), Some(id)) => self
                .handle_request(id.clone(), method, message.params, out)
                .unwrap_or_else(|fault| error_response(Some(&id), &fault)),
            (Some(method), None) => {
                self.handle_notification(method, message.params);
                MessageResponse::None
            }
            (None, Some(RequestId::Text(id))) if message.result.is_some() || message.error.is_some() => {
                self.client_requests.complete(&id, message.result);
                MessageResponse::None
            }
            // An unexpected answer or an error without an id: ignored.
            (None, _) if message.result.is_some() || message.error.is_some() => MessageResponse::None,
            (None, id) => error_response(
                id.as_ref(),
                &RpcError::invalid_request("neither a request nor an answer: \"method\" is missing"),
            ),
        }
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/cancelled" => {
                if let Ok(RequestParams { request_id: Some(id), .. }) = RequestParams::read(params) {
                    self.in_flight.cancel(&id);
                }
            }
            "notifications/roots/list_changed" => self.client_roots.invalidate(),
            _ => {}
        }
    }

    fn handle_request(
        self: &Arc<Self>,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
        out: &Arc<dyn Outbox>,
    ) -> Result<MessageResponse, RpcError> {
        let request = self.parse_request(id, method, RequestParams::read(params)?)?;
        if self.server.has_fixtures()
            && let Some(handled) = fixtures::handle(self, request.for_fixtures(params), out)
        {
            return handled;
        }
        let (id, era) = (&request.id, request.era);
        let ready = match (method, era) {
            ("tools/call", _) => return self.call(request, out),
            ("tools/list", _) => {
                ResponseBuilder::new(id, era).raw("tools", &self.server.tools()).cacheable_for(MINUTE_MS)
            }
            // No prompts are offered; clients that ask get an empty list.
            ("prompts/list", _) => ResponseBuilder::new(id, era).raw("prompts", "[]").cacheable_for(HOUR_MS),
            ("resources/list" | "resources/read", _) if !self.server.options.without_resources => {
                return self.resources(request, out);
            }
            ("resources/templates/list", _) if !self.server.options.without_resources => {
                ResponseBuilder::new(id, era).field("resourceTemplates", &resources::templates()).cacheable_for(HOUR_MS)
            }
            ("ping", ProtocolEra::Legacy) => ResponseBuilder::new(id, era),
            ("initialize", ProtocolEra::Legacy) => self.initialize(&request),
            ("logging/setLevel", ProtocolEra::Legacy) => self.set_level(&request)?,
            ("server/discover", ProtocolEra::Modern) => self.discover(&request),
            ("subscriptions/listen", ProtocolEra::Modern) => return self.subscribe(request, out),
            ("server/discover" | "subscriptions/listen", ProtocolEra::Legacy) => {
                return Err(RpcError::invalid_params(format!(
                    "{method} needs _meta with io.modelcontextprotocol/protocolVersion"
                )));
            }
            _ => return Err(RpcError::method_not_found(method)),
        };
        Ok(MessageResponse::Ready(ready.finish()))
    }

    /// Which era a request belongs to, and whether it may be asked now.
    fn parse_request<'a>(
        &self,
        id: RequestId,
        method: &'a str,
        mut params: RequestParams<'a>,
    ) -> Result<RpcRequest<'a>, RpcError> {
        let Some(version) = params.meta.version.take() else {
            let agreed = self.agreed();
            if agreed.revision.is_none() && !matches!(method, "initialize" | "ping" | "server/discover") {
                return Err(RpcError::invalid_request("not initialized: send an initialize request first"));
            }
            let NegotiatedState { elicits, roots, level, .. } = agreed;
            return Ok(RpcRequest { id, method, params, era: ProtocolEra::Legacy, elicits, roots, level });
        };
        if version != MODERN {
            return Err(revision::unsupported(&version));
        }
        if !params.meta.capabilities.as_ref().is_some_and(Value::is_object) {
            return Err(RpcError::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities, an object"));
        }
        let level = params.meta.level.as_deref().and_then(level);
        // In this revision a server asks with `input_required` results. Helve sends none.
        Ok(RpcRequest { id, method, params, era: ProtocolEra::Modern, elicits: false, roots: false, level })
    }

    fn initialize(&self, request: &RpcRequest<'_>) -> ResponseBuilder {
        let revision = revision::negotiate(request.params.protocol_version.as_deref().unwrap_or_default());
        let offered = |what: fn(&Value) -> bool| request.params.capabilities.as_ref().is_some_and(what);
        let (elicits, roots) = (offered(elicit::supports_elicitation), offered(roots::supports_roots));
        *self.lock() = NegotiatedState { revision: Some(revision), elicits, roots, level: None };
        let answer = ResponseBuilder::new(&request.id, request.era)
            .field("protocolVersion", revision)
            .field("capabilities", &self.server.capabilities())
            .field("serverInfo", &server_info());
        self.with_instructions(answer)
    }

    fn discover(&self, request: &RpcRequest<'_>) -> ResponseBuilder {
        let answer = ResponseBuilder::new(&request.id, request.era)
            .field("supportedVersions", &revision::supported())
            .field("capabilities", &self.server.capabilities())
            .cacheable_for(HOUR_MS);
        self.with_instructions(answer)
    }

    fn with_instructions(&self, answer: ResponseBuilder) -> ResponseBuilder {
        match &self.server.options.instructions {
            Some(advice) => answer.field("instructions", advice),
            None => answer,
        }
    }

    fn set_level(&self, request: &RpcRequest<'_>) -> Result<ResponseBuilder, RpcError> {
        let name = request.params.level.as_deref().unwrap_or_default();
        let level = level(name)
            .ok_or_else(|| RpcError::invalid_params(format!("level must be one of {}", LEVELS.join(", "))))?;
        self.lock().level = Some(level);
        Ok(ResponseBuilder::new(&request.id, request.era))
    }

    /// A subscription. Only tools change here; other subscriptions stay silent.
    fn subscribe(
        self: &Arc<Self>,
        request: RpcRequest<'_>,
        out: &Arc<dyn Outbox>,
    ) -> Result<MessageResponse, RpcError> {
        let seat = self.in_flight.begin(&request.id)?;
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": request.id });
        let wanted = request.params.notifications.is_some_and(|it| it["toolsListChanged"] == true);
        let params = json!({ "_meta": meta, "notifications": if wanted { json!({ "toolsListChanged": true }) } else { json!({}) } });
        out.send(answer::notification("notifications/subscriptions/acknowledged", &params));
        let (id, closing, out, mut news) =
            (request.id, self.closing.clone(), out.clone(), self.server.engine.tool_changes());
        let work = async move {
            loop {
                tokio::select! {
                    biased;
                    () = seat.token().cancelled() => return None,
                    () = closing.cancelled() => return Some(ResponseBuilder::new(&id, ProtocolEra::Modern).for_subscription(&id).finish()),
                    true = news.changed(), if wanted => {
                        out.send(answer::notification("notifications/tools/list_changed", &json!({ "_meta": meta })));
                    }
                }
            }
        };
        Ok(MessageResponse::Pending(work.boxed()))
    }

    fn resources(
        self: &Arc<Self>,
        request: RpcRequest<'_>,
        out: &Arc<dyn Outbox>,
    ) -> Result<MessageResponse, RpcError> {
        let seat = self.in_flight.begin(&request.id)?;
        let (id, era, roots) = (request.id, request.era, request.roots);
        let (peer, out) = (self.clone(), out.clone());
        let uri = match request.method {
            "resources/list" => None,
            _ => Some(request.params.uri.ok_or_else(|| RpcError::invalid_params("uri is missing"))?.into_owned()),
        };
        let work = async move {
            let session = peer.session(roots, &*out, &seat).await;
            let answer = match uri {
                None => resources::list(&peer.server, &session, &id, era).await,
                Some(uri) => resources::read(&peer.server, &session, (&id, era), &uri).await,
            };
            let message = answer.unwrap_or_else(|fault| answer::error(Some(&id), &fault));
            seat.complete().then_some(message)
        };
        Ok(MessageResponse::Pending(work.boxed()))
    }

    /// The session of a request, narrowed to the client's roots.
    async fn session(&self, roots: bool, out: &dyn Outbox, seat: &RequestGuard) -> Arc<Session> {
        if !roots {
            return self.server.session.clone();
        }
        self.client_roots.session(self, out, (seat.token(), &self.closing)).await
    }

    fn call(self: &Arc<Self>, request: RpcRequest<'_>, out: &Arc<dyn Outbox>) -> Result<MessageResponse, RpcError> {
        let name =
            request.params.name.as_deref().ok_or_else(|| RpcError::invalid_params("name is missing: which tool?"))?;
        let tool = self.server.engine.look_up(name).map_err(|error| unknown_tool_error(&error))?;
        let has_shape = call::output_schema(&tool.spec).is_some();
        let args = request.params.arguments.map_or("{}", RawValue::get).to_owned();
        let seat = self.in_flight.begin(&request.id)?;

        let steps = request.params.meta.progress_token.map(|token| ProgressReporter::new(token, out.clone()));
        let call = Call {
            cancel: seat.token().clone(),
            progress: steps.as_ref().map(ProgressReporter::listener),
            ..Call::new(McpService::next_call_id(), self.server.session.clone())
        };
        let job = ToolCallJob {
            name: name.to_owned(),
            args,
            call,
            steps,
            seat,
            peer: self.clone(),
            elicits: request.elicits,
            roots: request.roots,
            out: out.clone(),
            level: request.level,
        };
        let (id, era) = (request.id, request.era);
        Ok(MessageResponse::Pending(async move { job.run(&id, era, has_shape).await }.boxed()))
    }

    fn agreed(&self) -> NegotiatedState {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, NegotiatedState> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call on its way through the engine.
struct ToolCallJob {
    name: String,
    args: String,
    call: Call,
    steps: Option<Arc<ProgressReporter>>,
    seat: RequestGuard,
    peer: Arc<Peer>,
    /// Whether the client can ask its user.
    elicits: bool,
    /// Whether the client names its directories.
    roots: bool,
    out: Arc<dyn Outbox>,
    level: Option<usize>,
}

impl ToolCallJob {
    async fn run(mut self, id: &RequestId, era: ProtocolEra, has_shape: bool) -> Option<Vec<u8>> {
        let server = self.peer.server.clone();
        let turns = self.peer.call_slots.clone();
        let _turn = match turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) => tokio::select! {
                biased;
                turn = turns.acquire() => turn.ok()?,
                () = self.seat.token().cancelled() => return None,
            },
        };
        if self.roots {
            self.call.session = self.peer.session(true, &*self.out, &self.seat).await;
        }
        let approver = server.options.elicit.as_ref().filter(|_| self.elicits);
        let _desk = approver.map(|it| it.register(&self.call.id, self.peer.clone(), self.out.clone()));
        let reply = server.engine.run(&self.name, self.args, self.call).await;

        if let Some(steps) = &self.steps {
            steps.close();
        }
        if let Some(file) = &reply.spill_file {
            server.remember_spill(file);
        }
        if !self.seat.complete() {
            return None;
        }
        if self.level.is_some_and(|level| level <= INFO) {
            for note in reply.repairs.iter().chain(&reply.notes) {
                let params = json!({ "level": "info", "logger": "helve", "data": format!("{}: {note}", self.name) });
                self.out.send(answer::notification("notifications/message", &params));
            }
        }
        Some(call::result(id, era, &reply, has_shape))
    }
}

/// The levels of a log, the least important first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const INFO: usize = 1;

fn level(name: &str) -> Option<usize> {
    LEVELS.iter().position(|it| *it == name)
}

fn unknown_tool_error(error: &Error) -> RpcError {
    match error {
        Error::UnknownTool(hint) => RpcError::invalid_params(format!("Unknown tool: {hint}")),
        other => RpcError::invalid_params(other.to_string()),
    }
}

fn error_response(id: Option<&RequestId>, fault: &RpcError) -> MessageResponse {
    MessageResponse::Ready(answer::error(id, fault))
}
