//! `grep`: searches file contents and formats results like ripgrep.

use std::path::Path;

use helve_contract::{
    AccessRequest, Call, Effects, Error, Reply, Result, SafePath, Tool, format_size,
    ports::{
        self, FileKind, FileMatches, GrepResult, IgnoreOptions, MatchLine, MatchLineKind, NoMatchDiagnostics,
        SkipReason, Skipped,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::long_lines;

/// Searches the contents of files with a regular expression.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrepTool {
    /// What to look for: a regular expression.
    pub pattern: String,
    /// A file, or the folder to search; the whole workspace otherwise.
    pub path: Option<String>,
    /// Take the pattern literally.
    pub literal: bool,
    /// Without regard to case.
    pub ignore_case: bool,
    /// A match may span lines.
    pub multiline: bool,
    /// Only files that match one of these globs.
    pub globs: Vec<String>,
    /// Only files of this type, in ripgrep's names.
    pub file_type: Option<String>,
    /// Include what ignore files leave out.
    pub ignored: bool,
    /// Include hidden files.
    pub hidden: bool,
    /// Lines of context before each match.
    pub before: usize,
    /// Lines of context after each match.
    pub after: usize,
    /// What comes back.
    pub mode: GrepMode,
    /// Each match by itself instead of its line.
    pub only_matching: bool,
    /// How many come back at most.
    pub limit: Option<usize>,
    /// Leave out this many first.
    pub offset: usize,
    /// What `limit` and `offset` count.
    pub unit: LimitUnit,
    /// Whether lines carry their number, where the dialect leaves it to the model.
    pub numbers: LineNumbers,
}

/// What a search gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrepMode {
    /// The matching lines.
    #[default]
    Lines,
    /// How many lines match, by file.
    Counts,
    /// Which files match.
    Files,
}

/// What a limit counts. Files and counts are rows either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitUnit {
    /// Lines that match; their context is not counted.
    #[default]
    Matches,
    /// Lines of the reply, as `head` counts them.
    Rows,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct GrepOutput {
    /// The request.
    pub request: GrepTool,
    /// Where the search started.
    pub start: SafePath,
    /// Whether the start is a file, which ripgrep does not name in every line.
    pub one_file: bool,
    /// What was found.
    pub matches: GrepResult,
}

/// Whether lines carry their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineNumbers {
    /// They do.
    #[default]
    Shown,
    /// They do not.
    Hidden,
}

/// Whether lines start with their file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNames {
    /// Always.
    Shown,
    /// Like ripgrep: not for a single file.
    Auto,
}

/// The dialect's texts for an empty result and for widening the search.
#[derive(Clone, Copy, Debug)]
pub struct NoMatchHints {
    /// The main text: `No matches found`.
    pub text: &'static str,
    /// How to include ignored and hidden files.
    pub include: &'static str,
    /// How to ignore case.
    pub any_case: &'static str,
    /// How to see results beyond the limit, by the number shown so far. It names only parameters of the dialect.
    pub next: fn(shown: usize) -> String,
}

impl Default for NoMatchHints {
    fn default() -> Self {
        Self {
            text: "No matches found",
            include: "name that folder or file as the place to search",
            any_case: "start the pattern with (?i)",
            next: |shown| format!("go on at offset {shown}, or narrow the search"),
        }
    }
}

/// How many bytes of lines a search keeps.
const MAX_BYTES: usize = 8 << 20;

impl Tool for GrepTool {
    const NAME: &'static str = "grep";
    const EFFECTS: Effects = Effects::READS;
    type Output = GrepOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([self.path.as_deref().unwrap_or(".")]))
    }

    async fn run(self, call: &Call) -> Result<GrepOutput> {
        if self.pattern.is_empty() {
            return Err(Error::failed("the pattern is empty; say what to look for"));
        }
        if !self.literal {
            check_regex(&self.pattern)?;
        }
        let start = match &self.path {
            Some(path) => call.check_read(path)?,
            None => call.workspace_root()?,
        };
        let one_file = match call.host().stat(&start).await {
            Ok(stat) => stat.kind != FileKind::Folder,
            Err(error) => return Err(super::with_suggestions(call, &start, error).await),
        };
        let matches = call.host().grep(&start, &self.to_request()).await?;
        call.check_cancelled()?;
        Ok(GrepOutput { request: self, start, one_file, matches })
    }
}

impl GrepTool {
    fn to_request(&self) -> ports::GrepQuery {
        let (limit, offset) = match (self.mode, self.unit) {
            (GrepMode::Lines, LimitUnit::Matches) => (self.limit, self.offset),
            // Every row belongs to a match or its context, so this many matches suffice.
            (GrepMode::Lines, LimitUnit::Rows) => (self.limit.map(|limit| limit.saturating_add(self.offset)), 0),
            (GrepMode::Counts | GrepMode::Files, _) => (None, 0),
        };
        ports::GrepQuery {
            pattern: self.pattern.clone(),
            literal: self.literal,
            ignore_case: self.ignore_case,
            multiline: self.multiline,
            globs: self.globs.clone(),
            file_type: self.file_type.clone(),
            noise: IgnoreOptions { ignored: self.ignored, hidden: self.hidden },
            context: (self.before, self.after),
            output: match self.mode {
                GrepMode::Lines => ports::GrepOutputMode::Lines,
                GrepMode::Counts => ports::GrepOutputMode::Counts,
                GrepMode::Files => ports::GrepOutputMode::Files,
            },
            only_matching: self.only_matching,
            limit,
            offset,
            max_bytes: MAX_BYTES,
        }
    }
}

/// Refuses an invalid regular expression, with the position of the error.
fn check_regex(pattern: &str) -> Result<()> {
    // A zero size limit stops the compiler after parsing, and only the parse error matters here.
    match regex::bytes::RegexBuilder::new(pattern).size_limit(0).build() {
        Err(regex::Error::Syntax(text)) => Err(Error::failed(format!(
            "{text}\nTo search for the text as it stands, escape it: {}",
            regex::escape(pattern)
        ))),
        _ => Ok(()),
    }
}

/// Rendering for the dialects. Every text says what was left out, or why there is nothing.
impl GrepOutput {
    /// The path of a file as the model knows it.
    pub fn display_path(&self, path: &Path) -> String {
        self.start.display_relative(path)
    }

    /// As `rg` prints lines: `path:12:text`, context `path-11-text`, `--` between groups.
    pub fn lines(&self, numbers: LineNumbers, names: FileNames) -> Vec<String> {
        let named = names == FileNames::Shown || !self.one_file;
        let apart = self.request.before + self.request.after > 0;
        let mut rows: Vec<String> = Vec::new();
        for file in &self.matches.files {
            let name = self.display_path(&file.path);
            if apart && !rows.is_empty() && !file.hits.is_empty() {
                rows.push("--".to_owned());
            }
            rows.extend(file.hits.iter().map(|hit| row(named.then_some(name.as_str()), numbers, hit)));
            if let Some(at) = file.binary {
                // Lines before the first NUL were shown; without any, only the match is known.
                let what = if file.hits.is_empty() {
                    "binary file matches"
                } else {
                    "WARNING: stopped searching binary file after match"
                };
                let told = format!("{what} (found \"\\0\" byte around offset {at})");
                rows.push(if named { format!("{name}: {told}") } else { told });
            }
        }
        rows
    }

    /// 002's lines: `path:12: text`, context `path-11- text`, long lines cut.
    pub fn spaced_lines(&self) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        for file in &self.matches.files {
            let name = self.display_path(&file.path);
            if file.binary.is_some() {
                rows.push(format!("{name}: binary file matches"));
                continue;
            }
            rows.extend(file.hits.iter().map(|hit| {
                let text = long_lines::cut(hit);
                match hit.kind {
                    MatchLineKind::Match => format!("{name}:{}: {text}", hit.line),
                    MatchLineKind::Context => format!("{name}-{}- {text}", hit.line),
                    MatchLineKind::Gap => "--".to_owned(),
                }
            }));
        }
        rows
    }

    /// As `rg -c` prints: `path:3`.
    pub fn counts(&self, names: FileNames) -> Vec<String> {
        let named = names == FileNames::Shown || !self.one_file;
        let told = |file: &FileMatches| {
            if named { format!("{}:{}", self.display_path(&file.path), file.count) } else { file.count.to_string() }
        };
        self.matches.files.iter().map(told).collect()
    }

    /// As `rg -l` prints.
    pub fn files(&self) -> Vec<String> {
        self.matches.files.iter().map(|file| self.display_path(&file.path)).collect()
    }

    /// Renders these rows as a reply, truncated to the limit, with notes about what is missing.
    pub fn reply(&self, rows: Vec<String>, nothing: NoMatchHints) -> Reply {
        if self.matches.files.is_empty() && self.matches.total == 0 {
            return Reply { data: Some(self.data(&[])), ..self.no_match_text(nothing).into() };
        }
        let all = rows.len();
        let by_rows = self.request.mode != GrepMode::Lines || self.request.unit == LimitUnit::Rows;
        let (skip, take) =
            if by_rows { (self.request.offset, self.request.limit.unwrap_or(usize::MAX)) } else { (0, usize::MAX) };
        let shown: Vec<String> = rows.into_iter().skip(skip).take(take).collect();
        let more = self.truncation_line(shown.len(), all, by_rows, nothing.next);
        let skipped = self.skipped().map(|text| format!("[{text}]"));
        let after = more.into_iter().chain(skipped).collect::<Vec<_>>().join("\n");
        Reply { data: Some(self.data(&shown)), after, ..shown.join("\n").into() }
    }

    /// The line about the truncation and how to continue.
    fn truncation_line(&self, shown: usize, all: usize, by_rows: bool, next: fn(usize) -> String) -> Option<String> {
        let thing = match self.request.mode {
            GrepMode::Lines if by_rows => "lines",
            GrepMode::Lines => "matches",
            GrepMode::Counts | GrepMode::Files => "files",
        };
        let kept = if by_rows { shown } else { self.match_count() };
        // The host counted beyond the limit without collecting rows, so there may be more.
        let total = match self.request.mode {
            GrepMode::Lines if by_rows => all.max(self.matches.total as usize),
            GrepMode::Lines => self.matches.total as usize,
            GrepMode::Counts | GrepMode::Files => all,
        };
        let (first, last) = (self.request.offset, self.request.offset + kept);
        let partial = if self.matches.partial { " Not everything was searched; narrow the search." } else { "" };
        if kept == 0 {
            return Some(format!("[nothing at offset {first}: there are {total} {thing} in all.{partial}]"));
        }
        if last < total {
            let at_least = if by_rows && self.request.mode == GrepMode::Lines { "at least " } else { "" };
            return Some(format!(
                "[showing {thing} {}-{last} of {at_least}{total}; {}.{partial}]",
                first + 1,
                next(last)
            ));
        }
        self.matches.partial.then(|| "[not everything was searched; narrow the search to see the rest]".to_owned())
    }

    /// Which files were left out, and why; nothing where none was.
    fn skipped(&self) -> Option<String> {
        let Skipped { first, total } = &self.matches.skipped;
        if *total == 0 {
            return None;
        }
        let mut named: Vec<String> = first
            .iter()
            .map(|(path, why)| {
                let why = match why {
                    SkipReason::LongLine(most) => format!("a line is longer than {}", format_size(*most)),
                    SkipReason::TooLarge(most) => {
                        format!("larger than {}; search it without multiline", format_size(*most))
                    }
                    SkipReason::BinaryMatch => "binary, matches".to_owned(),
                    SkipReason::LargeBinary(most) => format!("binary, larger than {}", format_size(*most)),
                    SkipReason::Unreadable(why) => why.clone(),
                };
                format!("{} ({why})", self.display_path(path))
            })
            .collect();
        let others = total.saturating_sub(named.len() as u64);
        if others > 0 {
            named.push(format!("{others} more"));
        }
        Some(format!("not searched: {}", named.join(", ")))
    }

    /// How many matching lines are in hand.
    fn match_count(&self) -> usize {
        let matching = |file: &FileMatches| match file.binary {
            Some(_) => file.count as usize,
            None => file.hits.iter().filter(|hit| hit.kind == MatchLineKind::Match).count(),
        };
        self.matches.files.iter().map(matching).sum()
    }

    /// Why there are no matches, on one line.
    pub fn no_match_text(&self, nothing: NoMatchHints) -> String {
        let NoMatchDiagnostics { ignored, hidden, binary, other_case, searched, foreign } = self.matches.absence;
        let mut why = Vec::new();
        let hits = |(lines, files): (u64, u64), which: &str| {
            format!("{} in {} {which} {}", pluralize(lines, "hit"), files, if files == 1 { "file" } else { "files" })
        };
        if ignored.0 > 0 {
            why.push(format!("{}; include them: {}", hits(ignored, "ignored"), nothing.include));
        }
        if hidden.0 > 0 {
            why.push(format!("{}; include them: {}", hits(hidden, "hidden"), nothing.include));
        }
        if other_case > 0 {
            why.push(format!("{} in another case; {}", pluralize(other_case, "hit"), nothing.any_case));
        }
        if binary > 0 {
            why.push(format!("{} would match", pluralize(binary, "binary file")));
        }
        if foreign > 0 {
            let files = if foreign == 1 { "1 file is".to_owned() } else { format!("{foreign} files are") };
            why.push(format!("{files} not in UTF-8 and may have it; read what matters, or convert it with iconv"));
        }
        why.extend(self.skipped());
        if self.matches.partial {
            why.push("not everything was searched; narrow the search".to_owned());
        }
        if why.is_empty() && searched == 0 {
            why.push("no file was searched; look at the path and the file filter".to_owned());
        }
        if why.is_empty() { nothing.text.to_owned() } else { format!("{} ({})", nothing.text, why.join("; ")) }
    }

    fn data(&self, shown: &[String]) -> serde_json::Value {
        let mode = match self.request.mode {
            GrepMode::Lines => "content",
            GrepMode::Counts => "count",
            GrepMode::Files => "files_with_matches",
        };
        let files: Vec<_> = if self.request.mode == GrepMode::Files { shown.to_vec() } else { self.files() };
        json!({
            "mode": mode,
            "numFiles": self.matches.total_files,
            "filenames": files,
            "numLines": shown.len(),
            "numMatches": self.matches.total,
            "numSkipped": self.matches.skipped.total,
        })
    }
}

impl From<GrepOutput> for Reply {
    fn from(out: GrepOutput) -> Self {
        let rows = match out.request.mode {
            GrepMode::Lines => out.lines(LineNumbers::Shown, FileNames::Auto),
            GrepMode::Counts => out.counts(FileNames::Auto),
            GrepMode::Files => out.files(),
        };
        out.reply(rows, NoMatchHints::default())
    }
}

fn row(name: Option<&str>, numbers: LineNumbers, hit: &MatchLine) -> String {
    let mark = match hit.kind {
        MatchLineKind::Match => ':',
        MatchLineKind::Context => '-',
        MatchLineKind::Gap => return "--".to_owned(),
    };
    let mut row = String::new();
    if let Some(name) = name {
        row.push_str(name);
        row.push(mark);
    }
    if numbers == LineNumbers::Shown {
        row.push_str(&hit.line.to_string());
        row.push(mark);
    }
    row.push_str(&long_lines::line(hit));
    row
}

fn pluralize(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Result, ports::NoMatchDiagnostics};

    use super::*;
    use crate::testing::{FakeHost, run};

    fn files() -> FakeHost {
        FakeHost::with(&[
            ("src/a.rs", "fn a() {}\nlet b;\nfn c() {}\n"),
            ("src/b.rs", "fn d() {}\n"),
            ("n.txt", "none\n"),
        ])
    }

    fn grep(pattern: &str) -> GrepTool {
        GrepTool { pattern: pattern.into(), ..GrepTool::default() }
    }

    async fn told(memory: &FakeHost, grep: GrepTool) -> String {
        run(memory, grep).await.map_or_else(|error| format!("error: {error}"), |out| Reply::from(out).full_text())
    }

    /// A result as a host would give it, in context.
    fn found(asked: GrepTool, files: Vec<FileMatches>, absence: NoMatchDiagnostics) -> Result<GrepOutput> {
        let start = FakeHost::default().call().workspace_root()?;
        let total = files.iter().map(|file| file.count).sum();
        let matches = GrepResult { total, total_files: files.len() as u64, files, absence, ..GrepResult::default() };
        Ok(GrepOutput { request: asked, start, one_file: false, matches })
    }

    fn hit(kind: MatchLineKind, line: u64, text: &str) -> MatchLine {
        MatchLine::line(kind, line, text)
    }

    #[tokio::test]
    async fn tells_lines_counts_and_files_as_ripgrep_does() {
        let memory = files();
        for (mode, path, want) in [
            (GrepMode::Lines, None, "src/a.rs:1:fn a() {}\nsrc/a.rs:3:fn c() {}\nsrc/b.rs:1:fn d() {}"),
            (GrepMode::Lines, Some("src/a.rs"), "1:fn a() {}\n3:fn c() {}"),
            (GrepMode::Counts, None, "src/a.rs:2\nsrc/b.rs:1"),
            (GrepMode::Counts, Some("src/a.rs"), "2"),
            (GrepMode::Files, None, "src/a.rs\nsrc/b.rs"),
        ] {
            let path = path.map(str::to_owned);
            assert_eq!(told(&memory, GrepTool { path, mode, ..grep("^fn") }).await, want);
        }
    }

    #[test]
    fn context_groups_and_binary_files() {
        let lines = vec![
            hit(MatchLineKind::Context, 1, "a"),
            hit(MatchLineKind::Match, 2, "b\u{fffd}"),
            hit(MatchLineKind::Gap, 0, ""),
            hit(MatchLineKind::Match, 9, &"x".repeat(501)),
        ];
        let files = vec![
            FileMatches { path: "f".into(), count: 2, hits: lines, binary: None },
            FileMatches { path: "g".into(), count: 1, hits: vec![hit(MatchLineKind::Match, 1, "c")], binary: None },
            FileMatches { path: "bin".into(), count: 1, hits: Vec::new(), binary: Some(4) },
        ];
        let out = found(GrepTool { before: 1, ..grep("x") }, files, NoMatchDiagnostics::default()).unwrap();
        let long = "x".repeat(501);
        assert_eq!(
            out.lines(LineNumbers::Hidden, FileNames::Shown),
            [
                "f-a",
                "f:b\u{fffd}",
                "--",
                &format!("f:{long}"),
                "--",
                "g:c",
                "bin: binary file matches (found \"\\0\" byte around offset 4)"
            ]
        );
        assert_eq!(
            out.spaced_lines(),
            [
                "f-1- a",
                "f:2: b\u{fffd}",
                "--",
                &format!("f:9: {}... [truncated]", "x".repeat(500)),
                "g:1: c",
                "bin: binary file matches"
            ]
        );
    }

    #[tokio::test]
    async fn a_limit_says_how_to_go_on() {
        let memory = files();
        let some = GrepTool { limit: Some(2), ..grep("^fn") };
        assert_eq!(
            told(&memory, some.clone()).await,
            "src/a.rs:1:fn a() {}\nsrc/a.rs:3:fn c() {}\n[showing matches 1-2 of 3; go on at offset 2, or narrow the search.]"
        );
        assert_eq!(told(&memory, GrepTool { offset: 2, ..some.clone() }).await, "src/b.rs:1:fn d() {}");
        assert_eq!(
            told(&memory, GrepTool { unit: LimitUnit::Rows, limit: Some(1), offset: 1, ..some.clone() }).await,
            "src/a.rs:3:fn c() {}\n[showing lines 2-2 of at least 3; go on at offset 2, or narrow the search.]"
        );
        assert_eq!(
            told(&memory, GrepTool { mode: GrepMode::Files, limit: Some(1), ..some.clone() }).await,
            "src/a.rs\n[showing files 1-1 of 2; go on at offset 1, or narrow the search.]"
        );
        assert_eq!(
            told(&memory, GrepTool { offset: 9, ..some }).await,
            "[nothing at offset 9: there are 3 matches in all.]"
        );
    }

    #[tokio::test]
    async fn nothing_has_a_reason() {
        assert_eq!(told(&files(), grep("zebra")).await, "No matches found");
        assert_eq!(
            told(&files(), GrepTool { globs: vec!["*.py".into()], ..grep("fn") }).await,
            "No matches found (no file was searched; look at the path and the file filter)"
        );
        let absence = NoMatchDiagnostics {
            ignored: (3, 2),
            binary: 2,
            other_case: 1,
            searched: 9,
            ..NoMatchDiagnostics::default()
        };
        let nothing = NoMatchHints { include: "with no_ignore", ..NoMatchHints::default() };
        assert_eq!(
            found(grep("x"), Vec::new(), absence).unwrap().reply(Vec::new(), nothing).text,
            "No matches found (3 hits in 2 ignored files; include them: with no_ignore; 1 hit in another case; start the \
             pattern with (?i); 2 binary files would match)"
        );
        let absence = NoMatchDiagnostics { searched: 9, foreign: 1, ..NoMatchDiagnostics::default() };
        assert_eq!(
            found(grep("x"), Vec::new(), absence).unwrap().reply(Vec::new(), nothing).text,
            "No matches found (1 file is not in UTF-8 and may have it; read what matters, or convert it with iconv)"
        );
    }

    #[test]
    fn a_match_in_a_long_line_is_shown_with_its_surroundings() {
        let long = format!("{}NEEDLE{}", "a".repeat(3000), "ü".repeat(3000));
        let far = MatchLine { at: 3000, left_out: (150_000, 140_000), ..hit(MatchLineKind::Match, 7, &long) };
        let files = vec![FileMatches { path: "f".into(), count: 1, hits: vec![far], binary: None }];
        let out = found(grep("NEEDLE"), files, NoMatchDiagnostics::default()).unwrap();
        let shown = format!("{}NEEDLE{}", "a".repeat(250), "ü".repeat(244));
        assert_eq!(
            out.lines(LineNumbers::Shown, FileNames::Shown),
            [format!("f:7:[... 152750 bytes]{shown}[... {} bytes]", 140_000 + 2 * (3000 - 244))]
        );
        assert_eq!(out.spaced_lines(), [format!("f:7: ... {shown}... [truncated]")]);
        let near =
            vec![hit(MatchLineKind::Match, 1, &"b".repeat(1999)), hit(MatchLineKind::Context, 2, &"c".repeat(2001))];
        let files = vec![FileMatches { path: "f".into(), count: 1, hits: near, binary: None }];
        let rows =
            found(grep("b"), files, NoMatchDiagnostics::default()).unwrap().lines(LineNumbers::Hidden, FileNames::Auto);
        assert_eq!(rows, [format!("f:{}", "b".repeat(1999)), format!("f-{}[... 1501 bytes]", "c".repeat(500))]);
    }

    #[test]
    fn files_that_were_left_out_are_named_with_the_reason() {
        let skipped = Skipped {
            first: vec![
                ("big".into(), SkipReason::LongLine(64 << 20)),
                ("closed".into(), SkipReason::Unreadable("permission denied".into())),
                ("pic".into(), SkipReason::BinaryMatch),
            ],
            total: 5,
        };
        let told =
            "not searched: big (a line is longer than 64MB), closed (permission denied), pic (binary, matches), 2 more";
        let files = vec![FileMatches {
            path: "f".into(),
            count: 1,
            hits: vec![hit(MatchLineKind::Match, 1, "x")],
            binary: None,
        }];
        let mut out =
            found(grep("x"), files, NoMatchDiagnostics { searched: 1, ..NoMatchDiagnostics::default() }).unwrap();
        assert_eq!(Reply::from(out.clone()).full_text(), "f:1:x", "nothing was left out");
        out.matches.skipped = skipped.clone();
        assert_eq!(Reply::from(out).full_text(), format!("f:1:x\n[{told}]"));
        let mut none =
            found(grep("x"), Vec::new(), NoMatchDiagnostics { searched: 1, ..NoMatchDiagnostics::default() }).unwrap();
        none.matches.skipped = skipped;
        assert_eq!(Reply::from(none).text, format!("No matches found ({told})"));
    }

    #[tokio::test]
    async fn a_bad_pattern_or_place_is_explained() {
        assert_eq!(
            told(&files(), grep("fn(")).await,
            "error: regex parse error:\n    fn(\n      ^\nerror: unclosed group\n\
             To search for the text as it stands, escape it: fn\\("
        );
        assert_eq!(told(&files(), GrepTool { literal: true, ..grep("fn a(") }).await, "src/a.rs:1:fn a() {}");
        assert_eq!(
            told(&files(), GrepTool { path: Some("scr".into()), ..grep("x") }).await,
            "error: scr: no such file or folder. Did you mean src?"
        );
        assert_eq!(told(&files(), grep("")).await, "error: the pattern is empty; say what to look for");
    }
}
