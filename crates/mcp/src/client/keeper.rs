//! Supervises one server: connects, reloads its tools when they change, and restarts it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use helve_contract::CancellationToken;
use tokio::time::{sleep, timeout};

use super::{
    connect::{self, McpConnection},
    link::RpcConnection,
    servers::{ConnectedServer, ServerStatus},
};

/// The first and the longest wait between two starts.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A server that ran this long resets the retry counter.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// What a program has to end by itself, and then when asked.
const SHUTDOWN_TIMEOUTS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(1)];
/// The shortest time between two readings of the tools.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_millis(100);

/// Keeps a server until it is told to stop.
pub(crate) async fn supervise(server: Arc<ConnectedServer>, stop: CancellationToken) {
    let mut failures: u32 = 0;
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let why = run_once(&server, &stop).await;
        failures = if begun.elapsed() > STABLE_AFTER { 0 } else { failures.saturating_add(1) };
        let wait = (MIN_BACKOFF * 2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(MAX_BACKOFF);
        server.set_disconnected(ServerStatus::Failed(why));
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(wait) => server.set_disconnected(ServerStatus::Starting),
        }
    }
    server.set_disconnected(ServerStatus::Failed("it was stopped".into()));
}

/// Runs a server once; returns why it ended.
async fn run_once(server: &ConnectedServer, stop: &CancellationToken) -> String {
    let settings = &server.settings;
    let starting = async {
        let mut connection = McpConnection::open(settings).await?;
        server.set_process_group(connection.group.take());
        read_tools(server, &connection.link, connection.capabilities.0).await?;
        Ok::<_, String>(connection)
    };
    let late = || Err(format!("did not tell its tools within {} s", settings.start_timeout.as_secs()));
    let connection = tokio::select! {
        begun = timeout(settings.start_timeout, starting) => match begun.unwrap_or_else(|_| late()) {
            Ok(connection) => connection,
            Err(why) => return why,
        },
        // Dropping the start also ends its program.
        () = stop.cancelled() => return "it was stopped".into(),
    };
    let link = &connection.link;
    server.set_connected(link.clone(), connection.capabilities.1);
    loop {
        tokio::select! {
            () = link.ended.cancelled() => return link.close_reason(),
            () = stop.cancelled() => {
                shut_down(server, link).await;
                return "it was stopped".into();
            }
            () = link.changed.notified() => {
                // If the reload fails, the previous tools stay.
                _ = read_tools(server, link, true).await;
                server.notify_changed();
                sleep(MIN_RELOAD_INTERVAL).await;
            }
        }
    }
}

async fn read_tools(server: &ConnectedServer, link: &RpcConnection, has: bool) -> Result<(), String> {
    let (tools, left) = if has { connect::tools(link, &server.settings).await? } else { Default::default() };
    let (ledger, name) = (server.ledger.clone(), server.settings.name.clone());
    let (tools, holds) = tokio::task::spawn_blocking(move || {
        let holds = ledger.check(&name, &tools);
        (tools, holds)
    })
    .await
    .map_err(|error| error.to_string())?;
    server.set_tools(tools, holds?, left);
    Ok(())
}

/// Closes a server's input, then terminates it, then kills it.
async fn shut_down(server: &ConnectedServer, link: &RpcConnection) {
    link.closing.cancel();
    for wait in SHUTDOWN_TIMEOUTS {
        if timeout(wait, link.ended.cancelled()).await.is_ok() {
            break;
        }
        server.terminate();
    }
    server.set_process_group(None);
}
