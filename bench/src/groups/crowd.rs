//! Concurrency: many MCP servers, agents, work trees and writers of one store; and one flooding command.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use helve_script::{ModelScript, ScriptStep, ScriptedCall};
use serde_json::{Value, json};

use crate::{
    desk::disk_dir,
    measure::Percentiles,
    peers::PeerServer,
    report::{BenchReport, BenchTarget},
    wire::PeerProcess,
};

/// MCP servers whose tools are taken in.
const SERVERS: usize = 20;
/// Agents and work trees at once.
const AGENTS: usize = 16;
/// Processes that write into one store.
const WRITERS: usize = 8;

/// 20 MCP servers: the additional start time, the time of a call through them, and the cost of one that never
/// answers.
pub(super) fn upstream_servers(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let floor = std::env::current_exe()?.with_file_name("helve-floor");
    let entry = |at: usize| format!("[mcp.servers.s{at:02}]\ncommand = \"{}\"\n", floor.display());
    let all = (0..SERVERS).fold(String::new(), |text, at| text + &entry(at));
    let dead = "[mcp.servers.dead]\ncommand = \"sleep\"\nargs = [\"600\"]\n";
    let rounds = if report.effort.is_small() { 2 } else { 9 };
    let (mut none, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (settings, times) in [("", &mut none), (all.as_str(), &mut with)] {
            let begun = Instant::now();
            let (_peer, listed) = start_with_servers(helve, root, settings)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let tools = listed["result"]["tools"].as_array().map_or(0, Vec::len);
            ensure!(settings.is_empty() || tools > SERVERS * 7, "{tools} tools, and not those of {SERVERS} servers");
        }
    }
    let (none, with) = (Percentiles::of(none), Percentiles::of(with));
    report.figure("from nothing to tools/list, no server behind", none.p50, "ms", None);
    report.figure(
        &format!("the same with {SERVERS} MCP servers behind"),
        with.p50,
        "ms",
        Some(BenchTarget::Most(2_000.0)),
    );

    let (mut peer, _) = start_with_servers(helve, root, &all)?;
    report.figure(&format!("{SERVERS} servers: resident, without them"), peer.own_memory(), "MB", None);
    let many = if report.effort.is_small() { 20 } else { 200 };
    let (alone, through) = (read_times(&mut peer, root, many)?, echo_times(&mut peer, many)?);
    report.figure(&format!("{SERVERS} servers: a call of one of them, p50"), through.p50, "ms", None);
    let begun = Instant::now();
    peer.burst_of((0..SERVERS * 10).map(|at| (format!("mcp__s{:02}__echo", at % SERVERS), json!({ "message": "x" }))))?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    report.figure(&format!("{} calls in flight over {SERVERS} servers", SERVERS * 10), took, "ms", None);
    drop(peer);

    let begun = Instant::now();
    let (mut peer, _) = start_with_servers(helve, root, &(all + dead))?;
    report.figure("the same, and one that never answers", begun.elapsed().as_secs_f64() * 1e3, "ms", None);
    let beside = read_times(&mut peer, root, many)?;
    report.figure("read 1 KB beside it by read 1 KB without", beside.p50 / alone.p50, "", Some(BenchTarget::Most(1.2)));
    Ok(())
}

/// A server of ours with these settings, and what it lists.
fn start_with_servers(helve: &Path, root: &Path, settings: &str) -> Result<(PeerProcess, Value)> {
    let (home, work) = (root.join("home"), root.join("work"));
    fs::create_dir_all(home.join(".config/helve"))?;
    fs::create_dir_all(&work)?;
    fs::write(home.join(".config/helve/helve.toml"), settings)?;
    fs::write(work.join("small.txt"), "x".repeat(1023) + "\n")?;
    let mut peer = PeerServer::helve(helve, "solo", &home, &work).start()?;
    let listed = peer.initialize()?;
    Ok((peer, listed))
}

fn read_times(peer: &mut PeerProcess, root: &Path, many: usize) -> Result<Percentiles> {
    call_times(peer, many, "read", &json!({ "path": root.join("work/small.txt") }))
}

fn echo_times(peer: &mut PeerProcess, many: usize) -> Result<Percentiles> {
    call_times(peer, many, "mcp__s07__echo", &json!({ "message": "x" }))
}

/// Milliseconds of each of many calls.
fn call_times(peer: &mut PeerProcess, many: usize, tool: &str, args: &Value) -> Result<Percentiles> {
    let mut times = Vec::with_capacity(many);
    for _ in 0..many {
        let begun = Instant::now();
        peer.call(tool, args)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Percentiles::of(times))
}

/// Latency of calls beside a command that writes as fast as it can.
pub(super) fn latency_under_flood(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let (mut peer, _) = start_with_servers(helve, root, "")?;
    let seconds = if report.effort.is_small() { 2 } else { 10 };
    let args = json!({ "path": root.join("work/small.txt") });
    call_times(&mut peer, 50, "read", &args)?;
    let before = peer.own_memory();
    peer.begin("exec", &json!({ "command": format!("timeout {seconds} yes"), "timeout": seconds + 20 }))?;
    let (begun, mut times, mut most) = (Instant::now(), Vec::new(), 0.0_f64);
    while begun.elapsed() < Duration::from_secs(seconds - 1) {
        let asked = Instant::now();
        peer.call("read", &args)?;
        times.push(asked.elapsed().as_secs_f64() * 1e3);
        most = most.max(peer.own_memory());
        thread::sleep(Duration::from_millis(10));
    }
    let ended = peer.wait()?;
    ensure!(ended.contains("y\\ny\\n"), "the flood has no output: {ended:.200}");
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get((times.len() - 1) * part / 100).copied().unwrap_or_default();
    report.figure(&format!("`yes` for {seconds} s, a read beside it: p50"), at(50), "ms", None);
    report.figure("the same: p99", at(99), "ms", Some(BenchTarget::Most(50.0)));
    report.figure(
        "the same: memory more than before",
        most.max(peer.own_memory()) - before,
        "MB",
        Some(BenchTarget::Most(32.0)),
    );
    Ok(())
}

/// Eight processes that save notes in one store and record events in one file.
pub(super) fn writers(report: &mut BenchReport, helve: &Path, _: &Path) -> Result<()> {
    let (_held, root) = disk_dir()?;
    let each = if report.effort.is_small() { 5 } else { 100 };
    let (home, work) = (root.join("home"), root.join("work"));
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&work)?;
    let begun = Instant::now();
    let one = |at: usize| -> Result<Vec<f64>> {
        let mut command = Command::new(helve);
        command.args(["batch", "--dialect", "oxydra"]).current_dir(&work);
        let mut peer = PeerProcess::start(command.env("HOME", &home).env("HELVE_STATE_DIR", home.join("state")))?;
        let mut times = Vec::new();
        for step in 0..each {
            let begun = Instant::now();
            let content = format!("writer {at} says {step}: the ferry leaves at {}", at * 100 + step);
            let said = peer.request(&json!({ "tool": "memory_save", "args": { "content": content } }))?;
            ensure!(said.contains("\"is_error\":false"), "writer {at}: {said}");
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    };
    let times = run_parallel(WRITERS, one)?;
    let (took, all) = (begun.elapsed().as_secs_f64(), times.concat());
    let record = fs::read_to_string(home.join("state/runs/cli/events.ndjson"))?;
    let whole = record.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let ended = whole.iter().filter(|it| it["type"] == "tool.result").count();
    ensure!(ended == all.len(), "{} notes, and {ended} in the record", all.len());
    report.figure(
        &format!("{WRITERS} processes, one store, {} notes: notes a second", all.len()),
        all.len() as f64 / took,
        "/s",
        None,
    );
    let mut sorted = all;
    sorted.sort_by(f64::total_cmp);
    let at = |part: usize| sorted.get((sorted.len() - 1) * part / 100).copied().unwrap_or_default();
    report.figure("the same: p50", at(50), "ms", None);
    report.figure("the same: p99", at(99), "ms", Some(BenchTarget::Most(1_000.0)));
    Ok(())
}

/// Runs the same work on many threads; returns the first error.
fn run_parallel<T: Send>(many: usize, one: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..many).map(|at| scope.spawn(move || one(at))).collect();
        all.into_iter().map(|it| it.join().map_err(|_| anyhow!("a thread broke"))?).collect()
    })
}

/// 16 agents, each in a separate work tree, that commit as often as they can; all commits end in one repository.
pub(super) fn worktrees(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let each = if report.effort.is_small() { 3 } else { 50 };
    let main = root.join("main");
    fs::create_dir_all(&main)?;
    git(&main, &["init", "--quiet", "--initial-branch=main"])?;
    git(&main, &["commit", "--quiet", "--allow-empty", "-m", "begin"])?;
    for at in 0..AGENTS {
        git(root, &["clone", "--quiet", "--no-hardlinks", "main", &format!("tree-{at}")])?;
    }
    let begun = Instant::now();
    let one = |at: usize| -> Result<()> {
        let tree = root.join(format!("tree-{at}"));
        let mut peer = PeerServer::helve(helve, "solo", &root.join(format!("home-{at}")), &tree).start()?;
        peer.initialize()?;
        for step in 0..each {
            peer.call("write", &json!({ "path": format!("part-{at}.txt"), "content": format!("{step}\n") }))?;
            let commit = format!("git -c user.name=a -c user.email=a@b commit --quiet -m {at}-{step}");
            peer.call("exec", &json!({ "command": format!("git add --all && {commit} && echo kept") }))
                .and_then(|said| said.contains("kept").then_some(()).with_context(|| said))?;
        }
        Ok(())
    };
    let done: Vec<Result<()>> = run_parallel(AGENTS, |at| Ok(one(at)))?;
    let took = begun.elapsed().as_secs_f64();
    let failed: Vec<_> = done.iter().filter_map(|it| it.as_ref().err()).map(|it| format!("{it:#}")).collect();
    for at in 0..AGENTS {
        git(&main, &["fetch", "--quiet", &format!("../tree-{at}"), &format!("main:part-{at}")])?;
    }
    let kept: usize = git(&main, &["rev-list", "--count", "--all", "^main"])?.trim().parse()?;
    let wanted = AGENTS * each;
    report.figure(&format!("{AGENTS} agents in trees of their own: commits a second"), kept as f64 / took, "/s", None);
    report.figure(
        &format!("of {wanted} commits lost"),
        (wanted - kept.min(wanted)) as f64,
        "",
        Some(BenchTarget::Most(0.0)),
    );
    report.figure("agents that failed", failed.len() as f64, "", Some(BenchTarget::Most(0.0)));
    if let Some(first) = failed.first() {
        report.note(&format!("the first failure: {first:.300}"));
    }
    Ok(())
}

fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(folder);
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// One model turn that starts 16 agents, each of which reads a file and reports, compared with a turn that starts
/// one.
pub(super) fn agents(report: &mut BenchReport, helve: &Path, root: &Path) -> Result<()> {
    let (home, work) = (root.join("home"), root.join("work"));
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&work)?;
    fs::write(work.join("small.txt"), "x".repeat(1023) + "\n")?;
    let file = work.join("small.txt");
    let step = move |request: &Value| {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = messages.iter().find(|it| it["role"] == "user").map(|it| it["content"].to_string());
        let said = said.unwrap_or_default();
        let heard = messages.iter().any(|it| it["role"] == "tool");
        if let Some(many) = said.rsplit_once("begin ").and_then(|(_, it)| it.trim_matches('"').parse::<usize>().ok()) {
            if heard {
                let done = messages.iter().filter(|it| it["content"].to_string().contains("errand done")).count();
                return ScriptStep::text(format!("{done} of {many}"));
            }
            let order = |at| json!({ "subagent_type": "general-purpose", "description": format!("Errand {at}"), "prompt": format!("errand {at}") });
            return ScriptStep::calls((0..many).map(|at| ScriptedCall::new("Agent", order(at))));
        }
        if heard { ScriptStep::text("errand done") } else { ScriptStep::call("FileRead", json!({ "file_path": file })) }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = runtime.block_on(ModelScript::new([ScriptStep::computed(step).repeat(u32::MAX)]).serve())?;
    let rounds = if report.effort.is_small() { 1 } else { 5 };
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (many, times) in [(1, &mut one), (AGENTS, &mut all)] {
            let begun = Instant::now();
            let mut command = Command::new(helve);
            command.args(["run", &format!("begin {many}"), "--dialect", "claude", "--mode", "bypassPermissions"]);
            command.current_dir(&work).env("HOME", &home).env("HELVE_STATE_DIR", home.join("state"));
            command.env("HELVE_MODEL_BASE_URL", server.url()).env("HELVE_MODEL_NAME", "scripted");
            let output = command.stdin(Stdio::null()).output()?;
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            ensure!(out.contains(&format!("{many} of {many}")), "{out}{err:.400}");
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let wrong = server.violations().into_iter().fold(String::new(), |mut all, it| {
        _ = writeln!(all, "{it}");
        all
    });
    ensure!(wrong.is_empty(), "{wrong}");
    let (one, all) = (Percentiles::of(one), Percentiles::of(all));
    report.figure("a run that starts 1 agent, which reads and reports", one.p50, "ms", None);
    report.figure(&format!("a run that starts {AGENTS} of them in one turn"), all.p50, "ms", None);
    report.figure(&format!("{AGENTS} agents by one, in time"), all.p50 / one.p50, "", Some(BenchTarget::Most(4.0)));
    Ok(())
}
