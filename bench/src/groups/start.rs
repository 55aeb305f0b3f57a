//! From nothing to `tools/list`: the time, and the memory that is held then.

use std::{sync::mpsc, thread};

use anyhow::{Context, Result};

use crate::{
    desk::in_memory,
    peers::Server,
    report::{Aim, Report, Rival},
    wire::Peer,
};

/// How many times the floor a start may take, and the megabytes that it may hold.
const AIM: Aim = Aim::Ratio(2.5);
const MEMORY: Aim = Aim::Most(8.0);

pub(super) fn run(report: &mut Report) -> Result<()> {
    let Some(helve) = super::helve(report)? else { return Ok(()) };
    let (_held, root) = in_memory()?;
    let (work, home) = (root.join("work"), root.join("home"));
    std::fs::create_dir(&work)?;
    let (mut others, missing) = Server::installed(&home, &work);
    for name in missing {
        report.skip(&format!("{name} is not installed (bench/peers)"));
    }
    others.insert(0, Server::floor()?);
    // Ending takes a while as well, and is not what is measured.
    let (ended, end) = mpsc::channel::<Peer>();
    let reaper = thread::spawn(move || end.into_iter().for_each(drop));
    let start = |server: &Server, times: usize| -> Result<()> {
        (0..times).try_for_each(|_| {
            let mut peer = server.start()?;
            peer.listed()?;
            ended.send(peer).ok().context("the reaper is gone")
        })
    };
    for dialect in ["solo", "claude"] {
        let ours = Server::helve(&helve, dialect, &home.join("helve"), &work);
        let mut sides: Vec<_> = others.iter().map(|server| (server.name, |times| start(server, times))).collect();
        let rivals = sides.iter_mut().filter(|it| dialect == "solo" || it.0 == "floor");
        let rivals =
            rivals.map(|(name, side)| Rival { aim: (*name == "floor").then_some(AIM), name: (*name).to_owned(), side });
        report.race(&format!("start to tools/list, {dialect}"), &mut |times| start(&ours, times), rivals.collect())?;

        let mut peer = ours.start()?;
        // Asked twice: what a server does after its first answer is done before the second.
        peer.listed()?;
        let tools = peer.listed()?;
        let count = tools["result"]["tools"].as_array().map_or(0, Vec::len);
        report.fact(
            &format!("resident after tools/list, {dialect}, {count} tools"),
            peer.memory().0,
            "MB",
            Some(MEMORY),
        );
    }
    for server in &others {
        let mut peer = server.start()?;
        if peer.listed().is_ok() && peer.listed().is_ok() {
            report.fact(&format!("resident after tools/list, {}", server.name), peer.memory().0, "MB", None);
        }
    }
    drop(ended);
    _ = reaper.join();
    Ok(())
}
