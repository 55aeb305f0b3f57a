//! The open connections: how many there are, from which addresses, and which of them have authenticated.
//!
//! Anybody who reaches the port can open connections, so those that have not authenticated are limited apart from the
//! others, in all and for each address. A new connection is never refused because of them: the oldest one is closed
//! instead. A client that authenticates with its first request is therefore served while others hold their connections.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

/// All open connections.
pub(crate) struct Connections {
    max: usize,
    open: Mutex<Open>,
    /// Notified whenever a connection ends.
    ended: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// By number, so that the oldest comes first.
    all: BTreeMap<u64, Arc<State>>,
    /// Connections that were closed to make room and have not ended yet.
    closing: usize,
}

struct State {
    address: IpAddr,
    has_authenticated: AtomicBool,
    requests: AtomicUsize,
    close: CancellationToken,
}

/// One connection. Requests carry it as an extension.
#[derive(Clone)]
pub struct Connection(Arc<State>);

/// The slot of a connection, released when dropped.
pub(crate) struct Place {
    number: u64,
    all: Arc<Connections>,
    pub(crate) connection: Connection,
}

impl Connections {
    /// Capacity for `max` connections. Unauthenticated ones may use three quarters of it, and half per address.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(4), open: Mutex::default(), ended: Notify::new() })
    }

    /// A slot for a new connection, or `None` if authenticated connections use all.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut open = self.open();
        let here = |state: &State| state.address == address;
        if open.unauthenticated(here) >= self.max / 2 {
            open.close_oldest(here);
        }
        if open.unauthenticated(|_| true) >= self.max * 3 / 4 {
            open.close_oldest(|_| true);
        }
        if open.all.len() >= self.max && !open.close_oldest(|_| true) {
            return None;
        }
        let number = open.next;
        open.next += 1;
        let state = Arc::new(State {
            address,
            has_authenticated: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            close: CancellationToken::new(),
        });
        open.all.insert(number, state.clone());
        Some(Place { number, all: self.clone(), connection: Connection(state) })
    }

    /// Closes the oldest connection that has not authenticated, because the system has no descriptor left.
    pub(crate) fn make_room(&self) {
        self.open().close_oldest(|_| true);
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            {
                let open = self.open();
                if open.all.is_empty() && open.closing == 0 {
                    return;
                }
            }
            ended.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn unauthenticated(&self, counts: impl Fn(&State) -> bool) -> usize {
        self.all.values().filter(|it| !it.has_authenticated() && counts(it)).count()
    }

    /// Closes the oldest unauthenticated connection. Returns whether there was one.
    fn close_oldest(&mut self, counts: impl Fn(&State) -> bool) -> bool {
        let oldest = self.all.iter().find(|(_, it)| !it.has_authenticated() && counts(it)).map(|(number, _)| *number);
        let Some(state) = oldest.and_then(|number| self.all.remove(&number)) else { return false };
        self.closing += 1;
        state.close.cancel();
        true
    }
}

impl State {
    fn has_authenticated(&self) -> bool {
        self.has_authenticated.load(Ordering::Relaxed)
    }
}

impl Connection {
    /// Marks the connection as authenticated, by a token or otherwise. It is then never closed to make room.
    pub fn set_authenticated(&self) {
        self.0.has_authenticated.store(true, Ordering::Relaxed);
    }

    /// Counts a request as running until the value is dropped.
    pub(crate) fn request(&self) -> Running<'_> {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        Running(&self.0)
    }

    /// Waits until the connection must end: another needs its slot, or an unauthenticated client sent nothing within
    /// `timeout`.
    pub(crate) async fn expired(&self, timeout: Duration) {
        let has_room = async {
            loop {
                sleep(timeout).await;
                if self.0.has_authenticated() {
                    return std::future::pending().await;
                }
                if self.0.requests.load(Ordering::Relaxed) == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.0.close.cancelled() => {}
            () = has_room => {}
        }
    }
}

/// A request that is being answered.
pub(crate) struct Running<'a>(&'a State);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.all.open();
        if open.all.remove(&self.number).is_none() {
            open.closing = open.closing.saturating_sub(1);
        }
        drop(open);
        self.all.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn is_closed(place: &Place) -> bool {
        place.connection.0.close.is_cancelled()
    }

    #[test]
    fn an_address_closes_its_own_oldest_connection() {
        let all = Connections::new(8);
        let other = all.admit(B).unwrap();
        let mine: Vec<Place> = (0..5).map(|_| all.admit(A).unwrap()).collect();
        assert_eq!(mine.iter().map(is_closed).collect::<Vec<_>>(), [true, false, false, false, false]);
        assert!(!is_closed(&other));
    }

    #[test]
    fn authenticated_connections_are_not_closed() {
        let all = Connections::new(4);
        let known = [A, A, A].map(|address| {
            let place = all.admit(address).unwrap();
            place.connection.set_authenticated();
            place
        });
        let first = all.admit(A).unwrap();
        let second = all.admit(B).unwrap();
        assert!(is_closed(&first) && !is_closed(&second));
        second.connection.set_authenticated();
        assert!(known.iter().all(|it| !is_closed(it)));
        assert!(all.admit(B).is_none(), "all places are taken by clients that are known");
        drop(known);
        assert!(all.admit(B).is_some());
    }

    #[tokio::test]
    async fn waits_for_closed_connections_too() {
        let all = Connections::new(4);
        let (first, second) = (all.admit(A).unwrap(), [all.admit(A).unwrap(), all.admit(A).unwrap()]);
        assert!(is_closed(&first));
        let mut waiting = poller(all.all_ended());
        drop(second);
        assert!(!waiting());
        drop(first);
        assert!(waiting());
    }

    /// Polls a future each time it is called; whether it is done.
    fn poller(future: impl Future<Output = ()>) -> impl FnMut() -> bool {
        let mut future = Box::pin(future);
        move || future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_is_let_go() {
        let all = Connections::new(4);
        let (limit, long) = (Duration::from_millis(1), Duration::from_millis(50));
        let place = all.admit(A).unwrap();
        place.connection.expired(limit).await;
        let running = place.connection.request();
        let busy = tokio::time::timeout(long, place.connection.expired(limit)).await;
        assert!(busy.is_err(), "a request is being answered");
        drop(running);
        place.connection.set_authenticated();
        assert!(tokio::time::timeout(long, place.connection.expired(limit)).await.is_err());
    }
}
