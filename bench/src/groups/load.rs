//! Load: clients, sessions, tools, reads, floods and long sessions, each with a target.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use helve_contract::{
    jiff::Timestamp,
    ports::{Message, MessagePart, MessageRole, SESSION_LEASE, SessionFilter, SessionRecord, Sessions, TokenUsage},
};
use helve_store::SqliteStore;
use serde_json::{Value, json};

use super::{
    crowd,
    http::{ECHO, HttpServerProcess, READ},
};
use crate::{
    data::Rng,
    desk::{disk_dir, tmpfs_dir},
    http::BenchHttpClient,
    measure::Percentiles,
    peers::PeerServer,
    report::{BenchReport, BenchTarget},
    wire::PeerProcess,
};

/// Clients at once.
const CLIENTS: usize = 50;
/// The load comes in so many parts, in turns with the peer.
const SLICES: usize = 10;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let Some(helve) = super::helve(report)? else { return Ok(()) };
    let crowds = [crowd::upstream_servers, crowd::latency_under_flood, crowd::writers, crowd::worktrees, crowd::agents];
    for part in [calls, connections, reads, floods, sandbox_starts].into_iter().chain(crowds) {
        let (_held, root) = tmpfs_dir()?;
        if let Err(error) = part(report, &helve, &root) {
            report.fail(&format!("{error:#}"));
        }
    }
    tools(report)?;
    conversations(report)
}

/// 50 clients that call as fast as they can, compared with the official SDK.
fn calls(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let each = if report.effort.is_small() { 40 } else { 1_000 };
    let each = std::env::var("HELVE_CALLS").ok().and_then(|it| it.parse().ok()).unwrap_or(each);
    let ours = HttpServerProcess::helve(helve, root)?;
    let sdk = HttpServerProcess::sdk()?;
    if sdk.is_none() {
        report.skip("the echo server of the official SDK is not built (bench/peers rmcp)");
    }
    let crowd = |server: &HttpServerProcess| {
        (0..CLIENTS).map(|_| BenchHttpClient::connect(&server.address)).collect::<Result<Vec<_>>>()
    };
    let mut our_clients = crowd(&ours)?;
    let mut sdk_clients = sdk.as_ref().map(crowd).transpose()?.unwrap_or_default();
    let (mut echoes, mut reads, mut theirs) = (LoadResult::default(), LoadResult::default(), LoadResult::default());
    for part in 0..SLICES {
        let many = each * (part + 1) / SLICES - each * part / SLICES;
        echoes.run(&mut our_clients, ECHO, many)?;
        theirs.run(&mut sdk_clients, ECHO, many)?;
        reads.run(&mut our_clients, READ, many.div_ceil(5))?;
    }
    echoes.report(report, "helve, a call that does nothing", true)?;
    reads.report(report, "helve, read 1 KB", false)?;
    report.figure("helve, 50 sessions: resident at most", ours.memory().1, "MB", Some(BenchTarget::Most(64.0)));
    if let Some(sdk) = &sdk {
        theirs.report(report, "rmcp 3.8, a call that does nothing", false)?;
        report.figure("rmcp 3.8: resident at most", sdk.memory().1, "MB", None);
    }
    Ok(())
}

/// What clients saw that called at once.
#[derive(Default)]
struct LoadResult {
    /// Milliseconds of each call.
    times: Vec<f64>,
    failed: usize,
    first: Option<String>,
    took: Duration,
}

impl LoadResult {
    fn run(&mut self, clients: &mut [BenchHttpClient], message: &str, each: usize) -> Result<()> {
        let begun = Instant::now();
        let work = |client: &mut BenchHttpClient| {
            let (mut times, mut errors) = (Vec::with_capacity(each), Vec::new());
            for _ in 0..each {
                let begun = Instant::now();
                match client.call(message) {
                    Ok(()) => times.push(begun.elapsed().as_secs_f64() * 1e3),
                    Err(error) => errors.push(format!("{error:#}")),
                }
            }
            (times, errors)
        };
        let seen: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| work(client))).collect();
            all.into_iter().map(|it| it.join().map_err(|_| anyhow!("a client broke"))).collect::<Result<_>>()
        })?;
        self.took += begun.elapsed();
        for (times, errors) in seen {
            self.times.extend(times);
            self.failed += errors.len();
            self.first = self.first.take().or(errors.into_iter().next());
        }
        Ok(())
    }

    fn report(mut self, report: &mut BenchReport, name: &str, is_aimed: bool) -> Result<()> {
        self.times.sort_by(f64::total_cmp);
        let last = self.times.len().checked_sub(1).context("no call was answered")?;
        let at = |part: usize| self.times[last * part / 100];
        let aim = |it: BenchTarget| is_aimed.then_some(it);
        let rate = self.times.len() as f64 / self.took.as_secs_f64();
        let what = format!("{name}, {CLIENTS} clients, {} calls", self.times.len());
        report.figure(&format!("{what}: calls a second"), rate, "/s", aim(BenchTarget::Least(3_000.0)));
        report.figure(&format!("{name}: p50"), at(50), "ms", None);
        report.figure(&format!("{name}: p99"), at(99), "ms", aim(BenchTarget::Most(40.0)));
        report.figure(&format!("{name}: errors"), self.failed as f64, "", aim(BenchTarget::Most(0.0)));
        if let Some(first) = self.first {
            report.note(&format!("{name}: the first error: {first}"));
        }
        Ok(())
    }
}

/// Sessions that nobody uses, and connections that come and go.
fn connections(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let server = HttpServerProcess::helve(helve, root)?;
    let _warm = BenchHttpClient::connect(&server.address)?;
    let before = server.memory().0;
    let wanted = if report.effort.is_small() { 50 } else { 1_000 };
    let mut held = Vec::new();
    while held.len() < wanted {
        match BenchHttpClient::connect(&server.address) {
            Ok(client) => held.push(client),
            Err(error) => {
                report.note(&format!("after {} sessions: {error:#}", held.len()));
                break;
            }
        }
    }
    let what = format!("{} idle sessions with their connections: memory more than none", held.len());
    report.figure(&what, server.memory().0 - before, "MB", Some(BenchTarget::Most(200.0)));
    report.figure(
        "idle sessions that there is room for",
        held.len() as f64,
        "",
        Some(BenchTarget::Least(wanted as f64)),
    );
    drop(held);
    let many = if report.effort.is_small() { 200 } else { 10_000 };
    let host = server.address.clone();
    let before = server.memory().0;
    for _ in 0..many {
        drop(std::net::TcpStream::connect(&host)?);
    }
    thread::sleep(Duration::from_millis(200));
    let more = server.memory().0 - before;
    report.figure(
        &format!("{many} connections that came and went: memory more"),
        more,
        "MB",
        Some(BenchTarget::Most(4.0)),
    );
    Ok(())
}

/// 500 reads of 1 MB at once, over one pipe.
fn reads(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let mut server = start_server(helve, root)?;
    let many = if report.effort.is_small() { 50 } else { 500 };
    fs::write(root.join("work/large.txt"), Rng::new().text(1 << 20))?;
    let args = vec![json!({ "path": "large.txt", "limit": 1_000_000 }); many];
    let begun = Instant::now();
    server.burst("read", &args)?;
    let took = begun.elapsed().as_secs_f64();
    report.figure(&format!("{many} reads of 1 MB in flight"), took, "s", Some(BenchTarget::Most(2.0)));
    report.figure("the same: resident at most", server.memory().1, "MB", None);
    Ok(())
}

fn start_server(helve: &Path, root: &Path) -> Result<PeerProcess> {
    let work = root.join("work");
    fs::create_dir_all(&work)?;
    let mut peer = PeerServer::helve(helve, "solo", &root.join("home"), &work).start()?;
    peer.initialize()?;
    Ok(peer)
}

/// Background processes that write as fast as they can.
fn floods(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let mut server = start_server(helve, root)?;
    let many = if report.effort.is_small() { 4 } else { 64 };
    let before = server.own_memory();
    let mut ids = Vec::new();
    for _ in 0..many {
        let text = server.call("exec", &json!({ "command": "timeout 8 yes flood", "background": true }))?;
        let answer: Value = serde_json::from_str(&text)?;
        let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let id = said.split_once("process id: ").and_then(|it| it.1.split_whitespace().next());
        ids.push(id.with_context(|| format!("no id: {said}"))?.to_owned());
    }
    let mut times = Vec::new();
    for id in ids.iter().cycle().take(200) {
        let asked = Instant::now();
        server.call("process", &json!({ "action": "status", "process_id": id }))?;
        times.push(asked.elapsed().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(10));
    }
    let lag = Percentiles::of(times);
    report.figure(&format!("{many} floods: status, p50"), lag.p50, "ms", Some(BenchTarget::Most(10.0)));
    report.figure(&format!("{many} floods: status, p90"), lag.p90, "ms", None);
    report.figure(
        &format!("{many} floods: memory more than none"),
        server.own_memory() - before,
        "MB",
        Some(BenchTarget::Most(256.0)),
    );
    Ok(())
}

/// Commands in the sandbox, 16 at once.
fn sandbox_starts(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let many = if report.effort.is_small() { 32 } else { 320 };
    let work = root.join("work");
    fs::create_dir_all(&work)?;
    let left = AtomicUsize::new(many);
    let failures = Mutex::new(Vec::new());
    let mut peers = (0..16).map(|_| start_server(helve, root)).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    thread::scope(|scope| {
        for peer in &mut peers {
            let (left, failures) = (&left, &failures);
            scope.spawn(move || {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok() {
                    if let Err(error) = peer.call("exec", &json!({ "command": "true" }))
                        && let Ok(mut failures) = failures.lock()
                    {
                        failures.push(format!("{error:#}"));
                    }
                }
            });
        }
    });
    let rate = many as f64 / begun.elapsed().as_secs_f64();
    let failures = failures.into_inner().unwrap_or_default();
    ensure!(failures.is_empty(), "{} of {many} commands failed: {}", failures.len(), failures[0]);
    report.figure("`true` in the sandbox, 16 servers at once", rate, "/s", Some(BenchTarget::Least(80.0)));
    Ok(())
}

/// A list of a thousand tools, as a client gets it.
fn tools(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = tmpfs_dir()?;
    for tools in [100, 1_000, 10_000] {
        let desk = super::engine::session_with_tools(&root, tools, helve_engine::EventLog::none())?;
        let (bytes, took) = super::engine::list_tools(desk)?;
        let aim = (tools == 1_000).then_some(BenchTarget::Most(50.0));
        let what = format!("tools/list of {tools} tools, {} KB, the first time", bytes >> 10);
        report.figure(&what, took.as_secs_f64() * 1e3, "ms", aim);
    }
    Ok(())
}

/// One session of 200 MB: finding it, and reading its end.
fn conversations(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = disk_dir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let said = |error: helve_contract::Error| anyhow!("{error}");
    let megabytes = if report.effort.is_small() { 10 } else { 200 };
    let store = Arc::new(SqliteStore::lazy(root.join("helve.db")));
    let text = Rng::new().text(10 << 10);
    let message = || Message {
        seq: 0,
        role: MessageRole::Assistant,
        parts: vec![MessagePart::Text { text: text.clone() }],
        created: Timestamp::UNIX_EPOCH,
    };
    runtime.block_on(async {
        for at in 0..100 {
            let id = format!("s{at}");
            let lease = store.claim_session(&id, "bench", SESSION_LEASE).await.map_err(said)?;
            store.create_session(&lease, &record(&id)).await.map_err(said)?;
        }
        let batch: Vec<Message> = (0..100).map(|_| message()).collect();
        let lease = store.claim_session("s7", "bench", SESSION_LEASE).await.map_err(said)?;
        for _ in 0..megabytes {
            store.append_messages(&lease, &batch, TokenUsage::default()).await.map_err(said)?;
        }
        anyhow::Ok(())
    })?;
    // As the next process finds it.
    let store = SqliteStore::lazy(root.join("helve.db"));
    let begun = Instant::now();
    let which = SessionFilter { limit: 50, ..SessionFilter::default() };
    let (_, all) = runtime.block_on(store.list_sessions(&which)).map_err(said)?;
    let listed = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(all == 100, "{all} conversations and not 100");
    report.figure(
        &format!("list 100 conversations, one of {megabytes} MB"),
        listed,
        "ms",
        Some(BenchTarget::Most(300.0)),
    );
    let begun = Instant::now();
    let tail = runtime.block_on(store.messages("s7", None, 200)).map_err(said)?;
    let resumed = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(tail.len() == 200, "{} messages and not 200", tail.len());
    report.figure(&format!("the last 200 messages of {megabytes} MB"), resumed, "ms", Some(BenchTarget::Most(1_000.0)));
    Ok(())
}

fn record(id: &str) -> SessionRecord {
    SessionRecord {
        id: id.to_owned(),
        label: None,
        parent: None,
        user: "me".to_owned(),
        agent: "main".to_owned(),
        title: "a talk".to_owned(),
        dialect: "solo".to_owned(),
        model: "none".to_owned(),
        workspace: "/".to_owned(),
        messages: 0,
        spent: TokenUsage::default(),
        view_from: None,
        created: Timestamp::UNIX_EPOCH,
        updated: Timestamp::UNIX_EPOCH,
    }
}
