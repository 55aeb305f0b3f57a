//! Handles POST messages: answers directly or as a stream.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde_json::value::RawValue;

use super::{
    body::{HttpRefusal, HttpReply, empty, events, json},
    door::single_header,
    session::HttpSession,
    stream::{EventStream, FirstMessage, StreamMode, StreamRequest},
};
use crate::{
    peer::{MessageResponse, Outbox, Peer},
    wire::{RequestId, RpcError, RpcMessage},
};

/// The header that names a session.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// How long a plain answer is awaited. Afterwards the client gets a stream, which shows activity.
const PLAIN_REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client wants to hear.
#[derive(Clone, Copy)]
pub(crate) struct AcceptedTypes {
    /// A plain answer, where that is all there is.
    json: bool,
    pub(crate) events: bool,
}

/// Whether a client that accepts both lists event streams first.
fn prefers_events(kinds: &[String]) -> bool {
    let place = |name: &str| kinds.iter().position(|it| it == name);
    place("text/event-stream").is_some_and(|events| place("application/json").is_none_or(|json| events < json))
}

impl AcceptedTypes {
    /// As the headers say. Who says nothing takes a plain answer.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, HttpRefusal> {
        let mut all = headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok()).peekable();
        if all.peek().is_none() {
            return Ok(Self { json: true, events: false });
        }
        let kinds: Vec<_> = all
            .flat_map(|it| it.split(','))
            .map(|it| it.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
            .collect();
        let has = |names: [&str; 3]| kinds.iter().any(|it| names.contains(&it.as_str()));
        let accepts = Self {
            json: has(["application/json", "application/*", "*/*"]) && !prefers_events(&kinds),
            events: has(["text/event-stream", "text/*", "*/*"]),
        };
        if accepts.json || accepts.events {
            return Ok(accepts);
        }
        let why = "Accept must name application/json and text/event-stream";
        Err(HttpRefusal::new(StatusCode::NOT_ACCEPTABLE, why))
    }
}

/// What came: one message, or several in an array.
pub(crate) struct PostBody {
    /// The requests in it.
    pub(crate) ids: Vec<RequestId>,
    /// Whether it is the request to shake hands.
    pub(crate) is_initialize: bool,
    pub(crate) is_batch: bool,
}

impl PostBody {
    /// Looks into a body as far as the transport has to.
    pub(crate) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, HttpRefusal> {
        let kind = single_header(headers, &CONTENT_TYPE)?.unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            return Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"));
        }
        let bad = |fault: RpcError| HttpRefusal::of(StatusCode::BAD_REQUEST, None, &fault);
        let text =
            std::str::from_utf8(body).map_err(|_| bad(RpcError::parse_error("not JSON: the message is not UTF-8")))?;
        if text.trim_start().starts_with('[') {
            let parts: Vec<&RawValue> =
                serde_json::from_str(text).map_err(|error| bad(RpcError::parse_error(format!("not JSON: {error}"))))?;
            // What is wrong with one of them is said in the answer to it.
            let ids = parts.iter().filter_map(|it| request(&RpcMessage::parse(it.get()).ok()?)).collect();
            return Ok(Self { ids, is_initialize: false, is_batch: true });
        }
        let message = RpcMessage::parse(text).map_err(bad)?;
        message.id().map_err(bad)?;
        let is_hello = message.method.as_deref() == Some("initialize");
        Ok(Self { ids: request(&message).into_iter().collect(), is_initialize: is_hello, is_batch: false })
    }
}

fn request(message: &RpcMessage<'_>) -> Option<RequestId> {
    message.method.as_ref()?;
    message.id().ok()?
}

/// A message on its way to a peer.
pub(crate) struct PostHandler<'a> {
    pub(crate) peer: &'a Arc<Peer>,
    /// The session, where there is one.
    pub(crate) session: Option<&'a Arc<HttpSession>>,
    pub(crate) accepts: AcceptedTypes,
    pub(crate) ids: Vec<RequestId>,
    pub(crate) grace: Duration,
}

impl PostHandler<'_> {
    /// Hands the message over and gives what is said to it.
    pub(crate) async fn handle(self, body: &[u8]) -> HttpReply {
        let (name, manner) =
            self.session.map_or((0, StreamMode::Unnumbered), |it| (it.next_stream_id(), it.stream_mode()));
        let errand = StreamRequest { peer: self.peer.clone(), ids: self.ids, grace: self.grace };
        let stream = EventStream::new(name, manner, Some(errand));
        let out: Arc<dyn Outbox> = match self.session {
            _ if self.accepts.events => stream.clone(),
            Some(session) => session.event_stream.clone(),
            None => Arc::new(NullOutbox),
        };
        let mut work = match self.peer.receive(body, &out) {
            MessageResponse::None => return empty(StatusCode::ACCEPTED),
            MessageResponse::Ready(answer) => {
                let status = status(manner, &answer);
                if self.accepts.json || status != StatusCode::OK {
                    return json(status, answer);
                }
                Box::pin(std::future::ready(Some(answer)))
            }
            MessageResponse::Pending(work) => work,
        };
        // Most calls are complete after the first poll; only the others need a task.
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => stream.finish(answer),
            Poll::Pending => {
                let stream = stream.clone();
                tokio::spawn(async move { stream.finish(work.await) });
            }
        }
        self.accepts.reply(stream, self.session).await
    }
}

impl AcceptedTypes {
    /// A plain answer if it comes soon and is complete; otherwise a stream.
    async fn reply(self, stream: Arc<EventStream>, session: Option<&Arc<HttpSession>>) -> HttpReply {
        let patience = if self.events { PLAIN_REPLY_TIMEOUT } else { Duration::MAX };
        // If the connection breaks during the wait, nobody can resume: no event had an id.
        let waiting = PlainReplyGuard(&stream);
        let first = stream.first(patience).await;
        std::mem::forget(waiting);
        match first {
            FirstMessage::Answer(answer) if self.json => json(StatusCode::OK, answer.into()),
            FirstMessage::Cancelled if self.json => empty(StatusCode::ACCEPTED),
            _ => {
                if let Some(session) = session {
                    session.retain(stream.clone());
                }
                events(stream.read(None))
            }
        }
    }
}

/// Somebody waits for a plain answer.
struct PlainReplyGuard<'a>(&'a EventStream);

impl Drop for PlainReplyGuard<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// An outbox that discards messages.
struct NullOutbox;

impl Outbox for NullOutbox {
    fn send(&self, _: Vec<u8>) {}
}

/// The newest revision also reports errors in the HTTP status.
fn status(manner: StreamMode, answer: &[u8]) -> StatusCode {
    #[derive(serde::Deserialize)]
    struct ErrorProbe {
        error: Option<Coded>,
    }
    #[derive(serde::Deserialize)]
    struct Coded {
        code: i32,
    }
    if manner != StreamMode::Unnumbered {
        return StatusCode::OK;
    }
    match serde_json::from_slice(answer) {
        Ok(ErrorProbe { error: Some(Coded { code: -32601 }) }) => StatusCode::NOT_FOUND,
        Ok(ErrorProbe { error: Some(Coded { code: -32700 | -32600 | -32022..=-32020 }) }) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Says which session a response belongs to.
pub(crate) fn with_session_header(mut reply: HttpReply, session: &HttpSession) -> HttpReply {
    if let Ok(id) = HeaderValue::from_str(&session.id) {
        reply.headers_mut().insert(SESSION_HEADER, id);
    }
    reply
}
