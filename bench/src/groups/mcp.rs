//! `helve mcp` over stdio, compared with the baseline, other servers and common programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::files::{repeat, run_program};
use crate::{
    data::{self, HANDLER, NEEDLE, Rng},
    desk::{find_program, tmpfs_dir},
    peers::{PeerKind, PeerServer, PeerWork},
    report::{BenchReport, BenchTarget, BenchWork, Competitor},
    wire::PeerProcess,
};

/// Lines of a page.
const PAGE: usize = 1_000;
/// What an edit changes, there and back.
const MARKS: [&str; 2] = ["@@ mark A @@", "@@ mark B @@"];
/// Calls that are under way at once.
const BURST: usize = 1_000;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let Some(helve) = super::helve(report)? else { return Ok(()) };
    let (_held, root) = tmpfs_dir()?;
    let yard = WorkspaceData::new(&root, report.effort.is_small())?;
    let home = root.join("home");
    let mut servers = vec![PeerServer::helve(&helve, "solo", &home.join("helve"), &yard.root), PeerServer::floor()?];
    if report.effort.scale != crate::measure::Scale::Check {
        let (others, missing) = PeerServer::installed(&home, &yard.root);
        for name in missing {
            report.skip(&format!("{name} is not installed (bench/peers)"));
        }
        servers.extend(others);
    }
    let mut running = Vec::new();
    for server in servers {
        let mut peer = server.start()?;
        match peer.initialize() {
            Ok(_) => running.push(RunningServer { name: server.name, words: server.kind, peer }),
            Err(error) if server.kind != PeerKind::Helve => report.note(&format!("{}: {error:#}", server.name)),
            Err(error) => return Err(error),
        }
    }
    small_calls(report, &yard, &mut running)?;
    large_files(report, &yard, &mut running)?;
    searches(report, &yard, &mut running)?;
    bursts(report, &yard, &mut running)?;
    for (at, it) in running.iter().enumerate() {
        let aim = (at == 0 && !report.effort.is_small()).then_some(BenchTarget::Most(20.0));
        report.figure(&format!("peak of the whole run, {}", it.name), it.peer.memory().1, "MB", aim);
    }
    Ok(())
}

/// A running server. Helve is the first, the baseline the second.
struct RunningServer {
    name: &'static str,
    words: PeerKind,
    peer: PeerProcess,
}

/// Calls that a server makes in turn.
type CallCycle = Vec<(&'static str, Value)>;

/// Races all servers with a tool for some work, and programs that do it.
fn race(
    report: &mut BenchReport,
    (what, aim): (&str, Option<f64>),
    running: &mut [RunningServer],
    cycle: &dyn Fn(PeerKind, &str) -> Option<CallCycle>,
    mut programs: Vec<(&str, Option<f64>, Command)>,
) -> Result<()> {
    let mut sides: Vec<(&'static str, Box<BenchWork<'_>>)> = Vec::new();
    for it in running.iter_mut() {
        let Some(calls) = cycle(it.words, it.name) else { continue };
        let (peer, mut turn) = (&mut it.peer, 0);
        let work = move |times: usize| {
            repeat(times, || {
                let (tool, args) = &calls[turn % calls.len()];
                turn += 1;
                peer.call(tool, args).map(drop)
            })
        };
        sides.push((it.name, Box::new(work)));
    }
    let mut sides = sides.into_iter();
    let (_, mut ours) = sides.next().context("nobody does it")?;
    let mut sides: Vec<_> = sides.collect();
    let mut spawned: Vec<_> = programs
        .iter_mut()
        .map(|(name, aim, command)| (*name, *aim, move |times: usize| repeat(times, || run_program(command))))
        .collect();
    let mut rivals = Vec::new();
    for (name, side) in &mut sides {
        let aim = aim.filter(|_| *name == "floor").map(BenchTarget::Ratio);
        rivals.push(Competitor { name: (*name).to_owned(), aim, side: side.as_mut() });
    }
    for (name, aim, side) in &mut spawned {
        rivals.push(Competitor { name: (*name).to_owned(), aim: aim.map(BenchTarget::Ratio), side });
    }
    report.race(what, &mut *ours, rivals)
}

fn small_calls(report: &mut BenchReport, yard: &WorkspaceData, running: &mut [RunningServer]) -> Result<()> {
    let least = |words: PeerKind, _: &str| {
        let first = PeerWork::Page { path: &yard.small[0], from: 1, lines: 1, byte: 0, bytes: 60 };
        Some(vec![words.call(if words == PeerKind::Helve { first } else { PeerWork::Noop })?])
    };
    race(report, ("smallest call", Some(1.5)), running, &least, Vec::new())?;
    let read = |words: PeerKind, _: &str| yard.small.iter().map(|path| words.call(PeerWork::Read(path))).collect();
    race(report, ("read 1 KB", Some(1.7)), running, &read, Vec::new())?;
    let text = Rng::new().text(4 << 10);
    let write = |words: PeerKind, name: &str| {
        let paths = (0..100).map(|at| yard.root.join(format!("out/{name}_{at}.txt")));
        paths.map(|path| words.call(PeerWork::Write(&path, &text))).collect()
    };
    race(report, ("write 4 KB, in memory, so that syncing is free", Some(2.0)), running, &write, Vec::new())?;
    let run = |words: PeerKind, _: &str| Some(vec![words.call(PeerWork::Run("true"))?]);
    let mut bash = Command::new("bash");
    bash.args(["-c", "true"]);
    race(report, ("run `true`, ours in the sandbox", None), running, &run, vec![("spawn `bash -c true`", None, bash)])
}

fn large_files(report: &mut BenchReport, yard: &WorkspaceData, running: &mut [RunningServer]) -> Result<()> {
    let pages = yard.lines / PAGE;
    let page = |at: usize| {
        let bytes = yard.bytes / pages;
        PeerWork::Page { path: &yard.big, from: at * PAGE + 1, lines: PAGE, byte: at * bytes, bytes }
    };
    let last = |words: PeerKind, _: &str| Some(vec![words.call(page(pages - 1))?]);
    race(report, ("last 1,000 lines of 10 MB", Some(2.0)), running, &last, Vec::new())?;
    // All pages are one piece of work.
    let mut sides: Vec<(&'static str, Box<BenchWork<'_>>)> = Vec::new();
    for it in running.iter_mut() {
        let Some(calls) = (0..pages).map(|at| it.words.call(page(at))).collect::<Option<CallCycle>>() else { continue };
        let peer = &mut it.peer;
        let all = move |times: usize| {
            repeat(times, || calls.iter().try_for_each(|(tool, args)| peer.call(tool, args).map(drop)))
        };
        sides.push((it.name, Box::new(all)));
    }
    race_batches(report, (&format!("10 MB in {pages} pages"), 1.5), sides)?;

    let text = Rng::new().text(512 << 10);
    for it in running.iter() {
        fs::write(yard.edited(it.name), format!("{text}{}\n{text}", MARKS[0]))?;
    }
    let edit = |words: PeerKind, name: &str| {
        let path = yard.edited(name);
        [(0, 1), (1, 0)]
            .map(|(old, new)| words.call(PeerWork::Edit(&path, MARKS[old], MARKS[new])))
            .into_iter()
            .collect()
    };
    race(report, ("unique edit in 1 MB", Some(1.5)), running, &edit, Vec::new())?;
    let list = |words: PeerKind, _: &str| Some(vec![words.call(PeerWork::List(&yard.entries))?]);
    race(report, ("list 10,000 entries", Some(1.5)), running, &list, Vec::new())
}

fn searches(report: &mut BenchReport, yard: &WorkspaceData, running: &mut [RunningServer]) -> Result<()> {
    let rg = find_program(&["rg"]);
    if rg.is_none() {
        report.skip("rg is not installed: searches are not compared with it (Debian: apt install ripgrep)");
    }
    let spawn = |args: &[&str], folder: &Path| {
        rg.iter()
            .map(|rg| {
                let mut command = Command::new(rg);
                command.arg("--no-config").args(args).arg(folder);
                ("spawn `rg`", Some(1.0), command)
            })
            .collect::<Vec<_>>()
    };
    let glob = |words: PeerKind, _: &str| Some(vec![words.call(PeerWork::Glob(&yard.tree, "proto"))?]);
    let what = format!("glob, {} hits in {} files", yard.files / 100, yard.files);
    race(report, (&what, None), running, &glob, spawn(&["--files", "-uuu", "-g", "*.proto"], &yard.tree))?;
    for (what, pattern) in [("literal", NEEDLE), ("regex", HANDLER)] {
        let grep = |words: PeerKind, _: &str| Some(vec![words.call(PeerWork::Grep(&yard.texts, pattern))?]);
        let what = format!("grep {what}, {} MB", yard.megabytes);
        race(report, (&what, None), running, &grep, spawn(&["-n", pattern], &yard.texts))?;
    }
    Ok(())
}

fn bursts(report: &mut BenchReport, yard: &WorkspaceData, running: &mut [RunningServer]) -> Result<()> {
    let mut sides: Vec<(&'static str, Box<BenchWork<'_>>)> = Vec::new();
    for it in running.iter_mut() {
        let calls: Option<CallCycle> =
            yard.small.iter().cycle().take(BURST).map(|path| it.words.call(PeerWork::Read(path))).collect();
        let Some(calls) = calls else { continue };
        let Some(tool) = calls.first().map(|it| it.0) else { continue };
        let args: Vec<Value> = calls.into_iter().map(|it| it.1).collect();
        let peer = &mut it.peer;
        sides.push((it.name, Box::new(move |times: usize| repeat(times, || peer.burst(tool, &args)))));
    }
    race_batches(report, ("1,000 reads of 1 KB in flight", 1.5), sides)?;
    let Some(ours) = running.first_mut() else { return Ok(()) };
    let peer = std::cell::RefCell::new(&mut ours.peer);
    let yard = &yard;
    report.measure_growth(
        ("reads in flight", "calls"),
        &[10, 100, 1_000, 10_000],
        &mut [("helve mcp", &mut |size| {
            let calls =
                yard.small.iter().cycle().take(size).filter_map(|path| PeerKind::Helve.call(PeerWork::Read(path)));
            let args: Vec<Value> = calls.map(|it| it.1).collect();
            let peer = &peer;
            Ok(Box::new(move |times| repeat(times, || peer.borrow_mut().burst("read", &args))))
        })],
    )
}

/// Races sides that each do their whole work at once. The second is the baseline.
fn race_batches(
    report: &mut BenchReport,
    (what, aim): (&str, f64),
    sides: Vec<(&'static str, Box<BenchWork<'_>>)>,
) -> Result<()> {
    let mut sides = sides;
    let (ours, others) = sides.split_first_mut().context("nobody does it")?;
    let rivals = others.iter_mut().map(|(name, side)| Competitor {
        name: (*name).to_owned(),
        aim: (*name == "floor").then_some(BenchTarget::Ratio(aim)),
        side: side.as_mut(),
    });
    report.race(what, ours.1.as_mut(), rivals.collect())
}

/// The files that all work on.
struct WorkspaceData {
    root: PathBuf,
    small: Vec<PathBuf>,
    big: PathBuf,
    lines: usize,
    bytes: usize,
    entries: PathBuf,
    tree: PathBuf,
    files: usize,
    texts: PathBuf,
    megabytes: usize,
}

impl WorkspaceData {
    fn new(root: &Path, is_small: bool) -> Result<Self> {
        let root = root.join("work");
        let (mut dice, mut small) = (Rng::new(), Vec::new());
        for folder in ["small", "out", "entries"] {
            fs::create_dir_all(root.join(folder))?;
        }
        for at in 0..1_000 {
            small.push(root.join(format!("small/f_{at:04}.txt")));
            fs::write(&small[at], dice.text(1 << 10))?;
        }
        let text = dice.text(10 << 20);
        fs::write(root.join("big.txt"), &text)?;
        for at in 0..10_000 {
            fs::write(root.join(format!("entries/entry_{at:05}.txt")), "")?;
        }
        let (files, megabytes) = if is_small { (10_000, 20) } else { (100_000, 200) };
        data::empty_files(&root.join("tree"), files)?;
        data::text_files(&root.join("texts"), megabytes * 50)?;
        Ok(Self {
            small,
            big: root.join("big.txt"),
            lines: text.lines().count(),
            bytes: text.len(),
            entries: root.join("entries"),
            tree: root.join("tree"),
            files,
            texts: root.join("texts"),
            megabytes,
            root,
        })
    }

    /// Each server has a file of its own, so that none waits for another.
    fn edited(&self, name: &str) -> PathBuf {
        self.root.join(format!("out/edited_{name}.txt"))
    }
}
