//! Patches of one to a thousand places, beside `git apply`.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::files::{repeat, run_program};
use crate::{
    desk::{BenchSession, find_program, tmpfs_dir},
    peers::cached,
    report::{BenchReport, BenchTarget, BenchWork, Competitor, PreparedWork},
};

/// Lines of the file: room for the most places.
const LINES: usize = 20_000;
/// Lines from one place to the next.
const STRIDE: usize = 20;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = tmpfs_dir()?;
    let desk = BenchSession::new("solo", &root)?;
    let git = find_program(&["git"]);
    if git.is_none() {
        report.skip("git is not installed: apply_patch is compared with itself alone (Debian: apt install git)");
    }
    let old = text(0);
    let codex = cached("node/apply_patch").or_else(|| find_program(&["apply_patch"]));
    if codex.is_none() {
        report.skip("codex is not installed: its apply_patch is not compared (bench/peers)");
    }
    for places in [1, 10, 100, 1000] {
        let patches = PatchCase::new(&root, places)?;
        for name in ["ours.txt", "theirs.txt", "codex.txt"] {
            fs::write(root.join(name), &old)?;
        }
        let (mut ours, mut theirs, mut third) = (0, 0, 0);
        let mut git = git.as_ref().map(|git| {
            let (patches, root, theirs) = (&patches, &root, &mut theirs);
            move |times: usize| repeat(times, || patches.git(git, root, theirs))
        });
        let mut codex = codex.as_ref().map(|codex| {
            let (patches, root, third) = (&patches, &root, &mut third);
            move |times: usize| repeat(times, || patches.codex(codex, root, third))
        });
        let mut rivals = Vec::new();
        if let Some(side) = &mut git {
            let name = "spawn `git apply` (no fsync)".to_owned();
            rivals.push(Competitor { name, aim: Some(BenchTarget::Ratio(1.0)), side: side as &mut BenchWork<'_> });
        }
        if let Some(side) = &mut codex {
            rivals.push(Competitor {
                name: "spawn codex's apply_patch".to_owned(),
                aim: Some(BenchTarget::Ratio(1.0)),
                side,
            });
        }
        let what = format!("apply_patch, {places} hunks in {LINES} lines");
        report.race(&what, &mut |times| repeat(times, || patches.ours(&desk, &mut ours)), rivals)?;
        let states = [old.clone().into_bytes(), text(places).into_bytes()];
        for name in ["ours.txt", "theirs.txt", "codex.txt"] {
            ensure!(states.contains(&fs::read(root.join(name))?), "{name}: a patch did not do what it says");
        }
    }
    let (desk, top) = (&desk, &root);
    let mut ours = |places: usize| -> Result<PreparedWork<'_>> {
        fs::write(top.join("ours.txt"), text(0))?;
        let (patches, mut turn) = (PatchCase::new(top, places)?, 0);
        Ok(Box::new(move |times| repeat(times * 2, || patches.ours(desk, &mut turn))))
    };
    report.measure_growth(("apply_patch, there and back", "hunks"), &[1, 10, 100, 1_000], &mut [("helve", &mut ours)])
}

/// The file, with this many places changed.
fn text(places: usize) -> String {
    let mut text = String::new();
    for at in 0..LINES {
        let changed = at % STRIDE == STRIDE / 2 && at / STRIDE < places;
        _ = writeln!(text, "{}", line(at, changed));
    }
    text
}

fn line(at: usize, changed: bool) -> String {
    if changed { format!("changed line {at} of the file") } else { format!("line {at} of the file") }
}

/// The same change and the way back, as each side reads it.
struct PatchCase {
    /// Arguments for the tool: there, and back.
    ours: [String; 2],
    /// The same for codex, about a file of its own.
    codex: [String; 2],
    /// Files for git: there, and back.
    theirs: [std::path::PathBuf; 2],
}

impl PatchCase {
    fn new(root: &Path, places: usize) -> Result<Self> {
        let theirs = [root.join(format!("there_{places}.diff")), root.join(format!("back_{places}.diff"))];
        for (path, back) in theirs.iter().zip([false, true]) {
            fs::write(path, unified(places, back))?;
        }
        let ours = [false, true].map(|back| json!({ "patch": envelope("ours.txt", places, back) }).to_string());
        let codex = [false, true].map(|back| envelope("codex.txt", places, back));
        Ok(Self { ours, codex, theirs })
    }

    fn ours(&self, desk: &BenchSession, turn: &mut usize) -> Result<()> {
        *turn += 1;
        desk.repeat(1, "apply_patch", &self.ours[(*turn + 1) % 2])
    }

    /// It takes the patch as an argument, or on standard input where it is long.
    fn codex(&self, codex: &Path, root: &Path, turn: &mut usize) -> Result<()> {
        *turn += 1;
        let mut child = Command::new(codex).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(self.codex[(*turn + 1) % 2].as_bytes())?;
        }
        ensure!(child.wait()?.success(), "it failed");
        Ok(())
    }

    fn git(&self, git: &Path, root: &Path, turn: &mut usize) -> Result<()> {
        *turn += 1;
        run_program(Command::new(git).arg("apply").arg(&self.theirs[(*turn + 1) % 2]).current_dir(root))
    }
}

/// A place with three lines around it.
fn hunk(place: usize, back: bool) -> String {
    let at = place * STRIDE + STRIDE / 2;
    let mut text = String::new();
    for near in at - 3..at {
        _ = writeln!(text, " {}", line(near, false));
    }
    _ = writeln!(text, "-{}\n+{}", line(at, back), line(at, !back));
    for near in at + 1..=at + 3 {
        _ = writeln!(text, " {}", line(near, false));
    }
    text
}

fn envelope(file: &str, places: usize, back: bool) -> String {
    let mut text = format!("*** Begin Patch\n*** Update File: {file}\n");
    for place in 0..places {
        _ = write!(text, "@@\n{}", hunk(place, back));
    }
    text + "*** End Patch\n"
}

fn unified(places: usize, back: bool) -> String {
    let mut text = "--- a/theirs.txt\n+++ b/theirs.txt\n".to_owned();
    for place in 0..places {
        let from = place * STRIDE + STRIDE / 2 - 2;
        _ = write!(text, "@@ -{from},7 +{from},7 @@\n{}", hunk(place, back));
    }
    text
}
