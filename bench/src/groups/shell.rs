//! The in-memory shell: a small command, whole files and trees; compared with just-bash and with `bash` as a process.

use std::{cell::RefCell, fmt::Write as _, fs, process::Command};

use anyhow::{Result, anyhow, ensure};
use helve_hosts::memory::{MemoryHost, Script};
use serde_json::json;
use tokio::runtime::Runtime;

use super::files::{repeat, run_program};
use crate::{
    data::numbered_lines,
    desk::tmpfs_dir,
    peers::PeerServer,
    report::{BenchReport, BenchTarget, BenchWork, Competitor},
};

/// What a small command may take.
const LIMIT: f64 = 100.0;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = tmpfs_dir()?;
    let work = root.join("work");
    let shell = MemoryShell::new()?;
    let (lines, files) = if report.effort.is_small() { (1_000, 50) } else { (50_000, 1_000) };
    fs::create_dir_all(work.join("tree"))?;
    fs::write(work.join("lines.txt"), numbered_lines(lines))?;
    for at in 0..files {
        fs::write(work.join(format!("tree/f_{at:04}.txt")), numbered_lines(20))?;
    }
    shell.fill(lines, files)?;
    let theirs = PeerServer::just_bash(&root.join("home"), &work)?;
    let peer = match theirs {
        Some(server) => {
            let mut peer = server.start()?;
            peer.initialize()?;
            Some(RefCell::new(peer))
        }
        None => {
            report.skip("just-bash is not installed (bench/peers)");
            None
        }
    };
    let whole = format!("sort and count {lines} lines");
    let tree = format!("grep in a tree of {files} files");
    let commands = [
        ("one small command", "echo hello", Some(BenchTarget::Micros(LIMIT)), None),
        ("a pipe of three", "echo b a c | tr ' ' '\\n' | sort", None, Some(1.0)),
        (whole.as_str(), "sort lines.txt | wc -l", None, Some(1.0)),
        ("cat a file whole", "cat lines.txt | wc -c", None, Some(1.0)),
        (tree.as_str(), "grep -rl 'line 19' tree | wc -l", None, Some(1.0)),
        ("a loop of 1,000 rounds", "for ((i=0;i<1000;i++)); do x=$((x+i)); done; echo $x", None, Some(1.0)),
    ];
    for (what, command, aim, beside) in commands {
        let bash = || {
            let mut bash = Command::new("bash");
            bash.args(["--noprofile", "--norc", "-c", command]).current_dir(&work);
            bash
        };
        let expected = String::from_utf8(bash().output()?.stdout)?;
        let got = shell.run(command)?;
        ensure!(got.trim() == expected.trim(), "{command}: `{got}` and not `{expected}`");
        let mut process = |times: usize| repeat(times, || run_program(&mut bash()));
        let args = json!({ "commands": format!("cd {}; {command}", work.display()) });
        let mut other = peer
            .as_ref()
            .map(|peer| move |times: usize| repeat(times, || peer.borrow_mut().call("bash", &args).map(drop)));
        let mut rivals =
            vec![Competitor { name: "spawn `bash -c`".to_owned(), aim, side: &mut process as &mut BenchWork<'_> }];
        if let Some(side) = &mut other {
            rivals.push(Competitor {
                name: "just-bash, over a pipe".to_owned(),
                aim: beside.map(BenchTarget::Ratio),
                side,
            });
        }
        report.race(what, &mut |times| repeat(times, || shell.run(command).map(drop)), rivals)?;
    }
    growth(report)
}

fn growth(report: &mut BenchReport) -> Result<()> {
    let mut sort = |lines: usize| -> Result<crate::report::PreparedWork<'static>> {
        let shell = MemoryShell::new()?;
        shell.fill(lines, 0)?;
        Ok(Box::new(move |times| repeat(times, || shell.run("sort lines.txt | wc -l").map(drop))))
    };
    report.measure_growth(
        ("sort | wc in memory", "lines"),
        &[100, 1_000, 10_000, 100_000],
        &mut [("helve", &mut sort)],
    )?;
    let mut grep = |files: usize| -> Result<crate::report::PreparedWork<'static>> {
        let shell = MemoryShell::new()?;
        shell.fill(1, files)?;
        Ok(Box::new(move |times| repeat(times, || shell.run("grep -rl 'line 19' tree | wc -l").map(drop))))
    };
    report.measure_growth(("grep -r in memory", "files"), &[10, 100, 1_000, 10_000], &mut [("helve", &mut grep)])?;
    let mut turns = |rounds: usize| -> Result<crate::report::PreparedWork<'static>> {
        let shell = MemoryShell::new()?;
        let script = format!("for ((i=0;i<{rounds};i++)); do x=$((x+i)); done; echo $x");
        Ok(Box::new(move |times| repeat(times, || shell.run(&script).map(drop))))
    };
    report.measure_growth(("a loop in memory", "rounds"), &[100, 1_000, 10_000, 100_000], &mut [("helve", &mut turns)])
}

/// Files in memory, and a shell over them.
struct MemoryShell {
    memory: MemoryHost,
    runtime: Runtime,
}

impl MemoryShell {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { memory: MemoryHost::new(), runtime })
    }

    fn fill(&self, lines: usize, files: usize) -> Result<()> {
        let mut script = format!("mkdir -p tree\ncat > lines.txt <<'END'\n{}END\n", numbered_lines(lines));
        let text = numbered_lines(20);
        for at in 0..files {
            _ = write!(script, "cat > tree/f_{at:04}.txt <<'END'\n{text}END\n");
            if script.len() > 1 << 20 {
                self.run(&std::mem::take(&mut script))?;
            }
        }
        self.run(&script).map(drop)
    }

    fn run(&self, script: &str) -> Result<String> {
        let ended = self.runtime.block_on(self.memory.run(Script::new(script))).map_err(|it| anyhow!("{it}"))?;
        ensure!(ended.code == 0, "ended with {}: {}", ended.code, String::from_utf8_lossy(&ended.stderr));
        Ok(String::from_utf8(ended.stdout)?)
    }
}
