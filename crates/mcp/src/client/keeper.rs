//! Keeps one server: connects, reads its tools again when they change, starts it again when it ends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use helve_contract::CancellationToken;
use tokio::time::{sleep, timeout};

use super::{
    connect::{self, Connection},
    link::Link,
    servers::{Server, Status},
};

/// The first and the longest wait between two starts.
const SOON: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(60);
/// A server that lasted so long gets a fresh count.
const LASTED: Duration = Duration::from_secs(30);
/// What a program has to end by itself, and then when asked.
const LEAVE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(1)];
/// The shortest time between two readings of the tools.
const PAUSE: Duration = Duration::from_millis(100);

/// Keeps a server until it is told to stop.
pub(crate) async fn keep(server: Arc<Server>, stop: CancellationToken) {
    let mut failures: u32 = 0;
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let why = once(&server, &stop).await;
        failures = if begun.elapsed() > LASTED { 0 } else { failures.saturating_add(1) };
        let wait = (SOON * 2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(LATE);
        server.set(Status::Failed(why));
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(wait) => server.set(Status::Starting),
        }
    }
    server.set(Status::Failed("it was stopped".into()));
}

/// One life of a server; says why it ended.
async fn once(server: &Server, stop: &CancellationToken) -> String {
    let settings = &server.settings;
    let starting = async {
        let mut connection = Connection::open(settings).await?;
        server.hold(connection.group.take());
        read_tools(server, &connection.link, connection.has.0).await?;
        Ok::<_, String>(connection)
    };
    let late = || Err(format!("did not tell its tools within {} s", settings.start.as_secs()));
    let connection = tokio::select! {
        begun = timeout(settings.start, starting) => match begun.unwrap_or_else(|_| late()) {
            Ok(connection) => connection,
            Err(why) => return why,
        },
        // What was begun is dropped, and its program with it.
        () = stop.cancelled() => return "it was stopped".into(),
    };
    let link = &connection.link;
    server.connected(link.clone(), connection.has.1);
    loop {
        tokio::select! {
            () = link.ended.cancelled() => return link.why(),
            () = stop.cancelled() => {
                leave(server, link).await;
                return "it was stopped".into();
            }
            () = link.changed.notified() => {
                // What it had before stays, when it cannot tell now.
                _ = read_tools(server, link, true).await;
                server.told();
                sleep(PAUSE).await;
            }
        }
    }
}

async fn read_tools(server: &Server, link: &Link, has: bool) -> Result<(), String> {
    let (tools, left) = if has { connect::tools(link, &server.settings).await? } else { Default::default() };
    let (ledger, name) = (server.ledger.clone(), server.settings.name.clone());
    let (tools, holds) = tokio::task::spawn_blocking(move || {
        let holds = ledger.observe(&name, &tools);
        (tools, holds)
    })
    .await
    .map_err(|error| error.to_string())?;
    server.take(tools, holds?, left);
    Ok(())
}

/// Closes a server's input, then asks it to end, then ends it.
async fn leave(server: &Server, link: &Link) {
    link.closing.cancel();
    for wait in LEAVE {
        if timeout(wait, link.ended.cancelled()).await.is_ok() {
            break;
        }
        server.ask_to_end();
    }
    server.hold(None);
}
