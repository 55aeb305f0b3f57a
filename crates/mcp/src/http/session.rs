//! Sessions of clients after the handshake, each with a random id, until they end or expire.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::StatusCode;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};

use super::{
    body::HttpRefusal,
    door::CallerId,
    options::{HttpConfig, McpSessionFactory},
    stream::{EventStream, StreamMode},
};
use crate::peer::Peer;

/// The number of finished streams kept for resumption.
const RETAINED_STREAMS: usize = 16;
/// A session used within this time is not evicted.
const MIN_IDLE: Duration = Duration::from_secs(10);

/// One client that has shaken hands.
pub(crate) struct HttpSession {
    /// Its name.
    pub(crate) id: String,
    caller: CallerId,
    pub(crate) peer: Arc<Peer>,
    /// What is not part of any answer.
    pub(crate) event_stream: Arc<EventStream>,
    streams: Mutex<VecDeque<Arc<EventStream>>>,
    names: AtomicU64,
    last_used: Mutex<Instant>,
    /// Forwards tool changes while the session lasts.
    change_notifier: AbortHandle,
    _room: OwnedSemaphorePermit,
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        self.change_notifier.abort();
    }
}

impl HttpSession {
    /// A name for a new stream.
    pub(crate) fn next_stream_id(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers a stream, so that its client can go on reading it.
    pub(crate) fn retain(&self, stream: Arc<EventStream>) {
        let mut streams = lock(&self.streams);
        streams.push_back(stream);
        let mut over = streams.iter().filter(|it| it.is_over()).count();
        streams.retain(|it| {
            let goes = over > RETAINED_STREAMS && it.is_over();
            over -= usize::from(goes);
            !goes
        });
    }

    /// A stream by its name.
    pub(crate) fn stream(&self, name: u64) -> Option<Arc<EventStream>> {
        if name == self.event_stream.name {
            return Some(self.event_stream.clone());
        }
        lock(&self.streams).iter().find(|it| it.name == name).cloned()
    }

    /// Whether events are numbered, according to the negotiated revision.
    pub(crate) fn stream_mode(&self) -> StreamMode {
        match self.peer.revision() {
            Some(revision) if revision >= "2025-11-25" => StreamMode::Primed,
            _ => StreamMode::Numbered,
        }
    }

    fn is_busy(&self) -> bool {
        self.peer.is_busy() || self.event_stream.is_read() || lock(&self.streams).iter().any(|it| it.is_read())
    }

    fn idle(&self) -> Duration {
        if self.is_busy() { Duration::ZERO } else { lock(&self.last_used).elapsed() }
    }

    fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }
}

/// All clients that have shaken hands.
pub(crate) struct HttpSessions {
    rooms: Arc<dyn McpSessionFactory>,
    open: Mutex<HashMap<String, Arc<HttpSession>>>,
    places: Arc<Semaphore>,
    idle: Duration,
}

impl HttpSessions {
    pub(crate) fn new(rooms: Arc<dyn McpSessionFactory>, options: &HttpConfig) -> Self {
        let places = Arc::new(Semaphore::new(options.max_sessions));
        Self { rooms, open: Mutex::default(), places, idle: options.idle_timeout }
    }

    /// Opens a session; evicts the longest unused one if needed.
    pub(crate) async fn open(&self, caller: CallerId) -> Result<Arc<HttpSession>, HttpRefusal> {
        let room = match self.places.clone().try_acquire_owned() {
            Ok(room) => room,
            Err(_) => {
                self.evict_idle().await;
                self.places.clone().try_acquire_owned().map_err(|_| {
                    HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many sessions; end one, or come back later")
                })?
            }
        };
        let broken = |error: io::Error| HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let id = random_id().map_err(broken)?;
        let server = self.rooms.open().await.map_err(broken)?;
        let (peer, general) = (Peer::new(server), EventStream::new(0, StreamMode::Numbered, None));
        let teller = tokio::spawn(peer.clone().watch_tool_changes(general.clone())).abort_handle();
        Ok(Arc::new(HttpSession {
            id,
            caller,
            peer,
            event_stream: general,
            streams: Mutex::default(),
            names: AtomicU64::new(1),
            last_used: Mutex::new(Instant::now()),
            change_notifier: teller,
            _room: room,
        }))
    }

    /// The session can be found from now on.
    pub(crate) fn register(&self, session: Arc<HttpSession>) {
        lock(&self.open).insert(session.id.clone(), session);
    }

    /// The caller's session with this id. Another caller's session does not exist for it.
    pub(crate) fn find(&self, id: &str, caller: &CallerId) -> Option<Arc<HttpSession>> {
        let session = lock(&self.open).get(id).filter(|it| it.caller == *caller).cloned()?;
        session.touch();
        Some(session)
    }

    /// The session is over.
    pub(crate) async fn end(&self, session: Arc<HttpSession>) {
        lock(&self.open).remove(&session.id);
        session.peer.disconnect();
        session.event_stream.finish(None);
        for stream in lock(&session.streams).drain(..) {
            stream.finish(None);
        }
        self.rooms.close(session.peer.server.clone()).await;
    }

    /// Ends idle sessions.
    pub(crate) async fn sweep(&self) {
        let all: Vec<_> = lock(&self.open).values().cloned().collect();
        for session in all.into_iter().filter(|it| it.idle() > self.idle) {
            self.end(session).await;
        }
    }

    /// Closes the event streams, so that listening clients disconnect.
    pub(crate) fn close_event_streams(&self) {
        for session in lock(&self.open).values() {
            session.event_stream.finish(None);
        }
    }

    /// Ends all.
    pub(crate) async fn close(&self) {
        let all: Vec<_> = lock(&self.open).values().cloned().collect();
        futures::future::join_all(all.into_iter().map(|it| self.end(it))).await;
    }

    async fn evict_idle(&self) {
        let longest = lock(&self.open).values().max_by_key(|it| it.idle()).cloned();
        if let Some(session) = longest.filter(|it| it.idle() > MIN_IDLE) {
            self.end(session).await;
        }
    }
}

/// 128 random bits.
fn random_id() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
