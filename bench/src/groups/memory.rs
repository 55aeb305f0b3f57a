//! Searches in a thousand to a hundred thousand notes, compared with a plain full-text index.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use helve_contract::ports::{MemoryQuery, NewNote, Notes};
use helve_store::SqliteStore;
use rusqlite::{Connection, params};

use crate::{
    desk::tmpfs_dir,
    report::{BenchReport, BenchTarget, ComparisonSpec},
};

/// What a search among the most notes may take.
const LIMIT: Duration = Duration::from_millis(15);

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let words = common_words();
    let sizes: &[usize] = if report.effort.is_small() { &[300, 1_000] } else { &[100, 1_000, 10_000, 100_000] };
    for &many in sizes {
        let (_held, root) = tmpfs_dir()?;
        let store = SqliteStore::lazy(root.join("helve.db"));
        let plain = Connection::open(root.join("plain.db"))?;
        plain.execute_batch(
            "PRAGMA journal_mode = wal; PRAGMA synchronous = off; \
             CREATE VIRTUAL TABLE notes USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2'); BEGIN",
        )?;
        let mut dice = Rng(many as u64);
        for _ in 0..many {
            let text = dice.sentence(&words, 10, 30);
            let note = NewNote { text: text.clone(), ..NewNote::default() };
            runtime.block_on(store.save_note("me", &note)).map_err(to_anyhow)?;
            plain.execute("INSERT INTO notes (text) VALUES (?1)", params![text])?;
        }
        plain.execute_batch("COMMIT")?;
        let questions: Vec<String> = (0..200).map(|_| dice.sentence(&words, 4, 9)).collect();
        let ours = |question: &str| -> Result<()> {
            let ask =
                MemoryQuery { text: question.to_owned(), user: Some("me".into()), limit: 5, ..MemoryQuery::default() };
            runtime.block_on(store.search_memory(&ask)).map(drop).map_err(to_anyhow)
        };
        search_times(report, many, &questions, ours)?;
        let mut find = plain.prepare("SELECT text FROM notes WHERE notes MATCH ?1 ORDER BY rank LIMIT 5")?;
        let mut theirs = |question: &str| -> Result<()> {
            let terms: Vec<String> = question.split(' ').map(|word| format!("\"{word}\"")).collect();
            let texts = find.query_map([terms.join(" OR ")], |row| row.get::<_, String>(0))?;
            texts.collect::<Result<Vec<_>, _>>().map(drop).map_err(Into::into)
        };
        let (one, other) = (Cell::new(0), Cell::new(0));
        let next = |turn: &Cell<usize>| {
            turn.set(turn.get() + 1);
            questions[turn.get() % questions.len()].as_str()
        };
        let name = format!("recall, {many} notes");
        report.compare(
            ComparisonSpec::of(&name, "SQLite FTS5 alone, any word").aim(BenchTarget::Micros(LIMIT.as_micros() as f64)),
            &mut |times| (0..times).try_for_each(|_| ours(next(&one))),
            &mut |times| (0..times).try_for_each(|_| theirs(next(&other))),
        )?;
    }
    report.curve_of_rows(("recall", "notes"), sizes);
    Ok(())
}

fn to_anyhow(error: helve_contract::Error) -> anyhow::Error {
    anyhow!("{error}")
}

/// How long single searches take, and how large the process is then.
fn search_times(
    report: &mut BenchReport,
    many: usize,
    questions: &[String],
    ask: impl Fn(&str) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    ask("the first question reads the shelf")?;
    let first = begun.elapsed();
    let mut times = Vec::new();
    for question in questions {
        let begun = Instant::now();
        ask(question)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    let most = |aim: f64| (many == 100_000).then_some(BenchTarget::Most(aim));
    report.figure(&format!("recall, {many} notes: p50"), at(50), "ms", most(LIMIT.as_secs_f64() * 1e3));
    report.figure(&format!("recall, {many} notes: p99"), at(99), "ms", most(100.0));
    report.figure(
        &format!("recall, {many} notes: the first, which reads the shelf"),
        first.as_secs_f64() * 1e3,
        "ms",
        None,
    );
    let resident = crate::wire::memory(std::process::id()).0;
    report.figure(&format!("recall, {many} notes: resident, with this program"), resident, "MB", most(300.0));
    Ok(())
}

/// Words of English, the commoner ones first.
fn common_words() -> Vec<&'static str> {
    let all = include_str!("../../../crates/store/data/vocab.txt").lines();
    all.filter(|word| word.len() > 2 && word.bytes().all(|c| c.is_ascii_lowercase())).collect()
}

/// The same numbers in each run.
struct Rng(u64);

impl Rng {
    fn next_f64(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Some words, common ones far more often than rare ones.
    fn sentence(&mut self, words: &[&str], least: usize, most: usize) -> String {
        let many = least + (self.next_f64() * (most - least) as f64) as usize;
        let word = |dice: &mut Self| words[(dice.next_f64().powi(3) * words.len() as f64) as usize % words.len()];
        (0..many).map(|_| word(self)).collect::<Vec<_>>().join(" ")
    }
}
