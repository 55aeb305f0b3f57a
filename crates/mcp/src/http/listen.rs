//! The listener: connections, and what is asked over them.

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
    body::{Refusal, Reply, empty, events},
    connections::{Connection, Connections, Place},
    door::{Caller, Door, is_loopback, only},
    mirror::{self, VERSION},
    options::{Entrance, HttpOptions, Rooms, Routes},
    post::{Accepts, Letter, Post, SESSION, named},
    session::{Session, Sessions},
    stream::place,
};
use crate::{
    peer::{AT_ONCE, Peer},
    server::Server,
    wire::{Fault, Message, Params, short},
};

/// The only address there is.
const PATH: &str = "/mcp";
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How long an authenticated client may take for the head of its next request, and between two requests.
const HEAD: Duration = Duration::from_secs(75);
const BODY: Duration = Duration::from_secs(60);
/// Bytes of the head of a request.
const LONGEST_HEAD: usize = 64 << 10;
/// How often sessions that nobody uses are looked for.
const SWEEP: Duration = Duration::from_secs(30);
const BUSY: &str = "too many requests are running; come back later";
/// How long we wait when the system has no descriptor left for another connection.
const BREATH: Duration = Duration::from_millis(50);

/// Serves clients over HTTP until `stop` is done.
///
/// A listener that others can reach is refused without a token.
pub async fn serve_http(
    listener: TcpListener,
    rooms: Arc<dyn Rooms>,
    options: HttpOptions,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_http_beside(listener, rooms, None, options, stop).await
}

/// The same, with further addresses on the listener.
pub async fn serve_http_beside(
    listener: TcpListener,
    rooms: Arc<dyn Rooms>,
    routes: Option<Arc<dyn Routes>>,
    options: HttpOptions,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let at = listener.local_addr()?;
    if options.tokens.is_empty() && !is_loopback(at.ip()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{at} can be reached from other machines: a token is needed"),
        ));
    }
    let desk = Arc::new(Desk {
        door: Door::new(at, &options),
        sessions: Sessions::new(rooms.clone(), &options),
        places: Arc::new(Semaphore::new(options.in_flight)),
        turns: Arc::new(Semaphore::new(AT_ONCE)),
        stateless: OnceCell::new(),
        closing: CancellationToken::new(),
        rooms,
        routes,
        options,
    });
    let connections = Connections::new(desk.options.connections);
    let tasks = TaskTracker::new();
    let mut sweep = interval(SWEEP.min(desk.options.idle).max(BREATH));
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
                        tokio::spawn(talk(desk.clone(), stream, place));
                        // The new connection gets a turn before the next one is accepted: it may authenticate now.
                        yield_now().await;
                    }
                }
                Err(_) => {
                    connections.make_room();
                    sleep(BREATH).await;
                }
            },
        }
    }
    drop(listener);
    desk.drain(&connections).await;
    desk.sessions.close().await;
    if let Some(server) = desk.stateless.get() {
        desk.rooms.close(server.clone()).await;
    }
    Ok(())
}

/// One connection, to its end.
async fn talk(desk: Arc<Desk>, stream: TcpStream, place: Place) {
    // Answers are small and somebody waits for each.
    _ = stream.set_nodelay(true);
    let client = &place.connection;
    let service = service_fn(|request| {
        let desk = desk.clone();
        async move {
            let _running = client.request();
            Ok::<_, Infallible>(desk.serve(request, client).await.unwrap_or_else(Refusal::reply))
        }
    });
    // A connection that breaks is the client's own affair.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(LONGEST_HEAD)
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

/// All that a request needs.
struct Desk {
    door: Door,
    sessions: Sessions,
    /// Room for requests under way.
    places: Arc<Semaphore>,
    /// Turns of calls without a session; a session has its own.
    turns: Arc<Semaphore>,
    /// What clients without a session share.
    stateless: OnceCell<Arc<Server>>,
    /// Set when the server is to end: what is under way is finished, and nothing new is begun.
    closing: CancellationToken,
    rooms: Arc<dyn Rooms>,
    routes: Option<Arc<dyn Routes>>,
    options: HttpOptions,
}

impl Desk {
    async fn serve(&self, request: Request<Incoming>, client: &Connection) -> Result<Reply, Refusal> {
        let (mut head, body) = request.into_parts();
        if let Some(routes) = self.routes.as_ref().filter(|_| head.uri.path() != PATH) {
            let place = self.places.try_acquire();
            let entrance = match &place {
                Ok(_) => self.door.entrance(&head),
                Err(_) => Entrance::Refused(StatusCode::SERVICE_UNAVAILABLE, BUSY.to_owned()),
            };
            if entrance == Entrance::Known {
                client.set_authenticated();
            }
            head.extensions.insert(client.clone());
            return Ok(routes.answer(Request::from_parts(head, body), entrance).await);
        }
        let caller = self.door.enter(&head)?;
        client.set_authenticated();
        if head.uri.path() != PATH {
            return Err(Refusal::new(StatusCode::NOT_FOUND, format!("nothing is here; ask at {PATH}")));
        }
        if head.method == Method::POST {
            return self.post(&head.headers, body, caller).await;
        }
        if (head.method != Method::GET && head.method != Method::DELETE) || mirror::is_modern(&head.headers) {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "messages come by POST"));
        }
        let session = self.session(&head.headers, &caller)?;
        if head.method == Method::DELETE {
            self.sessions.end(session).await;
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        listen(&head.headers, &session)
    }

    /// Lets requests under way come to their end, as long as there is time.
    async fn drain(&self, connections: &Connections) {
        self.closing.cancel();
        if self.options.drain.is_zero() {
            return;
        }
        self.sessions.hush();
        // Whoever has not come to an end by now is cut off.
        _ = timeout(self.options.drain, connections.all_ended()).await;
    }

    async fn post(&self, headers: &HeaderMap, body: Incoming, caller: Caller) -> Result<Reply, Refusal> {
        let accepts = Accepts::read(headers)?;
        let busy = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY);
        let _place = self.places.try_acquire().map_err(busy)?;
        let body = self.whole(body).await?;
        let letter = Letter::read(headers, &body)?;

        if is_modern(headers, &body, &letter) {
            return self.stateless(headers, &body, letter, accepts).await;
        }
        let grace = self.options.grace;
        if letter.is_hello && !headers.contains_key(SESSION) {
            let session = self.sessions.open(caller).await?;
            let post = Post { peer: &session.peer, session: Some(&session), accepts, ids: letter.ids, grace };
            let reply = post.deliver(&body).await;
            if session.peer.revision().is_none() {
                self.sessions.end(session).await;
                return Ok(reply);
            }
            self.sessions.admit(session.clone());
            return Ok(named(reply, &session));
        }
        let session = self.session(headers, &caller)?;
        let post = Post { peer: &session.peer, session: Some(&session), accepts, ids: letter.ids, grace };
        Ok(post.deliver(&body).await)
    }

    /// A request that stands for itself.
    async fn stateless(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        letter: Letter,
        accepts: Accepts,
    ) -> Result<Reply, Refusal> {
        let bad = |fault: Fault| Refusal::of(StatusCode::BAD_REQUEST, letter.ids.first(), &fault);
        if letter.is_batch {
            return Err(bad(Fault::request("one message at a time: this revision has no batches")));
        }
        let server = self.stateless.get_or_try_init(|| self.rooms.open()).await;
        let server = server.map_err(|it| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, it.to_string()))?;
        let text = std::str::from_utf8(body).unwrap_or_default();
        if let Ok(Message { method: Some(method), params, id: Some(_), .. }) = Message::read(text) {
            mirror::check(headers, &method, params, server).map_err(bad)?;
        }
        let peer = Peer::sharing(server.clone(), self.turns.clone());
        let post = Post { peer: &peer, session: None, accepts, ids: letter.ids, grace: Duration::ZERO };
        Ok(post.deliver(body).await)
    }

    /// The session that a request names.
    fn session(&self, headers: &HeaderMap, caller: &Caller) -> Result<Arc<Session>, Refusal> {
        let Some(id) = only(headers, &SESSION)? else {
            let why = "Mcp-Session-Id is missing: send an initialize request first";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
        };
        let gone = || Refusal::new(StatusCode::NOT_FOUND, "there is no such session; initialize a new one");
        self.sessions.find(id, caller).ok_or_else(gone)
    }

    /// The body, as far as there is room for it.
    async fn whole(&self, body: Incoming) -> Result<Bytes, Refusal> {
        let most = self.options.body;
        match timeout(BODY, Limited::new(body, most).collect()).await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a message has {most} bytes at most")))
            }
            Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the body broke off")),
            Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        }
    }
}

/// Whether a request speaks the newest revision, by its header or by itself.
fn is_modern(headers: &HeaderMap, body: &[u8], letter: &Letter) -> bool {
    if mirror::is_modern(headers) {
        return true;
    }
    if letter.is_batch || headers.contains_key(VERSION) || headers.contains_key(SESSION) {
        return false;
    }
    let text = std::str::from_utf8(body).unwrap_or_default();
    let params = Message::read(text).ok().and_then(|it| it.params);
    Params::read(params).is_ok_and(|it| it.meta.version.is_some())
}

/// The stream of what is no answer, or the rest of one that broke off.
fn listen(headers: &HeaderMap, session: &Arc<Session>) -> Result<Reply, Refusal> {
    if !Accepts::read(headers)?.events {
        return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, "Accept must name text/event-stream"));
    }
    let Some(event) = only(headers, &LAST_EVENT)? else {
        return Ok(named(events(session.general.read(None)), session));
    };
    let found = place(event).and_then(|(stream, number)| Some((session.stream(stream)?, number)));
    let Some((stream, number)) = found else {
        let why = format!("Last-Event-ID {} is none of this session", short(event));
        return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
    };
    Ok(named(events(stream.read(Some(number))), session))
}
