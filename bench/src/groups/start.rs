//! From process start to `tools/list`: time and resident memory.

use std::{sync::mpsc, thread};

use anyhow::{Context, Result};

use crate::{
    desk::tmpfs_dir,
    peers::PeerServer,
    report::{BenchReport, BenchTarget, Competitor},
    wire::PeerProcess,
};

/// The target ratio to the baseline, and the memory target in megabytes.
const AIM: BenchTarget = BenchTarget::Ratio(2.5);
const MEMORY: BenchTarget = BenchTarget::Most(8.0);

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let Some(helve) = super::helve(report)? else { return Ok(()) };
    let (_held, root) = tmpfs_dir()?;
    let (work, home) = (root.join("work"), root.join("home"));
    std::fs::create_dir(&work)?;
    let (mut others, missing) = PeerServer::installed(&home, &work);
    for name in missing {
        report.skip(&format!("{name} is not installed (bench/peers)"));
    }
    others.insert(0, PeerServer::floor()?);
    // Ending takes a while as well, and is not what is measured.
    let (ended, end) = mpsc::channel::<PeerProcess>();
    let reaper = thread::spawn(move || end.into_iter().for_each(drop));
    let start = |server: &PeerServer, times: usize| -> Result<()> {
        (0..times).try_for_each(|_| {
            let mut peer = server.start()?;
            peer.initialize()?;
            ended.send(peer).ok().context("the reaper is gone")
        })
    };
    for dialect in ["solo", "claude"] {
        let ours = PeerServer::helve(&helve, dialect, &home.join("helve"), &work);
        let mut sides: Vec<_> = others.iter().map(|server| (server.name, |times| start(server, times))).collect();
        let rivals = sides.iter_mut().filter(|it| dialect == "solo" || it.0 == "floor");
        let rivals = rivals.map(|(name, side)| Competitor {
            aim: (*name == "floor").then_some(AIM),
            name: (*name).to_owned(),
            side,
        });
        report.race(&format!("start to tools/list, {dialect}"), &mut |times| start(&ours, times), rivals.collect())?;

        let mut peer = ours.start()?;
        // Asked twice: what a server does after its first answer is done before the second.
        peer.initialize()?;
        let tools = peer.initialize()?;
        let count = tools["result"]["tools"].as_array().map_or(0, Vec::len);
        report.figure(
            &format!("resident after tools/list, {dialect}, {count} tools"),
            peer.memory().0,
            "MB",
            Some(MEMORY),
        );
    }
    for server in &others {
        let mut peer = server.start()?;
        if peer.initialize().is_ok() && peer.initialize().is_ok() {
            report.figure(&format!("resident after tools/list, {}", server.name), peer.memory().0, "MB", None);
        }
    }
    drop(ended);
    _ = reaper.join();
    Ok(())
}
