//! The socket of the proxy, and the thread that serves it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use helve_contract::CancellationToken;
use tokio::{net::UnixListener, runtime, sync::Semaphore};

use super::ProxyGateway;

/// The most connections at once.
const MAX_CONNECTIONS: usize = 256;

/// A proxy that listens. It ends, and its socket is removed, when this is dropped.
pub struct ProxyListener {
    socket: PathBuf,
    /// Removed, too, where it was made for the socket.
    folder: Option<PathBuf>,
    stop: CancellationToken,
}

impl ProxyListener {
    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for ProxyListener {
    fn drop(&mut self) {
        self.stop.cancel();
        _ = fs::remove_file(&self.socket);
        if let Some(folder) = &self.folder {
            _ = fs::remove_dir(folder);
        }
    }
}

/// Listens on a socket in a new directory that only this user can open, beneath the system's temporary one.
pub fn listen_in_private_dir(gateway: ProxyGateway) -> io::Result<ProxyListener> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let base = std::env::temp_dir();
    for _ in 0..100 {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("helve-proxy-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                let mut listening = listen(gateway, &folder.join("socket"));
                match &mut listening {
                    Ok(listening) => listening.folder = Some(folder),
                    Err(_) => _ = fs::remove_dir(&folder),
                }
                return listening;
            }
            // One of a process of this number that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no name for a private folder is free"))
}

/// Listens on a new socket in a private directory. A separate thread serves it, so that a busy session does not block
/// it.
pub fn listen(gateway: ProxyGateway, socket: &Path) -> io::Result<ProxyListener> {
    if socket.symlink_metadata().is_ok() {
        fs::remove_file(socket)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("proxy".into()).spawn(move || {
        runtime.block_on(async {
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            tokio::select! {
                () = accept(&listener, &gateway) => {}
                () = stopped.cancelled() => {}
            }
        });
        // What is still under way ends with the one who wanted it.
        runtime.shutdown_background();
    })?;
    Ok(ProxyListener { socket: socket.to_owned(), folder: None, stop })
}

async fn accept(listener: &UnixListener, gateway: &ProxyGateway) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let gateway = gateway.clone();
                tokio::spawn(async move {
                    gateway.serve(stream).await;
                    drop(place);
                });
            }
            // No more files can be opened just now: others will be closed.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}
