//! Reading, writing, editing and listing, compared with `std::fs` and with common programs.

use std::{
    fmt::Write as _,
    fs::{self, File},
    hint::black_box,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::{
    data::{Rng, numbered_lines},
    desk::{BenchSession, disk_dir, tmpfs_dir},
    report::{BenchReport, ComparisonSpec, PreparedWork},
};

/// Lines of a page where a page is asked for.
const PAGE: usize = 100;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = tmpfs_dir()?;
    let desk = BenchSession::new("solo", &root)?;
    reading(report, &desk, &root)?;
    paging(report, &desk, &root)?;
    writing(report, &desk, &root, "in memory")?;
    editing(report, &desk, &root)?;
    growing(report, &desk, &root)?;

    let (_held, root) = disk_dir()?;
    let desk = BenchSession::new("solo", &root)?;
    writing(report, &desk, &root, "on a disk")
}

fn reading(report: &mut BenchReport, desk: &BenchSession, root: &Path) -> Result<()> {
    let mut dice = Rng::new();
    for (name, what, bytes) in [("small.txt", "read 1 KB", 1 << 10), ("large.txt", "read 512 KB of 1 MB", 1 << 20)] {
        let path = root.join(name);
        fs::write(&path, dice.text(bytes))?;
        let args = json!({ "path": name, "limit": 1_000_000 }).to_string();
        let (ours, theirs) = (desk.call_tool("read", &args)?.text, plain_read(&path, 512 << 10)?);
        let notes = ours.len().saturating_sub(theirs.len());
        ensure!(ours.starts_with(&theirs[..theirs.len().min(ours.len()) / 2]) && notes < 200, "{what}: other text");
        report.compare(
            ComparisonSpec::of(what, "std::fs: read, check UTF-8, number the lines"),
            &mut |times| desk.repeat(times, "read", &args),
            &mut |times| repeat(times, || plain_read(&path, 512 << 10).map(|text| _ = black_box(text))),
        )?;
        report.compare(
            ComparisonSpec::of(what, "spawn `cat`"),
            &mut |times| desk.repeat(times, "read", &args),
            &mut |times| repeat(times, || run_program(Command::new("cat").arg(&path))),
        )?;
    }
    Ok(())
}

/// The last page of ever longer files: the cost of finding it.
fn paging(report: &mut BenchReport, desk: &BenchSession, root: &Path) -> Result<()> {
    let most = if report.effort.is_small() { 4 } else { 6 };
    let file = |power: u32| format!("lines_{power}.txt");
    let args = |power: u32| {
        let lines = 10_usize.pow(power);
        json!({ "path": file(power), "offset": lines - PAGE, "limit": PAGE }).to_string()
    };
    for power in 3..=most {
        fs::write(root.join(file(power)), numbered_lines(10_usize.pow(power)))?;
        let (path, asked, lines) = (root.join(file(power)), args(power), 10_usize.pow(power));
        report.compare(
            ComparisonSpec::of(
                &format!("read the last {PAGE} of 10^{power} lines"),
                "std::fs: read, skip lines, number the rest",
            ),
            &mut |times| desk.repeat(times, "read", &asked),
            &mut |times| repeat(times, || plain_page(&path, lines - PAGE)),
        )?;
    }
    let mut ours = |lines: usize| -> Result<PreparedWork<'_>> {
        fs::write(root.join(format!("grown_{lines}.txt")), numbered_lines(lines))?;
        let asked = json!({ "path": format!("grown_{lines}.txt"), "offset": lines - PAGE, "limit": PAGE }).to_string();
        Ok(Box::new(move |times| desk.repeat(times, "read", &asked)))
    };
    let mut plain = |lines: usize| -> Result<PreparedWork<'_>> {
        let path = root.join(format!("grown_{lines}.txt"));
        Ok(Box::new(move |times| repeat(times, || plain_page(&path, lines - PAGE))))
    };
    report.measure_growth(
        ("read the last 100 lines", "lines"),
        &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        &mut [("helve", &mut ours), ("std::fs", &mut plain)],
    )
}

fn writing(report: &mut BenchReport, desk: &BenchSession, root: &Path, place: &str) -> Result<()> {
    let text = Rng::new().text(4 << 10);
    let args = json!({ "path": "ours.txt", "content": text }).to_string();
    desk.call_tool("write", &args)?;
    ensure!(fs::read_to_string(root.join("ours.txt"))? == text, "something else was written");
    report.compare(
        ComparisonSpec::of(&format!("write 4 KB {place}"), "std::fs: write, fsync, rename, fsync"),
        &mut |times| desk.repeat(times, "write", &args),
        &mut |times| repeat(times, || write_fsync_rename(&root.join("theirs.txt"), text.as_bytes())),
    )
}

fn editing(report: &mut BenchReport, desk: &BenchSession, root: &Path) -> Result<()> {
    let mut dice = Rng::new();
    for (what, bytes) in [("edit a 10 KB file", 10 << 10), ("edit a 1 MB file", 1 << 20)] {
        let text = format!("{}mark A\n{}", dice.text(bytes / 2), dice.text(bytes / 2));
        for name in ["ours.txt", "theirs.txt"] {
            fs::write(root.join(name), &text)?;
        }
        let change = |from: &str, to: &str| json!({ "path": "ours.txt", "old_text": from, "new_text": to }).to_string();
        let both = [change("mark A", "mark B"), change("mark B", "mark A")];
        let (mut ours, mut theirs) = (0, 0);
        report.compare(
            ComparisonSpec::of(what, "std::fs: read, replace, write, fsync, rename, fsync"),
            &mut |times| {
                repeat(times, || {
                    ours += 1;
                    desk.repeat(1, "edit", &both[(ours + 1) % 2])
                })
            },
            &mut |times| {
                repeat(times, || {
                    theirs += 1;
                    let (from, to) = if theirs % 2 == 1 { ("mark A", "mark B") } else { ("mark B", "mark A") };
                    plain_edit(&root.join("theirs.txt"), from, to)
                })
            },
        )?;
    }
    Ok(())
}

/// How editing grows with the file, and listing with the directory.
fn growing(report: &mut BenchReport, desk: &BenchSession, root: &Path) -> Result<()> {
    let mut ours = |bytes: usize| -> Result<PreparedWork<'_>> {
        let (name, half) = (format!("edit_{bytes}.txt"), Rng::new().text(bytes / 2));
        for name in [&name, &format!("plain_{name}")] {
            fs::write(root.join(name), format!("{half}mark A\n{half}"))?;
        }
        let change = |from: &str, to: &str| json!({ "path": name, "old_text": from, "new_text": to }).to_string();
        let (both, mut turn) = ([change("mark A", "mark B"), change("mark B", "mark A")], 0);
        Ok(Box::new(move |times| {
            repeat(times, || {
                turn += 1;
                desk.repeat(1, "edit", &both[(turn + 1) % 2])
            })
        }))
    };
    let mut plain = |bytes: usize| -> Result<PreparedWork<'_>> {
        let (path, mut turn) = (root.join(format!("plain_edit_{bytes}.txt")), 0);
        Ok(Box::new(move |times| {
            repeat(times, || {
                turn += 1;
                let (from, to) = if turn % 2 == 1 { ("mark A", "mark B") } else { ("mark B", "mark A") };
                plain_edit(&path, from, to)
            })
        }))
    };
    let sizes = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    report.measure_growth(("edit", "bytes"), &sizes, &mut [("helve", &mut ours), ("std::fs", &mut plain)])?;

    let mut ours = |count: usize| -> Result<PreparedWork<'_>> {
        let name = format!("entries_{count}");
        fs::create_dir(root.join(&name))?;
        for at in 0..count {
            fs::write(root.join(&name).join(format!("entry_{at:06}.txt")), "x")?;
        }
        let args = json!({ "path": name }).to_string();
        Ok(Box::new(move |times| desk.repeat(times, "ls", &args)))
    };
    let mut plain = |count: usize| -> Result<PreparedWork<'_>> {
        let path = root.join(format!("entries_{count}"));
        Ok(Box::new(move |times| repeat(times, || plain_list(&path))))
    };
    let mut program = |count: usize| -> Result<PreparedWork<'_>> {
        let path = root.join(format!("entries_{count}"));
        Ok(Box::new(move |times| repeat(times, || run_program(Command::new("ls").arg("-l").arg(&path)))))
    };
    let sides: &mut [(&str, crate::report::WorkFactory<'_, '_>)] =
        &mut [("helve", &mut ours), ("std::fs", &mut plain), ("spawn `ls -l`", &mut program)];
    report.measure_growth(("list", "entries"), &[10, 100, 1_000, 10_000, 100_000], sides)
}

/// Does something this many times.
pub(super) fn repeat(times: usize, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    (0..times).try_for_each(|_| work())
}

/// Runs a program to its end and takes in what it writes.
pub(super) fn run_program(command: &mut Command) -> Result<()> {
    let done = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    // What a search does not find is no failure.
    if !matches!(done.status.code(), Some(0 | 1)) {
        bail!("{} ended with {}", command.get_program().display(), done.status);
    }
    black_box(done.stdout);
    Ok(())
}

fn plain_read(path: &Path, most: usize) -> Result<String> {
    let text = String::from_utf8(fs::read(path)?)?;
    let (mut page, mut shown) = (String::new(), 0);
    let mut lines = 0;
    for line in text.lines() {
        lines += 1;
        if shown + line.len() < most {
            shown += line.len() + 1;
            _ = writeln!(page, "{lines:>6}\t{line}");
        }
    }
    black_box(lines);
    Ok(page)
}

fn plain_page(path: &Path, skip: usize) -> Result<()> {
    let text = String::from_utf8(fs::read(path)?)?;
    let mut page = String::new();
    for (at, line) in text.lines().enumerate().skip(skip).take(PAGE) {
        _ = writeln!(page, "{:>6}\t{line}", at + 1);
    }
    black_box(page);
    Ok(())
}

/// An atomic and durable write.
fn write_fsync_rename(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("no folder")?;
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn plain_edit(path: &Path, from: &str, to: &str) -> Result<()> {
    let text = String::from_utf8(fs::read(path)?)?;
    let (before, after) = text.split_once(from).context("the text is not there")?;
    ensure!(!after.contains(from), "the text is there twice");
    write_fsync_rename(path, format!("{before}{to}{after}").as_bytes())
}

fn plain_list(path: &Path) -> Result<()> {
    let mut rows = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        rows.push((entry.file_name(), entry.metadata()?.len()));
    }
    rows.sort();
    let mut text = String::new();
    for (name, size) in rows {
        _ = writeln!(text, "{}  {size}", name.display());
    }
    black_box(text);
    Ok(())
}
