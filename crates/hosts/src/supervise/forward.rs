//! Forwards a port of the command's loopback to the proxy outside: the init helper listens in the command's network
//! namespace and relays to a mounted socket. It makes no decisions.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::plan::ProxyForward;

/// The most connections at once. One more is closed.
const MAX_CONNECTIONS: usize = 128;
/// Each connection has two threads, and they need little.
const THREAD_STACK_BYTES: usize = 128 << 10;

/// A bound port that does not accept connections yet.
pub(super) struct ProxyForwarder {
    listener: TcpListener,
    socket: PathBuf,
}

impl ProxyForwarder {
    /// Binds early, so that the command's first connection is not refused.
    pub(super) fn bind(forward: &ProxyForward) -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, forward.port))
            .map_err(|error| format!("cannot listen for what goes to the proxy: {error}"))?;
        Ok(Self { listener, socket: forward.socket.clone() })
    }

    /// Accepts connections until the init helper exits. The helper must not fork after this.
    pub(super) fn start(self) -> io::Result<()> {
        spawn(move || {
            let open = Arc::new(AtomicUsize::new(0));
            loop {
                match self.listener.accept() {
                    Ok((tcp, _)) if open.load(Ordering::Relaxed) < MAX_CONNECTIONS => self.relay(tcp, &open),
                    Ok(_) => {}
                    // File descriptors are exhausted: wait until others close.
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        })
    }

    /// Relays one connection with two threads; it counts until both have ended.
    fn relay(&self, tcp: TcpStream, open: &Arc<AtomicUsize>) {
        let Ok(unix) = UnixStream::connect(&self.socket) else { return };
        let (Ok(tcp_too), Ok(unix_too)) = (tcp.try_clone(), unix.try_clone()) else { return };
        let place = Arc::new(ConnectionSlot::acquire(open));
        let other = place.clone();
        // If a thread cannot start, its ends are dropped and the connection closes.
        let out = spawn(move || {
            _ = io::copy(&mut &tcp, &mut &unix);
            _ = unix.shutdown(Shutdown::Write);
            drop(place);
        });
        let back = spawn(move || {
            _ = io::copy(&mut &unix_too, &mut &tcp_too);
            _ = tcp_too.shutdown(Shutdown::Write);
            drop(other);
        });
        _ = out.and(back);
    }
}

/// One of the connections that are open.
struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    fn acquire(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(work).map(drop)
}
