//! `grep` answers what `rg --no-config --sort path` prints, byte for byte.

use std::{os::unix::ffi::OsStrExt as _, process::Stdio};

use helve_contract::ports::{GrepOutputMode, GrepQuery, GrepResult, Host as _, IgnoreOptions, MatchLineKind};
use helve_hosts::LocalHost;

use crate::folder::{Dice, Folder};

/// How many questions are asked; `HELVE_RG=2000` sets another number.
const QUESTIONS: usize = 260;

const PATTERNS: &[&str] = &[
    "fn main",
    "TODO",
    r"\bimpl\b",
    r"unwrap\(\)",
    "->",
    r"^use ",
    r"[A-Z]{4,}",
    r"\d+\.\d+",
    "Regex",
    "zzzNOTHING",
    r#""[^"]*glob[^"]*""#,
    r"#\[test\]",
    r"(?i)license",
    "foo|bar",
    r"\{$",
    r"^\s*//",
    "é",
    r"\w+::\w+::",
    "a{2}",
    "^$",
    "-v",
    r"\bpub\s+(struct|enum)\b",
    r"match .* \{",
    r#"println!\(""#,
    "line",
    r"o+",
    r"^.{3}$",
    r"[[:upper:]]\w+",
    "ß|É",
    r"x*",
    r"\s$",
    r"the (quick|lazy)",
    "needle",
];
const SPANNING: &[&str] =
    &[r"struct \w+ \{\n\s+\w+", r"#\[test\]\s+fn", r"\)\n\n", r"use [^;]*;\nuse", r"fn.*?\}", r"line \d\nline", "foo"];
const LITERALS: &[&str] = &["unwrap()", "a.b", "foo|bar", "[test]", "->", "needle", "(", "*"];
const GLOBS: &[&str] = &[
    "*.rs",
    "*.md",
    "*.{rs,toml}",
    "**/tests/*.rs",
    "!*.rs",
    "crates/**/*.rs",
    "Cargo.*",
    "*.txt",
    "!crates/",
    "/docs/**",
];
const TYPES: &[&str] = &["rust", "md", "toml", "sh", "py"];
const PLACES: &[&str] = &["", "", "", "crates", "crates/core", "docs", "Cargo.toml", "docs/guide.md", "data/image.bin"];

#[tokio::test]
async fn says_what_ripgrep_says() {
    let Some(version) = version() else {
        eprintln!("SKIPPED: `rg` is not installed, so that nothing was compared with it");
        return;
    };
    let tree = tree();
    let host = LocalHost::new();
    let questions = std::env::var("HELVE_RG").ok().and_then(|text| text.parse().ok()).unwrap_or(QUESTIONS);
    let mut dice = Dice(7);
    let mut misses = Vec::new();
    for at in 0..questions {
        let (place, grep) = question(&mut dice);
        let wanted = rg(&tree, place, &grep);
        let path = tree.path(if place.is_empty() { "." } else { place });
        let matches = host.grep(&path, &grep).await.unwrap();
        let got = shown(&matches, &grep);
        if wanted != got {
            let first = wanted.lines().zip(got.lines()).position(|(a, b)| a != b);
            let first = first.unwrap_or(wanted.lines().count().min(got.lines().count()));
            let near = |text: &str| text.lines().skip(first).take(3).collect::<Vec<_>>().join("\n");
            misses.push(format!(
                "#{at} in `{place}`: {grep:?}, partial {}, from line {first}\n--- rg\n{}\n--- ours\n{}",
                matches.partial,
                near(&wanted),
                near(&got)
            ));
        }
    }
    let some = misses.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
    assert!(misses.is_empty(), "{version}: {} of {questions} differ, such as\n{some}", misses.len());
}

fn version() -> Option<String> {
    let output = std::process::Command::new("rg").arg("--version").stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

fn question(dice: &mut Dice) -> (&'static str, GrepQuery) {
    let multiline = dice.chance(20);
    let literal = !multiline && dice.chance(15);
    // A pattern that cannot match a line break is searched by lines in either mode.
    let patterns = if multiline && dice.chance(60) {
        SPANNING
    } else if literal {
        LITERALS
    } else {
        PATTERNS
    };
    let output = dice.pick(&[
        GrepOutputMode::Lines,
        GrepOutputMode::Lines,
        GrepOutputMode::Lines,
        GrepOutputMode::Counts,
        GrepOutputMode::Files,
    ]);
    let each = output == GrepOutputMode::Lines && dice.chance(20);
    let context =
        if output == GrepOutputMode::Lines && !each && dice.chance(50) { (dice.roll(4), dice.roll(4)) } else { (0, 0) };
    let grep = GrepQuery {
        pattern: dice.pick(patterns).to_owned(),
        literal,
        ignore_case: dice.chance(30),
        multiline,
        globs: if dice.chance(35) { vec![dice.pick(GLOBS).to_owned()] } else { Vec::new() },
        file_type: dice.chance(20).then(|| dice.pick(TYPES).to_owned()),
        noise: IgnoreOptions { ignored: dice.chance(25), hidden: dice.chance(40) },
        context,
        output,
        only_matching: each,
        limit: None,
        offset: 0,
        max_bytes: usize::MAX,
    };
    (dice.pick(PLACES), grep)
}

fn rg(tree: &Folder, place: &str, grep: &GrepQuery) -> String {
    let mut command = std::process::Command::new("rg");
    command.args(["--no-config", "--sort", "path", "--no-heading", "--with-filename", "--color", "never"]);
    match grep.output {
        GrepOutputMode::Lines => command.arg("-n"),
        GrepOutputMode::Counts => command.arg("-c"),
        GrepOutputMode::Files => command.arg("-l"),
    };
    let switches = [
        (grep.literal, &["-F"][..]),
        (grep.ignore_case, &["-i"]),
        (grep.multiline, &["-U", "--multiline-dotall"]),
        (grep.only_matching, &["-o"]),
        (grep.noise.ignored, &["--no-ignore"]),
        (grep.noise.hidden, &["--hidden"]),
    ];
    for (_, args) in switches.iter().filter(|(on, _)| *on) {
        command.args(*args);
    }
    for glob in &grep.globs {
        command.args(["-g", glob]);
    }
    if let Some(kind) = &grep.file_type {
        command.args(["-t", kind]);
    }
    command.args(["-B", &grep.context.0.to_string(), "-A", &grep.context.1.to_string(), "-e", &grep.pattern, "--"]);
    if !place.is_empty() {
        command.arg(place);
    }
    let output = command.current_dir(tree.root()).stdin(Stdio::null()).output().unwrap();
    let text: Vec<_> = output.stdout.split_inclusive(|byte| *byte == b'\n').map(plain).collect();
    text.concat()
}

/// A line of ripgrep's output. What it says of binary files was worded differently from version to version.
fn plain(line: &[u8]) -> String {
    let text = show(line);
    let Some(offset) = text.trim_end().strip_suffix(')').and_then(|text| text.split("byte around offset ").nth(1))
    else {
        return text;
    };
    let path = ["WARNING: stopped searching binary file ", "Binary file "]
        .iter()
        .find_map(|start| text.strip_prefix(start)?.split(' ').next())
        .or_else(|| text.split(": ").next())
        .unwrap_or_default();
    format!("{path}: binary at {offset}\n")
}

/// Our answer, in ripgrep's form.
fn shown(matches: &GrepResult, grep: &GrepQuery) -> String {
    let mut text = String::new();
    for (at, file) in matches.files.iter().enumerate() {
        let path = show(file.path.as_os_str().as_bytes());
        match grep.output {
            GrepOutputMode::Files => text += &format!("{path}\n"),
            GrepOutputMode::Counts => text += &format!("{path}:{}\n", file.count),
            GrepOutputMode::Lines => {
                if at > 0 && grep.context != (0, 0) {
                    text += "--\n";
                }
                for hit in &file.hits {
                    text += &match hit.kind {
                        MatchLineKind::Match => format!("{path}:{}:{}\n", hit.line, show(&hit.text)),
                        MatchLineKind::Context => format!("{path}-{}-{}\n", hit.line, show(&hit.text)),
                        MatchLineKind::Gap => "--\n".to_owned(),
                    };
                }
                if let Some(offset) = file.binary {
                    text += &format!("{path}: binary at {offset}\n");
                }
            }
        }
    }
    text
}

/// Bytes without loss, so that comparing texts is comparing bytes.
fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        for byte in chunk.invalid() {
            text += &format!("<{byte:02x}>");
        }
    }
    text
}

const SENTENCES: &[&str] = &[
    "use std::path::Path;",
    "use crate::foo::bar;",
    "pub struct Widget {",
    "    name: String,",
    "}",
    "",
    "impl Widget {",
    "    fn main() -> Option<u8> {",
    "        let x = foo.unwrap();",
    "    // TODO: the quick brown fox",
    "#[test]",
    "fn works() {",
    "    println!(\"glob {}\", 1.5);",
    "    match value {",
    "the lazy dog, License MIT",
    "aab a.b [test] (",
    "line 1",
    "line 2",
    "Café Étude straße ß",
    "std::fs::read(path)",
    "trailing blank ",
    "NEEDLE needle",
    "x",
    "foo|bar -v *",
    "\tRegex::new(r\"\\d+\")",
    "pub enum Kind {",
    ")",
];

/// A tree like a real one: ignore files at several levels, hidden files, binary files, every kind of line end.
fn tree() -> Folder {
    let tree = Folder::new();
    let mut dice = Dice(42);
    std::fs::create_dir(tree.root().join(".git")).unwrap();
    tree.put(".gitignore", "target/\n*.log\n!keep.log\nprivate/\n");
    tree.put(".ignore", "vendor/\n");
    tree.put("crates/.rgignore", "generated.rs\n");
    tree.put("crates/core/.gitignore", "*.tmp\n!important.tmp\nlocal/**\n");
    let folders = [
        "",
        "crates",
        "crates/core",
        "crates/core/tests",
        "crates/core-extra",
        "crates/core.d",
        "docs",
        "docs/private",
        "target/debug",
        "vendor/lib",
        ".hidden",
        "crates/core/local/deep",
        "scripts",
        "data",
        "a",
        "a.b",
        "a-b",
    ];
    let files = [
        "lib.rs",
        "main.rs",
        "notes.md",
        "Cargo.toml",
        "run.sh",
        "tool.py",
        "plain.txt",
        "build.log",
        "keep.log",
        "generated.rs",
        "x.tmp",
        "important.tmp",
        ".notes.md",
        "UPPER.RS",
        "with space.txt",
    ];
    for folder in folders {
        for file in files.iter().filter(|_| dice.chance(60)).collect::<Vec<_>>() {
            let end = if dice.chance(15) { "\r\n" } else { "\n" };
            let mut text = String::new();
            for _ in 0..dice.roll(60) {
                text += dice.pick(SENTENCES);
                text += end;
            }
            if dice.chance(20) {
                text += "no line end needle";
            }
            tree.put(format!("{folder}/{file}").trim_start_matches('/'), text);
        }
    }
    tree.put("Cargo.toml", "[package]\nname = \"foo\"\nversion = \"1.5.0\"\nlicense = \"MIT\"\n");
    tree.put("docs/guide.md", "# Guide\n\nthe quick fox\nneedle\nTODO foo\n");
    tree.put("data/image.bin", b"needle foo\nline 1\n\x00\x01\x02 foo needle\nRegex\n");
    tree.put("data/late.bin", [b"foo needle\nline 1\nRegex\n".repeat(4000), b"\x00 foo\nneedle\n".to_vec()].concat());
    tree.put("data/latin1.txt", b"caf\xe9 foo\nneedle \xff\xfe line\n");
    let wide: Vec<u8> = "\u{feff}foo needle\nline 2\nTODO É\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    tree.put("data/wide.txt", wide);
    tree.put("data/bom.txt", "\u{feff}use foo;\nline 1\n");
    tree.put("data/empty.txt", "");
    tree.put("data/blank.txt", "\n\n\n");
    // Longer lines are shown as a window around the match.
    tree.put("data/long.txt", format!("{}needle{}\nfoo\n", "y".repeat(3_000), "z".repeat(3_000)));
    tree.link("docs/link.md", "guide.md");
    tree.link("crates/back", "..");
    tree
}
