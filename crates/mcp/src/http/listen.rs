//! The HTTP listener: connections and requests.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode, body::Incoming, header::HeaderName, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OnceCell, Semaphore},
    task::yield_now,
    time::{interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    body::{HttpRefusal, HttpReply, empty, events},
    connections::{Connection, Connections, Place},
    door::{AccessControl, CallerId, is_loopback, single_header},
    mirror::{self, VERSION},
    options::{ExtraRoutes, HttpConfig, McpSessionFactory, RequestAccess},
    post::{AcceptedTypes, PostBody, PostHandler, SESSION_HEADER, with_session_header},
    session::{HttpSession, HttpSessions},
    stream::parse_event_id,
};
use crate::{
    peer::{MAX_CONCURRENT_CALLS, Peer},
    server::McpService,
    wire::{RequestParams, RpcError, RpcMessage, truncate_name},
};

/// The only path.
const MCP_PATH: &str = "/mcp";
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How long an authenticated client may take for the head of its next request, and between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How often sessions that nobody uses are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
const TOO_MANY_REQUESTS: &str = "too many requests are running; come back later";
/// How long we wait when the system has no descriptor left for another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves clients over HTTP until `stop` is done.
///
/// A listener that others can reach is refused without a token.
pub async fn serve_http(
    listener: TcpListener,
    rooms: Arc<dyn McpSessionFactory>,
    options: HttpConfig,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_http_with_routes(listener, rooms, None, options, stop).await
}

/// Like `serve_http`, with additional routes.
pub async fn serve_http_with_routes(
    listener: TcpListener,
    rooms: Arc<dyn McpSessionFactory>,
    routes: Option<Arc<dyn ExtraRoutes>>,
    options: HttpConfig,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let at = listener.local_addr()?;
    if options.tokens.is_empty() && !is_loopback(at.ip()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{at} can be reached from other machines: a token is needed"),
        ));
    }
    let desk = Arc::new(HttpServer {
        access: AccessControl::new(at, &options),
        sessions: HttpSessions::new(rooms.clone(), &options),
        request_slots: Arc::new(Semaphore::new(options.max_in_flight)),
        call_slots: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
        stateless: OnceCell::new(),
        closing: CancellationToken::new(),
        factory: rooms,
        routes,
        options,
    });
    let connections = Connections::new(desk.options.max_connections);
    let tasks = TaskTracker::new();
    let mut sweep = interval(SWEEP_INTERVAL.min(desk.options.idle_timeout).max(ACCEPT_RETRY_DELAY));
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = sweep.tick() => {
                let desk = desk.clone();
                tasks.spawn(async move { desk.sessions.sweep().await });
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    // Without a place the connection is closed at once.
                    if let Some(place) = connections.admit(from.ip().to_canonical()) {
                        tokio::spawn(serve_connection(desk.clone(), stream, place));
                        // Lets the new connection authenticate before the next one is accepted.
                        yield_now().await;
                    }
                }
                Err(_) => {
                    connections.make_room();
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listener);
    desk.drain(&connections).await;
    desk.sessions.close().await;
    if let Some(server) = desk.stateless.get() {
        desk.factory.close(server.clone()).await;
    }
    Ok(())
}

/// One connection, to its end.
async fn serve_connection(desk: Arc<HttpServer>, stream: TcpStream, place: Place) {
    // Answers are small and latency matters.
    _ = stream.set_nodelay(true);
    let client = &place.connection;
    let service = service_fn(|request| {
        let desk = desk.clone();
        async move {
            let _running = client.request();
            Ok::<_, Infallible>(desk.serve(request, client).await.unwrap_or_else(HttpRefusal::into_reply))
        }
    });
    // A connection that breaks is the client's own affair.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => {}
        () = client.expired(desk.options.head_timeout) => {}
        () = desk.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            _ = connection.await;
        }
    }
}

/// The state that requests share.
struct HttpServer {
    access: AccessControl,
    sessions: HttpSessions,
    /// Room for requests under way.
    request_slots: Arc<Semaphore>,
    /// Turns of calls without a session; a session has its own.
    call_slots: Arc<Semaphore>,
    /// What clients without a session share.
    stateless: OnceCell<Arc<McpService>>,
    /// Set at shutdown: running requests finish, and no new ones start.
    closing: CancellationToken,
    factory: Arc<dyn McpSessionFactory>,
    routes: Option<Arc<dyn ExtraRoutes>>,
    options: HttpConfig,
}

impl HttpServer {
    async fn serve(&self, request: Request<Incoming>, client: &Connection) -> Result<HttpReply, HttpRefusal> {
        let (mut head, body) = request.into_parts();
        if let Some(routes) = self.routes.as_ref().filter(|_| head.uri.path() != MCP_PATH) {
            let place = self.request_slots.try_acquire();
            let entrance = match &place {
                Ok(_) => self.access.classify(&head),
                Err(_) => RequestAccess::Refused(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS.to_owned()),
            };
            if entrance == RequestAccess::Authenticated {
                client.set_authenticated();
            }
            head.extensions.insert(client.clone());
            return Ok(routes.handle(Request::from_parts(head, body), entrance).await);
        }
        let caller = self.access.authorize(&head)?;
        client.set_authenticated();
        if head.uri.path() != MCP_PATH {
            return Err(HttpRefusal::new(StatusCode::NOT_FOUND, format!("nothing is here; ask at {MCP_PATH}")));
        }
        if head.method == Method::POST {
            return self.post(&head.headers, body, caller).await;
        }
        if (head.method != Method::GET && head.method != Method::DELETE) || mirror::names_modern_revision(&head.headers)
        {
            return Err(HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "messages come by POST"));
        }
        let session = self.session(&head.headers, &caller)?;
        if head.method == Method::DELETE {
            self.sessions.end(session).await;
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        open_event_stream(&head.headers, &session)
    }

    /// Waits for running requests until the timeout.
    async fn drain(&self, connections: &Connections) {
        self.closing.cancel();
        if self.options.drain_timeout.is_zero() {
            return;
        }
        self.sessions.close_event_streams();
        // The remaining ones are aborted.
        _ = timeout(self.options.drain_timeout, connections.all_ended()).await;
    }

    async fn post(&self, headers: &HeaderMap, body: Incoming, caller: CallerId) -> Result<HttpReply, HttpRefusal> {
        let accepts = AcceptedTypes::read(headers)?;
        let busy = |_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS);
        let _place = self.request_slots.try_acquire().map_err(busy)?;
        let body = self.read_body(body).await?;
        let letter = PostBody::read(headers, &body)?;

        if is_stateless(headers, &body, &letter) {
            return self.stateless(headers, &body, letter, accepts).await;
        }
        let grace = self.options.reconnect_grace;
        if letter.is_initialize && !headers.contains_key(SESSION_HEADER) {
            let session = self.sessions.open(caller).await?;
            let post = PostHandler { peer: &session.peer, session: Some(&session), accepts, ids: letter.ids, grace };
            let reply = post.handle(&body).await;
            if session.peer.revision().is_none() {
                self.sessions.end(session).await;
                return Ok(reply);
            }
            self.sessions.register(session.clone());
            return Ok(with_session_header(reply, &session));
        }
        let session = self.session(headers, &caller)?;
        let post = PostHandler { peer: &session.peer, session: Some(&session), accepts, ids: letter.ids, grace };
        Ok(post.handle(&body).await)
    }

    /// A request that stands for itself.
    async fn stateless(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        letter: PostBody,
        accepts: AcceptedTypes,
    ) -> Result<HttpReply, HttpRefusal> {
        let bad = |fault: RpcError| HttpRefusal::of(StatusCode::BAD_REQUEST, letter.ids.first(), &fault);
        if letter.is_batch {
            return Err(bad(RpcError::invalid_request("one message at a time: this revision has no batches")));
        }
        let server = self.stateless.get_or_try_init(|| self.factory.open()).await;
        let server = server.map_err(|it| HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, it.to_string()))?;
        let text = std::str::from_utf8(body).unwrap_or_default();
        if let Ok(RpcMessage { method: Some(method), params, id: Some(_), .. }) = RpcMessage::parse(text) {
            mirror::check_headers(headers, &method, params, server).map_err(bad)?;
        }
        let peer = Peer::with_call_slots(server.clone(), self.call_slots.clone());
        let post = PostHandler { peer: &peer, session: None, accepts, ids: letter.ids, grace: Duration::ZERO };
        Ok(post.handle(body).await)
    }

    /// The session that a request names.
    fn session(&self, headers: &HeaderMap, caller: &CallerId) -> Result<Arc<HttpSession>, HttpRefusal> {
        let Some(id) = single_header(headers, &SESSION_HEADER)? else {
            let why = "Mcp-Session-Id is missing: send an initialize request first";
            return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, why));
        };
        let gone = || HttpRefusal::new(StatusCode::NOT_FOUND, "there is no such session; initialize a new one");
        self.sessions.find(id, caller).ok_or_else(gone)
    }

    /// The body, as far as there is room for it.
    async fn read_body(&self, body: Incoming) -> Result<Bytes, HttpRefusal> {
        let most = self.options.max_body_bytes;
        match timeout(BODY_TIMEOUT, Limited::new(body, most).collect()).await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a message has {most} bytes at most")))
            }
            Ok(Err(_)) => Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "the body broke off")),
            Err(_) => Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        }
    }
}

/// Whether a request uses the newest revision, by its header or its content.
fn is_stateless(headers: &HeaderMap, body: &[u8], letter: &PostBody) -> bool {
    if mirror::names_modern_revision(headers) {
        return true;
    }
    if letter.is_batch || headers.contains_key(VERSION) || headers.contains_key(SESSION_HEADER) {
        return false;
    }
    let text = std::str::from_utf8(body).unwrap_or_default();
    let params = RpcMessage::parse(text).ok().and_then(|it| it.params);
    RequestParams::read(params).is_ok_and(|it| it.meta.version.is_some())
}

/// The stream of what is no answer, or the rest of one that broke off.
fn open_event_stream(headers: &HeaderMap, session: &Arc<HttpSession>) -> Result<HttpReply, HttpRefusal> {
    if !AcceptedTypes::read(headers)?.events {
        return Err(HttpRefusal::new(StatusCode::NOT_ACCEPTABLE, "Accept must name text/event-stream"));
    }
    let Some(event) = single_header(headers, &LAST_EVENT)? else {
        return Ok(with_session_header(events(session.event_stream.read(None)), session));
    };
    let found = parse_event_id(event).and_then(|(stream, number)| Some((session.stream(stream)?, number)));
    let Some((stream, number)) = found else {
        let why = format!("Last-Event-ID {} is none of this session", truncate_name(event));
        return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, why));
    };
    Ok(with_session_header(events(stream.read(Some(number))), session))
}
