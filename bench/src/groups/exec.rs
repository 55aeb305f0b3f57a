//! `true` at each sandbox level that works here, compared with a plain spawn and with `bwrap` alone.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Result, ensure};
use helve_contract::ports::{Host, SandboxLevel};
use helve_engine::{is_home_only, maskable_paths};
use helve_hosts::{LevelPolicy, LocalHost, Sandbox, SandboxConfig, TaskRunner};

use super::files::{repeat, run_program};
use crate::{
    desk::{BenchSession, disk_dir, find_program},
    report::{BenchReport, BenchTarget, ComparisonSpec, PreparedWork},
};

/// What a model sends.
const ARGS: &str = r#"{"command": "true"}"#;
/// The shell as the sandbox starts it.
const SHELL: [&str; 5] = ["/usr/bin/bash", "--noprofile", "--norc", "-c", "true"];

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = disk_dir()?;
    let work = root.join("work");
    std::fs::create_dir(&work)?;
    let bwrap = find_program(&["bwrap"]);
    if bwrap.is_none() {
        report.skip("bwrap is not installed: nothing is compared with it (Debian: apt install bubblewrap)");
    }
    for level in [SandboxLevel::Full, SandboxLevel::Nested, SandboxLevel::Rules, SandboxLevel::None] {
        let Some(desk) = session_at_level(report, level, &root, maskable_paths())? else { continue };
        compare_level(report, &desk, level, &work, bwrap.as_deref())?;
        if level == SandboxLevel::Full {
            let Some(open) = session_at_level(report, level, &root, &[])? else { continue };
            report.compare(
                ComparisonSpec::of("exec `true` at L3", "the same, no places protected"),
                &mut |times| desk.repeat(times, "exec", ARGS),
                &mut |times| open.repeat(times, "exec", ARGS),
            )?;
        }
        if level == SandboxLevel::None {
            growth(report, &desk)?;
        }
    }
    Ok(())
}

/// How running grows with what a command writes.
fn growth(report: &mut BenchReport, desk: &BenchSession) -> Result<()> {
    let script = |bytes: usize| format!("head -c {bytes} /dev/zero | tr '\\0' x");
    let mut ours = |bytes: usize| -> Result<PreparedWork<'_>> {
        let args = serde_json::json!({ "command": script(bytes) }).to_string();
        Ok(Box::new(move |times| desk.repeat(times, "exec", &args)))
    };
    let mut plain = |bytes: usize| -> Result<PreparedWork<'_>> {
        let script = script(bytes);
        Ok(Box::new(move |times| repeat(times, || run_program(Command::new(SHELL[0]).args(&SHELL[1..4]).arg(&script)))))
    };
    let sizes = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    report.measure_growth(
        ("output of a command", "bytes"),
        &sizes,
        &mut [("helve", &mut ours), ("spawn `bash -c`", &mut plain)],
    )
}

/// An engine whose commands run at this level, if it works here.
fn session_at_level(
    report: &mut BenchReport,
    level: SandboxLevel,
    root: &Path,
    protected: &[&str],
) -> Result<Option<BenchSession>> {
    // As the program does: what matters only in a home is protected there.
    let (protected_at_home, protected) =
        protected.iter().map(|it| (*it).to_owned()).partition(|name: &String| is_home_only(name));
    let settings =
        SandboxConfig { level: LevelPolicy::Exactly(level), protected, protected_at_home, ..SandboxConfig::default() };
    let sandbox = Sandbox::probe(settings).map_err(|error| anyhow::anyhow!("{error}"))?;
    if sandbox.report().level != Some(level) {
        let trials = &sandbox.report().probes;
        let why = trials.iter().find_map(|it| it.failure.clone()).unwrap_or_else(|| "no reason given".to_owned());
        report.skip(&format!("{} does not work here: {why}", level.name()));
        return Ok(None);
    }
    let host: Arc<dyn Host> = Arc::new(LocalHost::with_spawner(Arc::new(sandbox)));
    let tasks = Arc::new(TaskRunner::new(host.clone(), root.join("out")));
    BenchSession::with_tasks("solo", &root.join("work"), host, tasks).map(Some)
}

fn compare_level(
    report: &mut BenchReport,
    desk: &BenchSession,
    level: SandboxLevel,
    work: &Path,
    bwrap: Option<&Path>,
) -> Result<()> {
    let reply = desk.call_tool("exec", ARGS)?;
    ensure!(reply.exit_code == Some(0), "true ended with {:?}: {}", reply.exit_code, reply.text);
    let ours = format!("exec `true` at {}", level.name());
    if let Some(bwrap) = bwrap.filter(|_| level >= SandboxLevel::Nested) {
        report.compare(
            ComparisonSpec::of(&ours, "spawn `bwrap … bash -c true`").aim(BenchTarget::Ratio(1.2)),
            &mut |times| desk.repeat(times, "exec", ARGS),
            &mut |times| repeat(times, || run_program(&mut plain_bwrap(bwrap, level, work))),
        )?;
    }
    let mut shell = ComparisonSpec::of(&ours, "spawn `bash -c true`");
    match level {
        SandboxLevel::Rules => shell = shell.aim(BenchTarget::Ratio(2.0)),
        SandboxLevel::None => shell = shell.aim(BenchTarget::Ratio(1.5)),
        _ => {}
    }
    report.compare(shell, &mut |times| desk.repeat(times, "exec", ARGS), &mut |times| {
        repeat(times, || run_program(Command::new(SHELL[0]).args(&SHELL[1..])))
    })?;
    report.compare(
        ComparisonSpec::of(&ours, "spawn `true`"),
        &mut |times| desk.repeat(times, "exec", ARGS),
        &mut |times| repeat(times, || run_program(&mut Command::new("true"))),
    )
}

/// The same namespaces and about the same mounts, and nothing else.
fn plain_bwrap(bwrap: &Path, level: SandboxLevel, work: &Path) -> Command {
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
        SandboxLevel::Nested => command.args(["--ro-bind", "/proc", "/proc"]),
        _ => command.args(["--proc", "/proc"]),
    };
    command.args(["--dev", "/dev", "--tmpfs", "/run", "--tmpfs", "/tmp", "--bind"]).args([work, work]);
    command.arg("--chdir").arg(work).arg("--").args(SHELL);
    command
}
