//! One client: what was agreed with it, what it has asked for, and what it is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{FutureExt, future::BoxFuture};
use helve_contract::{Call, CancellationToken, Error, Session};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::Semaphore;

use crate::{
    answer::{self, Answer, us},
    call,
    elicit::{self, Asks},
    fixtures,
    flight::{Flight, Seat},
    progress::Steps,
    resources,
    revision::{self, Era, MODERN},
    roots::{self, Narrowing},
    server::Server,
    wire::{Fault, Id, Message, Params},
};

/// Calls of one client that run at the same time; others wait for their turn.
pub(crate) const AT_ONCE: usize = 64;
/// Messages in one array.
const LONGEST_BATCH: usize = 1000;
/// How long a client may keep a list of what lasts as long as we do.
const HOUR: u32 = 3_600_000;
/// The same for tools: some come from servers that may change them.
const MINUTE: u32 = 60_000;

/// The way back to a client. One message at a time, whole, in the order of sending.
pub trait Outbox: Send + Sync {
    /// Sends one message. Where the client is gone, nothing happens.
    fn send(&self, message: Vec<u8>);

    /// Lets the client come back for the rest, where it can.
    fn pause(&self) {}
}

/// What comes of a message.
pub enum Handled {
    /// Nothing is answered.
    Nothing,
    /// The answer, ready to be sent.
    Now(Vec<u8>),
    /// The answer will come. Poll it once before giving it to a runtime: most are ready.
    Later(Work),
}

/// An answer that takes a while; `None` if the client gave up on it. Dropping it gives up on it too.
pub type Work = BoxFuture<'static, Option<Vec<u8>>>;

/// One client of a server.
pub struct Peer {
    pub(crate) server: Arc<Server>,
    pub(crate) asks: Asks,
    agreed: Mutex<Agreed>,
    narrowing: Narrowing,
    pub(crate) flight: Arc<Flight>,
    turns: Arc<Semaphore>,
    /// Set when no more messages come: streams of changes end, calls may finish.
    closing: CancellationToken,
}

/// What was agreed at the handshake, where there was one.
#[derive(Clone, Copy, Default)]
struct Agreed {
    revision: Option<&'static str>,
    elicits: bool,
    roots: bool,
    level: Option<usize>,
}

/// A request with all that is known about it.
struct Request<'a> {
    id: Id,
    method: &'a str,
    params: Params<'a>,
    era: Era,
    elicits: bool,
    roots: bool,
    level: Option<usize>,
}

impl Request<'_> {
    fn for_fixtures(&self, params: Option<&RawValue>) -> fixtures::Asked {
        fixtures::Asked {
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
    pub fn new(server: Arc<Server>) -> Arc<Self> {
        Self::sharing(server, Arc::new(Semaphore::new(AT_ONCE)))
    }

    /// A client that waits for the same turns as others.
    pub(crate) fn sharing(server: Arc<Server>, turns: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            server,
            asks: Asks::default(),
            agreed: Mutex::default(),
            narrowing: Narrowing::default(),
            flight: Arc::default(),
            turns,
            closing: CancellationToken::new(),
        })
    }

    /// Takes one message from the client. What is to be said before the answer goes to `out`.
    pub fn receive(self: &Arc<Self>, message: &[u8], out: &Arc<dyn Outbox>) -> Handled {
        let Ok(text) = std::str::from_utf8(message) else {
            return refused(None, &Fault::parse("not JSON: the message is not UTF-8"));
        };
        if text.trim_start().starts_with('[') { self.batch(text, out) } else { self.single(text, out) }
    }

    /// No more messages come from the client; it may still wait for answers.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// The client is gone: nobody waits for its calls any more.
    pub fn hang_up(&self) {
        self.close();
        self.flight.cancel_all();
        self.asks.forget_all();
    }

    /// The client gives up on a request.
    pub(crate) fn cancel(&self, id: &Id) {
        self.flight.cancel(id);
    }

    /// Whether any of its requests is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.flight.is_empty()
    }

    /// The tools have changed: a client that has shaken hands is told.
    pub(crate) fn tell_of_tools(&self, out: &dyn Outbox) {
        if self.agreed().revision.is_some() {
            out.send(answer::notification("notifications/tools/list_changed", &json!({})));
        }
    }

    /// Tells of every change of the tools from now on, for as long as it is polled.
    pub(crate) fn follow_tools(self: Arc<Self>, out: Arc<dyn Outbox>) -> impl Future<Output = ()> {
        // Not only when it is polled first: what changes until then would go untold.
        let mut news = self.server.engine.news();
        async move {
            while news.changed().await {
                self.tell_of_tools(&*out);
            }
        }
    }

    /// The revision that was agreed on at the handshake.
    pub(crate) fn revision(&self) -> Option<&'static str> {
        self.agreed().revision
    }

    /// An array of messages, as the older revisions have them: answered with an array.
    fn batch(self: &Arc<Self>, text: &str, out: &Arc<dyn Outbox>) -> Handled {
        let messages: Vec<&RawValue> = match serde_json::from_str(text) {
            Ok(messages) => messages,
            Err(error) => return refused(None, &Fault::parse(format!("not JSON: {error}"))),
        };
        if self.agreed().revision.is_none_or(|it| !revision::has_batches(it)) {
            return refused(None, &Fault::request("one message at a time: this revision has no batches"));
        }
        if messages.is_empty() || messages.len() > LONGEST_BATCH {
            return refused(None, &Fault::request(format!("a batch has between 1 and {LONGEST_BATCH} messages")));
        }

        let parts: Vec<_> = messages.into_iter().map(|it| self.single(it.get(), out)).collect();
        let works = parts.into_iter().map(|part| match part {
            Handled::Nothing => futures::future::ready(None).boxed(),
            Handled::Now(answer) => futures::future::ready(Some(answer)).boxed(),
            Handled::Later(work) => work,
        });
        let all = futures::future::join_all(works);
        Handled::Later(async move { answer::batch(all.await.into_iter().flatten().collect()) }.boxed())
    }

    fn single(self: &Arc<Self>, text: &str, out: &Arc<dyn Outbox>) -> Handled {
        let message = match Message::read(text) {
            Ok(message) => message,
            Err(fault) => return refused(None, &fault),
        };
        let id = match message.id() {
            Ok(id) => id,
            Err(fault) => return refused(None, &fault),
        };
        match (message.method.as_deref(), id) {
            (Some(method), Some(id)) => {
                self.request(id.clone(), method, message.params, out).unwrap_or_else(|fault| refused(Some(&id), &fault))
            }
            (Some(method), None) => {
                self.notice(method, message.params);
                Handled::Nothing
            }
            (None, Some(Id::Text(id))) if message.result.is_some() || message.error.is_some() => {
                self.asks.settle(&id, message.result);
                Handled::Nothing
            }
            // An answer to a question that was never ours, or an error without an id: nobody waits for it.
            (None, _) if message.result.is_some() || message.error.is_some() => Handled::Nothing,
            (None, id) => {
                refused(id.as_ref(), &Fault::request("neither a request nor an answer: \"method\" is missing"))
            }
        }
    }

    fn notice(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/cancelled" => {
                if let Ok(Params { request_id: Some(id), .. }) = Params::read(params) {
                    self.flight.cancel(&id);
                }
            }
            "notifications/roots/list_changed" => self.narrowing.forget(),
            _ => {}
        }
    }

    fn request(
        self: &Arc<Self>,
        id: Id,
        method: &str,
        params: Option<&RawValue>,
        out: &Arc<dyn Outbox>,
    ) -> Result<Handled, Fault> {
        let request = self.understood(id, method, Params::read(params)?)?;
        if self.server.has_fixtures()
            && let Some(handled) = fixtures::handle(self, request.for_fixtures(params), out)
        {
            return handled;
        }
        let (id, era) = (&request.id, request.era);
        let ready = match (method, era) {
            ("tools/call", _) => return self.call(request, out),
            ("tools/list", _) => Answer::to(id, era).raw("tools", &self.server.tools()).fresh_for(MINUTE),
            // No prompts are offered; a client that asks all the same is told so in a form that it knows.
            ("prompts/list", _) => Answer::to(id, era).raw("prompts", "[]").fresh_for(HOUR),
            ("resources/list" | "resources/read", _) if !self.server.options.without_resources => {
                return self.resources(request, out);
            }
            ("resources/templates/list", _) if !self.server.options.without_resources => {
                Answer::to(id, era).field("resourceTemplates", &resources::templates()).fresh_for(HOUR)
            }
            ("ping", Era::Legacy) => Answer::to(id, era),
            ("initialize", Era::Legacy) => self.initialize(&request),
            ("logging/setLevel", Era::Legacy) => self.set_level(&request)?,
            ("server/discover", Era::Modern) => self.discover(&request),
            ("subscriptions/listen", Era::Modern) => return self.listen(request, out),
            ("server/discover" | "subscriptions/listen", Era::Legacy) => {
                return Err(Fault::params(format!(
                    "{method} needs _meta with io.modelcontextprotocol/protocolVersion"
                )));
            }
            _ => return Err(Fault::method(method)),
        };
        Ok(Handled::Now(ready.done()))
    }

    /// Which era a request belongs to, and whether it may be asked now.
    fn understood<'a>(&self, id: Id, method: &'a str, mut params: Params<'a>) -> Result<Request<'a>, Fault> {
        let Some(version) = params.meta.version.take() else {
            let agreed = self.agreed();
            if agreed.revision.is_none() && !matches!(method, "initialize" | "ping" | "server/discover") {
                return Err(Fault::request("not initialized: send an initialize request first"));
            }
            let Agreed { elicits, roots, level, .. } = agreed;
            return Ok(Request { id, method, params, era: Era::Legacy, elicits, roots, level });
        };
        if version != MODERN {
            return Err(revision::unsupported(&version));
        }
        if !params.meta.capabilities.as_ref().is_some_and(Value::is_object) {
            return Err(Fault::params("_meta needs io.modelcontextprotocol/clientCapabilities, an object"));
        }
        let level = params.meta.level.as_deref().and_then(level);
        // In this revision a server asks with `input_required` results. Helve sends none, so nobody is asked.
        Ok(Request { id, method, params, era: Era::Modern, elicits: false, roots: false, level })
    }

    fn initialize(&self, request: &Request<'_>) -> Answer {
        let revision = revision::agreed(request.params.protocol_version.as_deref().unwrap_or_default());
        let offered = |what: fn(&Value) -> bool| request.params.capabilities.as_ref().is_some_and(what);
        let (elicits, roots) = (offered(elicit::is_offered), offered(roots::are_offered));
        *self.lock() = Agreed { revision: Some(revision), elicits, roots, level: None };
        let answer = Answer::to(&request.id, request.era)
            .field("protocolVersion", revision)
            .field("capabilities", &self.server.capabilities())
            .field("serverInfo", &us());
        self.advised(answer)
    }

    fn discover(&self, request: &Request<'_>) -> Answer {
        let answer = Answer::to(&request.id, request.era)
            .field("supportedVersions", &revision::all())
            .field("capabilities", &self.server.capabilities())
            .fresh_for(HOUR);
        self.advised(answer)
    }

    fn advised(&self, answer: Answer) -> Answer {
        match &self.server.options.instructions {
            Some(advice) => answer.field("instructions", advice),
            None => answer,
        }
    }

    fn set_level(&self, request: &Request<'_>) -> Result<Answer, Fault> {
        let name = request.params.level.as_deref().unwrap_or_default();
        let level = level(name).ok_or_else(|| Fault::params(format!("level must be one of {}", LEVELS.join(", "))))?;
        self.lock().level = Some(level);
        Ok(Answer::to(&request.id, request.era))
    }

    /// A stream of changes. Tools are all that changes here; whoever wants to hear of nothing else hears nothing.
    fn listen(self: &Arc<Self>, request: Request<'_>, out: &Arc<dyn Outbox>) -> Result<Handled, Fault> {
        let seat = self.flight.enter(&request.id)?;
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": request.id });
        let wanted = request.params.notifications.is_some_and(|it| it["toolsListChanged"] == true);
        let params = json!({ "_meta": meta, "notifications": if wanted { json!({ "toolsListChanged": true }) } else { json!({}) } });
        out.send(answer::notification("notifications/subscriptions/acknowledged", &params));
        let (id, closing, out, mut news) = (request.id, self.closing.clone(), out.clone(), self.server.engine.news());
        let work = async move {
            loop {
                tokio::select! {
                    biased;
                    () = seat.token().cancelled() => return None,
                    () = closing.cancelled() => return Some(Answer::to(&id, Era::Modern).about(&id).done()),
                    true = news.changed(), if wanted => {
                        out.send(answer::notification("notifications/tools/list_changed", &json!({ "_meta": meta })));
                    }
                }
            }
        };
        Ok(Handled::Later(work.boxed()))
    }

    fn resources(self: &Arc<Self>, request: Request<'_>, out: &Arc<dyn Outbox>) -> Result<Handled, Fault> {
        let seat = self.flight.enter(&request.id)?;
        let (id, era, roots) = (request.id, request.era, request.roots);
        let (peer, out) = (self.clone(), out.clone());
        let uri = match request.method {
            "resources/list" => None,
            _ => Some(request.params.uri.ok_or_else(|| Fault::params("uri is missing"))?.into_owned()),
        };
        let work = async move {
            let session = peer.session(roots, &*out, &seat).await;
            let answer = match uri {
                None => resources::list(&peer.server, &session, &id, era).await,
                Some(uri) => resources::read(&peer.server, &session, (&id, era), &uri).await,
            };
            let message = answer.unwrap_or_else(|fault| answer::error(Some(&id), &fault));
            seat.land().then_some(message)
        };
        Ok(Handled::Later(work.boxed()))
    }

    /// The session that a request runs in: narrowed, where the client names its folders.
    async fn session(&self, roots: bool, out: &dyn Outbox, seat: &Seat) -> Arc<Session> {
        if !roots {
            return self.server.session.clone();
        }
        self.narrowing.session(self, out, (seat.token(), &self.closing)).await
    }

    fn call(self: &Arc<Self>, request: Request<'_>, out: &Arc<dyn Outbox>) -> Result<Handled, Fault> {
        let name = request.params.name.as_deref().ok_or_else(|| Fault::params("name is missing: which tool?"))?;
        let tool = self.server.engine.look_up(name).map_err(|error| no_tool(&error))?;
        let has_shape = call::shape(&tool.spec).is_some();
        let args = request.params.arguments.map_or("{}", RawValue::get).to_owned();
        let seat = self.flight.enter(&request.id)?;

        let steps = request.params.meta.progress_token.map(|token| Steps::new(token, out.clone()));
        let call = Call {
            cancel: seat.token().clone(),
            progress: steps.as_ref().map(Steps::listener),
            ..Call::new(Server::next_call(), self.server.session.clone())
        };
        let job = Job {
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
        Ok(Handled::Later(async move { job.run(&id, era, has_shape).await }.boxed()))
    }

    fn agreed(&self) -> Agreed {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call on its way through the engine.
struct Job {
    name: String,
    args: String,
    call: Call,
    steps: Option<Arc<Steps>>,
    seat: Seat,
    peer: Arc<Peer>,
    /// Whether the client can ask its user.
    elicits: bool,
    /// Whether the client names its folders.
    roots: bool,
    out: Arc<dyn Outbox>,
    level: Option<usize>,
}

impl Job {
    async fn run(mut self, id: &Id, era: Era, has_shape: bool) -> Option<Vec<u8>> {
        let server = self.peer.server.clone();
        let turns = self.peer.turns.clone();
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
        let _desk = approver.map(|it| it.seat(&self.call.id, self.peer.clone(), self.out.clone()));
        let reply = server.engine.run(&self.name, self.args, self.call).await;

        if let Some(steps) = &self.steps {
            steps.close();
        }
        if let Some(file) = &reply.spill {
            server.spilled(file);
        }
        if !self.seat.land() {
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

fn no_tool(error: &Error) -> Fault {
    match error {
        Error::UnknownTool(hint) => Fault::params(format!("Unknown tool: {hint}")),
        other => Fault::params(other.to_string()),
    }
}

fn refused(id: Option<&Id>, fault: &Fault) -> Handled {
    Handled::Now(answer::error(id, fault))
}
