//! A no-op tool through the whole pipeline: the cost of the engine itself.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::FutureExt;
use helve_contract::{Effects, Entry, Reply, Spec};
use helve_engine::{EngineBuilder, EventLog};
use helve_mcp::{McpServerConfig, McpService, serve};
use serde_json::{Value, json};

use crate::{
    desk::{BenchSession, tmpfs_dir},
    report::{BenchReport, BenchTarget, ComparisonSpec, PreparedWork},
};

/// What a model sends.
const ARGS: &str = r#"{"path": "src/main.rs", "limit": 20}"#;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = tmpfs_dir()?;
    let one = session_with_tools(&root, 1, EventLog::none())?;
    let entry = one.engine.get("noop_0").context("the tool is not there")?.clone();

    report.compare(
        ComparisonSpec::of("no-op call", "the tool alone, arguments parsed").aim(BenchTarget::Micros(5.0)),
        &mut |times| one.repeat(times, "noop_0", ARGS),
        &mut |times| {
            one.block_on(async {
                for _ in 0..times {
                    let args: Value = serde_json::from_str(ARGS)?;
                    entry.run(args, one.call()).await.map_err(|error| anyhow::anyhow!("{error}"))?;
                }
                Ok(())
            })
        },
    )?;
    let many = session_with_tools(&root, 1_000, EventLog::none())?;
    report.compare(
        ComparisonSpec::of("no-op call, 1,000 tools", "no-op call, 1 tool").aim(BenchTarget::Ratio(1.1)),
        &mut |times| many.repeat(times, "noop_999", ARGS),
        &mut |times| one.repeat(times, "noop_0", ARGS),
    )?;
    let recorded = session_with_tools(&root, 1, EventLog::file(root.join("events.ndjson"), "bench")?)?;
    report.compare(
        ComparisonSpec::of("no-op call, events to a file", "no-op call, no events"),
        &mut |times| recorded.repeat(times, "noop_0", ARGS),
        &mut |times| one.repeat(times, "noop_0", ARGS),
    )?;
    let place = &root;
    let mut tools = |tools: usize| -> Result<PreparedWork<'_>> {
        let (desk, last) = (session_with_tools(place, tools, EventLog::none())?, format!("noop_{}", tools - 1));
        Ok(Box::new(move |times| desk.repeat(times, &last, ARGS)))
    };
    report.measure_growth(("no-op call", "tools"), &[1, 10, 100, 1_000, 10_000], &mut [("engine", &mut tools)])?;
    let mut long = |bytes: usize| -> Result<PreparedWork<'_>> {
        let (desk, args) =
            (session_with_tools(place, 1, EventLog::none())?, json!({ "path": "x".repeat(bytes) }).to_string());
        Ok(Box::new(move |times| desk.repeat(times, "noop_0", &args)))
    };
    report.measure_growth(
        ("no-op call", "bytes of arguments"),
        &[100, 1_000, 10_000, 100_000, 1_000_000],
        &mut [("engine", &mut long)],
    )
}

/// The size and time of a client's first tool list from such an engine.
pub(super) fn list_tools(desk: BenchSession) -> Result<(usize, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (asked, ask) = rustix::pipe::pipe()?;
    let (answer, answers) = rustix::pipe::pipe()?;
    let server = Arc::new(McpService::new(Arc::new(desk.engine), desk.session, McpServerConfig::default()));
    let handle = runtime.handle().clone();
    // The server loop blocks its thread; another thread drives the runtime until it ends.
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let serving = thread::spawn(move || {
        let served = serve(server, File::from(asked), File::from(answers), &handle);
        drop(ended);
        served
    });
    let driving = thread::spawn(move || runtime.block_on(end));
    let mut ask = File::from(ask);
    let mut answers = BufReader::new(File::from(answer));
    let mut line = String::new();
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "bench", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    ask.write_all(format!("{hello}\n").as_bytes())?;
    answers.read_line(&mut line)?;
    line.clear();
    let begun = Instant::now();
    ask.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n")?;
    answers.read_line(&mut line)?;
    let took = begun.elapsed();
    anyhow::ensure!(line.contains("noop_0"), "no tools: {}", crate::report::first_line(&line));
    drop(ask);
    _ = serving.join();
    _ = driving.join();
    Ok((line.len(), took))
}

/// An engine with this many tools that do nothing, beside those of its dialect.
pub(super) fn session_with_tools(root: &Path, tools: usize, events: EventLog) -> Result<BenchSession> {
    BenchSession::with_builder("solo", root, |builder| {
        Ok((0..tools).map(noop).fold(builder, EngineBuilder::tool).events(events))
    })
}

fn noop(number: usize) -> Entry {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "limit": { "type": "integer", "minimum": 1 } },
        "required": ["path"],
    });
    let spec = Spec {
        needs: helve_contract::PortSet::NONE,
        profile: None,
        access: None,
        rule_names: Vec::new(),
        annotations: None,
        name: format!("noop_{number}"),
        aliases: Vec::new(),
        description: "Does nothing.".to_owned(),
        input_schema: schema,
        output_schema: None,
        effects: Effects::READS,
        tier: None,
        timeout: Duration::from_secs(60),
    };
    Entry::dynamic(spec, |_, _| async { Ok(Reply::from("done")) }.boxed())
}
