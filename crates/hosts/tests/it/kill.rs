//! A process that is killed while it writes leaves the old or the new file, and loses no acknowledged write.
//!
//! `HELVE_KILLS=500` sets the number of kills. The process is this test binary, started again.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use helve_contract::{
    Access, Error, FileErrorKind, PathRules, PathStyle, Root, SafePath, Workspace,
    ports::{Expect, FileChange, Host as _, Span},
};
use helve_hosts::LocalHost;

use crate::folder::{Dice, Folder, now};

const WORK: &str = "HELVE_TEST_WORK";
const WHERE: &str = "HELVE_TEST_WHERE";

#[test]
fn killed_while_writing() {
    let kills = std::env::var("HELVE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let folder = Folder::in_memory();
    let mut dice = Dice(11);
    let mut acknowledged = 0;
    for kill in 0..kills {
        let mut child = start("write", &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Wait until it writes, and then a little, in the middle of whatever it does.
        let first: Option<u64> = lines.by_ref().find_map(|line| line.unwrap().strip_prefix("wrote ")?.parse().ok());
        std::thread::sleep(Duration::from_micros(dice.roll(4000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("wrote ")?.parse().ok()).last();
        acknowledged = last.or(first).unwrap();

        let (a, b) = (version(&folder, "a"), version(&folder, "b"));
        assert!(a == acknowledged || a == acknowledged + 1, "kill {kill}: a is {a}, acknowledged {acknowledged}");
        let even = |number: u64| number - number % 2;
        assert!(b == even(acknowledged) || b == even(acknowledged + 1), "kill {kill}: b is {b} after {acknowledged}");
    }
    let strangers: Vec<_> = folder
        .names(".")
        .into_iter()
        .filter(|name| !matches!(name.as_str(), "a" | "b") && !name.starts_with(".helve-"))
        .collect();
    assert_eq!(strangers, Vec::<String>::new());
    eprintln!("{kills} kills, {acknowledged} writes acknowledged, every file old or new");
}

#[test]
fn writers_lose_no_update() {
    let folder = Folder::in_memory();
    folder.put("counter", "0");
    let mut children = [start("count", &folder), start("count", &folder)];
    std::thread::scope(|scope| {
        scope.spawn(|| count(&folder.workspace()));
        scope.spawn(|| count(&folder.workspace()));
    });
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(folder.text("counter"), (4 * COUNT).to_string());
    assert_eq!(folder.names("."), ["counter"]);
}

/// How often each writer counts up.
const COUNT: u32 = 40;

/// The work of the child process that the tests above start; does nothing by itself.
#[test]
fn work_of_a_process_of_its_own() {
    let (Ok(work), Ok(dir)) = (std::env::var(WORK), std::env::var(WHERE)) else { return };
    let workspace = Workspace::new([Root::writable(PathBuf::from(dir))], PathRules::default(), PathStyle::Relative);
    match work.as_str() {
        "write" => write_on(&workspace),
        _ => count(&workspace),
    }
}

fn start(work: &str, folder: &Folder) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::work_of_a_process_of_its_own", "--nocapture", "--test-threads", "1"])
        .env(WORK, work)
        .env(WHERE, folder.root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Writes version after version: the odd ones to one file, the even ones to two at once.
fn write_on(workspace: &Workspace) {
    let host = LocalHost::new();
    let path = |name: &str| workspace.check(name.as_ref(), Access::Write, None).unwrap();
    let held = |path: &SafePath| {
        let chunk = now(host.read(path, Span::first(1 << 20)));
        chunk.map_or(Vec::new(), |chunk| chunk.bytes)
    };
    let (a, b) = (path("a"), path("b"));
    let expect = |bytes: &[u8]| match bytes {
        [] => Expect::Absent,
        bytes => Expect::bytes(bytes),
    };
    let mut number = parse(&held(&a)).unwrap_or(0);
    // One that was killed between its two files is taken up where it was.
    if number.is_multiple_of(2) && parse(&held(&b)).unwrap_or(0) != number {
        now(host.write(&b, &text(number), Expect::Anything)).unwrap();
    }
    loop {
        number += 1;
        let write = |path: &SafePath| FileChange::Write {
            path: path.clone(),
            bytes: text(number),
            expect: expect(&held(path)),
            like: None,
        };
        let done = if number % 2 == 1 {
            now(host.write(&a, &text(number), expect(&held(&a)))).map(|_| ())
        } else {
            now(host.apply_changes(vec![write(&b), write(&a)])).map(|_| ())
        };
        done.unwrap();
        let line = format!("\nwrote {number}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        std::io::stdout().flush().unwrap();
    }
}

/// A text that shows its number, and whether it is whole.
fn text(number: u64) -> Vec<u8> {
    let line = format!("{number}\n");
    let body = line.repeat(2000 + (number % 7) as usize * 500);
    format!("{}\n{body}", body.len()).into_bytes()
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split('\n').nth(1)?.parse().ok()
}

fn version(folder: &Folder, name: &str) -> u64 {
    let Ok(bytes) = fs::read(folder.root().join(name)) else { return 0 };
    let number = parse(&bytes).unwrap();
    assert!(bytes == text(number), "{name} is neither old nor new");
    number
}

/// Counts a number in a file up, together with others.
fn count(workspace: &Workspace) {
    let host = LocalHost::new();
    let path = workspace.check("counter".as_ref(), Access::Write, None).unwrap();
    let mut left = COUNT;
    while left > 0 {
        let bytes = now(host.read(&path, Span::first(100))).unwrap().bytes;
        let next = std::str::from_utf8(&bytes).unwrap().parse::<u32>().unwrap() + 1;
        let expect = Expect::bytes(&bytes);
        match now(host.write(&path, next.to_string().as_bytes(), expect)) {
            Ok(_) => left -= 1,
            Err(Error::File { fault: FileErrorKind::Changed, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
