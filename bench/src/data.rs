//! Test data: the same bytes every time.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Result;

const WORDS: [&str; 48] = [
    "self", "value", "index", "buffer", "length", "result", "error", "context", "request", "response", "handler",
    "parse", "token", "stream", "config", "option", "default", "return", "match", "state", "event", "queue", "worker",
    "thread", "client", "server", "session", "cache", "table", "column", "field", "record", "update", "insert",
    "delete", "select", "commit", "branch", "merge", "patch", "apply", "read", "write", "open", "close", "walk",
    "find", "list",
];
const ENDINGS: [&str; 9] = ["rs", "py", "ts", "go", "md", "json", "toml", "html", "css"];

/// A line that is in one file of two hundred.
pub(crate) const NEEDLE: &str = "needle_7f3a9c";
/// A line that is in one file of ten.
pub(crate) const HANDLER: &str = r"fn\s+handle_[a-z]+_v[0-9]+\(";
/// A mark that is once in each file.
pub(crate) const MARKER: &str = "NOTE_mark";

/// Numbers that look random and are not (xorshift).
pub(crate) struct Rng(u64);

impl Rng {
    /// Begins anew.
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    /// A line such as source code has.
    pub(crate) fn source_line(&mut self) -> String {
        let mut line = "    ".repeat(self.below(3));
        for at in 0..4 + self.below(10) {
            if at > 0 {
                line.push(' ');
            }
            line += WORDS[self.below(WORDS.len())];
        }
        line
    }

    /// Lines of about this many bytes.
    pub(crate) fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 200);
        while text.len() < bytes {
            text += &self.source_line();
            text.push('\n');
        }
        text
    }
}

/// This many numbered lines.
pub(crate) fn numbered_lines(lines: usize) -> String {
    let mut dice = Rng::new();
    let mut text = String::new();
    for at in 0..lines {
        _ = writeln!(text, "line {at}: {}", WORDS[dice.below(WORDS.len())]);
    }
    text
}

/// A tree of source files, a few of them hidden, ignored or binary.
pub(crate) fn tree(root: &Path, files: usize) -> Result<()> {
    let mut dice = Rng::new();
    fs::create_dir_all(root.join(".git"))?;
    fs::write(root.join(".gitignore"), "target/\n*.log\n")?;
    for at in 0..files {
        let folder = match at % 50 {
            0 => format!("target/d{}", at % 7),
            1 => format!(".hidden/d{}", at % 7),
            _ => format!("mod_{}/pkg_{}", at / 500, at / 50 % 10),
        };
        let folder = root.join(folder);
        fs::create_dir_all(&folder)?;
        let bytes = 2_000 + dice.below(20_000);
        let mut text = dice.text(bytes);
        _ = writeln!(text, "// {MARKER} {}", dice.source_line().trim());
        if at % 200 == 7 {
            _ = writeln!(text, "let x = {NEEDLE};");
        }
        if at % 10 == 3 {
            _ = writeln!(text, "pub fn handle_{}_v{}(x: u8) {{}}", WORDS[at % WORDS.len()], at % 9);
        }
        if at % 100 == 99 {
            text.insert(10, '\0');
        }
        let ending = if at % 50 == 37 { "proto" } else { ENDINGS[at % ENDINGS.len()] };
        fs::write(folder.join(format!("file_{at:05}.{ending}")), text)?;
    }
    Ok(())
}

/// Empty files in directories of a hundred; one of a hundred ends in `proto`.
pub(crate) fn empty_files(root: &Path, files: usize) -> Result<()> {
    for at in 0..files {
        let folder = root.join(format!("mod_{}/pkg_{}/src_{}", at / 10_000, at / 1_000 % 10, at / 100 % 10));
        if at % 100 == 0 {
            fs::create_dir_all(&folder)?;
        }
        let ending = if at % 100 == 37 { "proto" } else { ENDINGS[at % ENDINGS.len()] };
        fs::write(folder.join(format!("file_{at:06}.{ending}")), "")?;
    }
    Ok(())
}

/// Texts of 20 KB on average, in directories of fifty: nothing hidden, ignored or binary.
pub(crate) fn text_files(root: &Path, files: usize) -> Result<()> {
    let mut dice = Rng::new();
    let pool = dice.text(1 << 20);
    for at in 0..files {
        let folder = root.join(format!("d{:02}/s{}", at / 500, at / 50 % 10));
        fs::create_dir_all(&folder)?;
        let bytes = (4 << 10) + dice.below(32 << 10);
        let from = dice.below(pool.len() - bytes);
        let mut text = pool.as_bytes()[from..from + bytes].to_vec();
        text.push(b'\n');
        if at % 200 == 7 {
            text.extend(format!("let x = {NEEDLE};\n").into_bytes());
        }
        if at % 10 == 3 {
            text.extend(format!("pub fn handle_{}_v{}(x: u8) {{}}\n", WORDS[at % WORDS.len()], at % 9).into_bytes());
        }
        fs::write(folder.join(format!("f_{at:05}.{}", ENDINGS[at % ENDINGS.len()])), text)?;
    }
    Ok(())
}
