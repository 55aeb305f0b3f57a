//! `grep` and `glob` compared with `rg` and `fd`, on the same trees and with the same results.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::files::{repeat, run_program};
use crate::{
    data::{self, HANDLER, MARKER, NEEDLE},
    desk::{BenchSession, disk_dir, find_program, tmpfs_dir},
    report::{BenchReport, BenchTarget, ComparisonSpec, PreparedWork, WorkFactory},
};

/// One question to both sides.
struct SearchCase<'a> {
    what: &'a str,
    pattern: &'a str,
    output: SearchMode,
    any_case: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchMode {
    Content,
    Count,
    Files,
}

/// A question in a row of a table.
const fn case<'a>(what: &'a str, pattern: &'a str, output: SearchMode) -> SearchCase<'a> {
    SearchCase { what, pattern, output, any_case: false }
}

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = disk_dir()?;
    let files = if report.effort.is_small() { 500 } else { 5_000 };
    data::tree(&root, files)?;
    let questions = [
        case("rare literal, content", NEEDLE, SearchMode::Content),
        SearchCase { any_case: true, ..case("rare literal, any case, content", "NEEDLE_7f3A9c", SearchMode::Content) },
        case("regex, content", HANDLER, SearchMode::Content),
        case("once a file, content", MARKER, SearchMode::Content),
        case("common word, count", "commit", SearchMode::Count),
        SearchCase { any_case: true, ..case("common word, any case, count", "COMMIT", SearchMode::Count) },
        case("common word, files", "commit", SearchMode::Files),
        case("five words, count", "needle_7f3a9c|handle_queue|worker thread|merge patch|open close", SearchMode::Count),
        case("nothing there, content", "zzz_not_there", SearchMode::Content),
    ];
    let name = format!("{files} generated files");
    tree(report, &root, &name, &questions, &["*.proto", "*.rs"])?;
    growth(report)?;

    let sources = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo/registry/src"));
    match sources.and_then(|it| it.canonicalize().ok()).filter(|_| !report.effort.is_small()) {
        Some(root) => {
            let questions = [
                case("rare literal, content", "unreachable_unchecked", SearchMode::Content),
                case("regex, count", r"unsafe\s+impl<[^>]+>\s+Send", SearchMode::Count),
                case("common word, count", "return", SearchMode::Count),
                SearchCase { any_case: true, ..case("common word, any case, files", "LICENSE", SearchMode::Files) },
            ];
            tree(report, &root, "sources of crates", &questions, &["build.rs"])
        }
        None => {
            report.skip("the sources of crates are not searched (--quick, or there is no ~/.cargo/registry/src)");
            Ok(())
        }
    }
}

/// How searching grows with the files.
fn growth(report: &mut BenchReport) -> Result<()> {
    let Some(rg) = find_program(&["rg"]) else { return Ok(()) };
    let (_held, top) = tmpfs_dir()?;
    let (top, rg) = (&top, &rg);
    let theirs = |words: Vec<String>, folder: PathBuf| -> PreparedWork<'_> {
        Box::new(move |times| {
            repeat(times, || run_program(Command::new(rg).arg("--no-config").args(&words).arg(&folder)))
        })
    };
    let mut ours = |files: usize| -> Result<PreparedWork<'_>> {
        let root = top.join(format!("names_{files}"));
        data::empty_files(&root, files)?;
        let desk = BenchSession::new("solo", &root)?;
        let args = json!({ "pattern": "**/*.proto" }).to_string();
        Ok(Box::new(move |times| desk.repeat(times, "glob", &args)))
    };
    let mut peer = |files: usize| {
        let words = ["--files", "--glob", "*.proto"].map(str::to_owned).to_vec();
        Ok(theirs(words, top.join(format!("names_{files}"))))
    };
    let sizes = [100, 1_000, 10_000, 100_000, 1_000_000];
    report.measure_growth(("glob", "files"), &sizes, &mut [("helve", &mut ours), ("spawn `rg --files`", &mut peer)])?;
    let mut ours = |files: usize| -> Result<PreparedWork<'_>> {
        let root = top.join(format!("texts_{files}"));
        data::text_files(&root, files)?;
        let desk = BenchSession::new("solo", &root)?;
        let args = json!({ "pattern": NEEDLE }).to_string();
        Ok(Box::new(move |times| desk.repeat(times, "grep", &args)))
    };
    let mut peer =
        |files: usize| Ok(theirs(vec!["-n".to_owned(), NEEDLE.to_owned()], top.join(format!("texts_{files}"))));
    let sides: &mut [(&str, WorkFactory<'_, '_>)] = &mut [("helve", &mut ours), ("spawn `rg`", &mut peer)];
    report.measure_growth(("grep, a rare literal", "files of 20 KB"), &[100, 1_000, 10_000, 100_000], sides)
}

fn tree(report: &mut BenchReport, root: &Path, name: &str, questions: &[SearchCase<'_>], globs: &[&str]) -> Result<()> {
    let desk = BenchSession::new("claude", root)?;
    let rg = find_program(&["rg"]);
    if rg.is_none() {
        report.skip("rg is not installed: grep is compared with nothing (Debian: apt install ripgrep)");
    }
    for question in rg.iter().flat_map(|rg| questions.iter().map(move |it| (rg, it))) {
        grep(report, &desk, root, name, question)?;
    }

    let desk = BenchSession::new("solo", root)?;
    let fd = find_program(&["fdfind", "fd"]);
    if fd.is_none() {
        report.skip("fd is not installed: glob is not compared with it (Debian: apt install fd-find)");
    }
    for pattern in globs {
        let args = json!({ "pattern": format!("**/{pattern}") }).to_string();
        let ours = paths(&desk.call_tool("glob", &args)?.text, root);
        let peers = [
            fd.as_ref().map(|fd| ("fd", fd, vec!["--glob", pattern, "--type", "f", "--color=never"])),
            rg.as_ref().map(|rg| ("rg --files", rg, vec!["--no-config", "--files", "--glob", pattern])),
        ];
        for (peer, program, words) in peers.into_iter().flatten() {
            let command = || {
                let mut command = Command::new(program);
                command.args(&words).arg(root);
                if peer == "fd" {
                    // Its arguments are the pattern and then the directory.
                    command = Command::new(program);
                    command.args(&words[2..]).args(&words[..2]).arg(root);
                }
                command
            };
            let theirs = paths(&output(&mut command())?, root);
            if ours != theirs {
                report.fail(&format!("glob {pattern}, {name}: we found {}, {peer} {}", ours.len(), theirs.len()));
                continue;
            }
            let what = format!("glob {pattern}: {} hits, {name}", ours.len());
            report.compare(
                ComparisonSpec::of(&what, &format!("spawn `{peer}`")).aim(BenchTarget::Ratio(1.0)).cpu(),
                &mut |times| desk.repeat(times, "glob", &args),
                &mut |times| repeat(times, || run_program(&mut command())),
            )?;
        }
    }
    Ok(())
}

fn grep(
    report: &mut BenchReport,
    desk: &BenchSession,
    root: &Path,
    name: &str,
    (rg, question): (&PathBuf, &SearchCase<'_>),
) -> Result<()> {
    let args = question.args().to_string();
    let command = || {
        let mut command = Command::new(rg);
        command.arg("--no-config").args(question.flags()).arg("-e").arg(question.pattern).arg(root);
        command
    };
    let ours = desk.call_tool("Grep", &args)?;
    let (ours, theirs) = (rows(&ours.text, root), rows(&output(&mut command())?, root));
    let is_equal = ours == theirs || (theirs.is_empty() && ours.iter().all(|row| !row.contains(question.pattern)));
    if !is_equal {
        let odd = ours.symmetric_difference(&theirs).next().map_or("", String::as_str);
        let odd: String = odd.chars().take(120).collect();
        let (ours, theirs) = (ours.len(), theirs.len());
        report.fail(&format!("{}, {name}: {ours} rows of ours, {theirs} of rg; such as `{odd}`", question.what));
        return Ok(());
    }
    let what = format!("{}: {} rows, {name}", question.what, theirs.len());
    report.compare(
        ComparisonSpec::of(&what, "spawn `rg --no-config`").aim(BenchTarget::Ratio(1.0)).cpu(),
        &mut |times| desk.repeat(times, "Grep", &args),
        &mut |times| repeat(times, || run_program(&mut command())),
    )
}

impl SearchCase<'_> {
    fn args(&self) -> Value {
        let mode = match self.output {
            SearchMode::Content => "content",
            SearchMode::Count => "count",
            SearchMode::Files => "files_with_matches",
        };
        json!({ "pattern": self.pattern, "output_mode": mode, "-i": self.any_case })
    }

    fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec!["--hidden"];
        flags.extend(match self.output {
            SearchMode::Content => vec!["--line-number", "--no-heading"],
            SearchMode::Count => vec!["--count"],
            SearchMode::Files => vec!["--files-with-matches"],
        });
        if self.any_case {
            flags.push("--ignore-case");
        }
        flags
    }
}

/// What a program writes.
fn output(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().context("the program did not start")?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The rows of an answer in any order, without Helve's notes.
fn rows(text: &str, root: &Path) -> BTreeSet<String> {
    let top = format!("{}/", root.display());
    let rows = text.lines().map(|line| line.strip_prefix(&top).unwrap_or(line).trim_start_matches("./").to_owned());
    rows.filter(|row| !row.is_empty() && !row.starts_with('[')).collect()
}

/// The paths of an answer.
fn paths(text: &str, root: &Path) -> BTreeSet<String> {
    rows(text, root).into_iter().filter(|row| row != "No files found").collect()
}
