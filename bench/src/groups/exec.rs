//! `true` behind each wall that works here, beside a plain spawn and beside `bwrap` alone.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Result, ensure};
use helve_contract::ports::{Host, Level};
use helve_engine::{is_homely, protected_places};
use helve_hosts::{Local, Runner, Sandbox, SandboxSettings, Wanted};

use super::files::{repeat, spawned};
use crate::{
    desk::{Desk, on_disk, program},
    report::{Aim, Duel, Ready, Report},
};

/// What a model sends.
const ARGS: &str = r#"{"command": "true"}"#;
/// The shell as the sandbox starts it.
const SHELL: [&str; 5] = ["/usr/bin/bash", "--noprofile", "--norc", "-c", "true"];

pub(super) fn run(report: &mut Report) -> Result<()> {
    let (_held, root) = on_disk()?;
    let work = root.join("work");
    std::fs::create_dir(&work)?;
    let bwrap = program(&["bwrap"]);
    if bwrap.is_none() {
        report.skip("bwrap is not installed: nothing is compared with it (Debian: apt install bubblewrap)");
    }
    for level in [Level::Full, Level::Nested, Level::Rules, Level::None] {
        let Some(desk) = behind(report, level, &root, protected_places())? else { continue };
        one(report, &desk, level, &work, bwrap.as_deref())?;
        if level == Level::Full {
            let Some(open) = behind(report, level, &root, &[])? else { continue };
            report.duel(
                Duel::of("exec `true` at L3", "the same, no places protected"),
                &mut |times| desk.repeat(times, "exec", ARGS),
                &mut |times| open.repeat(times, "exec", ARGS),
            )?;
        }
        if level == Level::None {
            growth(report, &desk)?;
        }
    }
    Ok(())
}

/// How running grows with what a command writes.
fn growth(report: &mut Report, desk: &Desk) -> Result<()> {
    let script = |bytes: usize| format!("head -c {bytes} /dev/zero | tr '\\0' x");
    let mut ours = |bytes: usize| -> Result<Ready<'_>> {
        let args = serde_json::json!({ "command": script(bytes) }).to_string();
        Ok(Box::new(move |times| desk.repeat(times, "exec", &args)))
    };
    let mut plain = |bytes: usize| -> Result<Ready<'_>> {
        let script = script(bytes);
        Ok(Box::new(move |times| repeat(times, || spawned(Command::new(SHELL[0]).args(&SHELL[1..4]).arg(&script)))))
    };
    let sizes = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    report.grow(("output of a command", "bytes"), &sizes, &mut [("helve", &mut ours), ("spawn `bash -c`", &mut plain)])
}

/// An engine whose commands run at this level, if it works here.
fn behind(report: &mut Report, level: Level, root: &Path, protected: &[&str]) -> Result<Option<Desk>> {
    // As the program does: what matters only in a home is protected there.
    let (protected_at_home, protected) =
        protected.iter().map(|it| (*it).to_owned()).partition(|name: &String| is_homely(name));
    let settings =
        SandboxSettings { wanted: Wanted::Exactly(level), protected, protected_at_home, ..SandboxSettings::default() };
    let sandbox = Sandbox::probe(settings).map_err(|error| anyhow::anyhow!("{error}"))?;
    if sandbox.report().level != Some(level) {
        let trials = &sandbox.report().trials;
        let why = trials.iter().find_map(|it| it.trouble.clone()).unwrap_or_else(|| "no reason given".to_owned());
        report.skip(&format!("{} does not work here: {why}", level.name()));
        return Ok(None);
    }
    let host: Arc<dyn Host> = Arc::new(Local::with(Arc::new(sandbox)));
    let tasks = Arc::new(Runner::new(host.clone(), root.join("out")));
    Desk::shell("solo", &root.join("work"), host, tasks).map(Some)
}

fn one(report: &mut Report, desk: &Desk, level: Level, work: &Path, bwrap: Option<&Path>) -> Result<()> {
    let reply = desk.ask("exec", ARGS)?;
    ensure!(reply.exit == Some(0), "true ended with {:?}: {}", reply.exit, reply.text);
    let ours = format!("exec `true` at {}", level.name());
    if let Some(bwrap) = bwrap.filter(|_| level >= Level::Nested) {
        report.duel(
            Duel::of(&ours, "spawn `bwrap … bash -c true`").aim(Aim::Ratio(1.2)),
            &mut |times| desk.repeat(times, "exec", ARGS),
            &mut |times| repeat(times, || spawned(&mut bare(bwrap, level, work))),
        )?;
    }
    let mut shell = Duel::of(&ours, "spawn `bash -c true`");
    match level {
        Level::Rules => shell = shell.aim(Aim::Ratio(2.0)),
        Level::None => shell = shell.aim(Aim::Ratio(1.5)),
        _ => {}
    }
    report.duel(shell, &mut |times| desk.repeat(times, "exec", ARGS), &mut |times| {
        repeat(times, || spawned(Command::new(SHELL[0]).args(&SHELL[1..])))
    })?;
    report.duel(Duel::of(&ours, "spawn `true`"), &mut |times| desk.repeat(times, "exec", ARGS), &mut |times| {
        repeat(times, || spawned(&mut Command::new("true")))
    })
}

/// The same namespaces and about the same mounts, and nothing else.
fn bare(bwrap: &Path, level: Level, work: &Path) -> Command {
    let mut command = Command::new(bwrap);
    command.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    command.args(["--unshare-net", "--cap-drop", "ALL", "--new-session", "--die-with-parent"]);
    for dir in ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"].map(PathBuf::from) {
        if let Ok(target) = dir.read_link() {
            command.arg("--symlink").args([&target, &dir]);
        } else if dir.is_dir() {
            command.arg("--ro-bind").args([&dir, &dir]);
        }
    }
    match level {
        Level::Nested => command.args(["--ro-bind", "/proc", "/proc"]),
        _ => command.args(["--proc", "/proc"]),
    };
    command.args(["--dev", "/dev", "--tmpfs", "/run", "--tmpfs", "/tmp", "--bind"]).args([work, work]);
    command.arg("--chdir").arg(work).arg("--").args(SHELL);
    command
}
