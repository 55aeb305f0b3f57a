//! Patches of one to a thousand places, beside `git apply`.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Result, ensure};
use serde_json::json;

use super::files::{repeat, spawned};
use crate::{
    desk::{Desk, in_memory, program},
    report::{Aim, Duel, Report},
};

/// Lines of the file: room for the most places.
const LINES: usize = 20_000;
/// Lines from one place to the next.
const STRIDE: usize = 20;

pub(super) fn run(report: &mut Report) -> Result<()> {
    let (_held, root) = in_memory()?;
    let desk = Desk::new("solo", &root)?;
    let git = program(&["git"]);
    if git.is_none() {
        report.skip("git is not installed: apply_patch is compared with itself alone (Debian: apt install git)");
    }
    let old = text(0);
    let first = Patches::new(&root, 1)?;
    for places in [1, 10, 100, 1000] {
        let patches = Patches::new(&root, places)?;
        if let Some(git) = &git {
            fs::write(root.join("ours.txt"), &old)?;
            fs::write(root.join("theirs.txt"), &old)?;
            let (mut ours, mut theirs) = (0, 0);
            report.duel(
                Duel::of(&format!("apply_patch, {places} hunks"), "spawn `git apply` (no fsync)"),
                &mut |times| repeat(times, || patches.ours(&desk, &mut ours)),
                &mut |times| repeat(times, || patches.git(git, &root, &mut theirs)),
            )?;
            let (ours, theirs) = (fs::read(root.join("ours.txt"))?, fs::read(root.join("theirs.txt"))?);
            let states = [old.clone().into_bytes(), text(places).into_bytes()];
            ensure!(states.contains(&ours) && states.contains(&theirs), "a patch did not do what it says");
        }
        if places > 1 {
            fs::write(root.join("ours.txt"), &old)?;
            let (mut many, mut one) = (0, 0);
            // The file is put back after each, so that both sides always find what they look for.
            report.duel(
                Duel::of(&format!("apply_patch, {places} hunks"), "the same, 1 hunk").aim(Aim::Ratio(places as f64)),
                &mut |times| repeat(times * 2, || patches.ours(&desk, &mut many)),
                &mut |times| repeat(times * 2, || first.ours(&desk, &mut one)),
            )?;
        }
    }
    Ok(())
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
struct Patches {
    /// Arguments for the tool: there, and back.
    ours: [String; 2],
    /// Files for git: there, and back.
    theirs: [std::path::PathBuf; 2],
}

impl Patches {
    fn new(root: &Path, places: usize) -> Result<Self> {
        let theirs = [root.join(format!("there_{places}.diff")), root.join(format!("back_{places}.diff"))];
        for (path, back) in theirs.iter().zip([false, true]) {
            fs::write(path, unified(places, back))?;
        }
        let ours = [false, true].map(|back| json!({ "patch": envelope(places, back) }).to_string());
        Ok(Self { ours, theirs })
    }

    fn ours(&self, desk: &Desk, turn: &mut usize) -> Result<()> {
        *turn += 1;
        desk.repeat(1, "apply_patch", &self.ours[(*turn + 1) % 2])
    }

    fn git(&self, git: &Path, root: &Path, turn: &mut usize) -> Result<()> {
        *turn += 1;
        spawned(Command::new(git).arg("apply").arg(&self.theirs[(*turn + 1) % 2]).current_dir(root))
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

fn envelope(places: usize, back: bool) -> String {
    let mut text = "*** Begin Patch\n*** Update File: ours.txt\n".to_owned();
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
