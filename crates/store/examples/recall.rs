//! Measures how often memory search finds the right note: lexical only, vectors only, and both combined.
//!
//! `cargo run --release -p helve-store --example recall -- FILE…` reads sets of notes with questions, either
//! `{"notes": […], "q": [[question, number of the right note], …]}` (a list of numbers, where several are right), or
//! sessions in the form of LoCoMo. A figure is the share of right notes among the first 1, 3, 5 and 10.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, anyhow};
use helve_contract::ports::{MemoryQuery, MemorySource, NewNote, Notes};
use helve_store::{
    MemoryConfig, SqliteStore,
    embed::{BuiltinEmbedder, Embedder},
};
use rusqlite::{Connection, params};
use serde_json::Value;

/// How many hits count.
const FIRST: [usize; 4] = [1, 3, 5, 10];

/// Notes, and questions with the numbers of the notes that answer them.
struct Set {
    notes: Vec<String>,
    questions: Vec<(String, BTreeSet<usize>)>,
}

/// Sums of shares.
#[derive(Default)]
struct Sums([f64; 4], f64);

impl Sums {
    fn add(&mut self, right: &BTreeSet<usize>, hits: &[usize]) {
        for (sum, first) in self.0.iter_mut().zip(FIRST) {
            let found = hits.iter().take(first).filter(|it| right.contains(it)).count();
            *sum += found as f64 / right.len() as f64;
        }
        self.1 += 1.0;
    }

    fn show(&self, name: &str) {
        let shares: Vec<String> =
            self.0.iter().zip(FIRST).map(|(sum, first)| format!("@{first} {:.3}", sum / self.1)).collect();
        println!("{name:<34} {}", shares.join("  "));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut sets = Vec::new();
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        sets.extend(read(&serde_json::from_str(&text)?).with_context(|| path)?);
    }
    let [mut plain, mut stemmed, mut vectors, mut both] = <[Sums; 4]>::default();
    let mut spread = (Vec::new(), Vec::new());
    for set in &sets {
        words(set, "unicode61", &mut plain)?;
        words(set, "porter unicode61 remove_diacritics 2", &mut stemmed)?;
        wholes(set, &mut vectors).await?;
        helve(set, &mut both, &mut spread).await?;
    }
    println!("{} sets, {} questions", sets.len(), plain.1);
    plain.show("BM25 alone (FTS5)");
    stemmed.show("BM25 alone (FTS5, stemmed)");
    vectors.show("vectors alone");
    both.show("Helve");
    for (name, scores) in [("right", &mut spread.0), ("any other", &mut spread.1)] {
        scores.sort_by(f32::total_cmp);
        let at = |part: f64| scores.get(((scores.len() as f64 - 1.0) * part) as usize).copied().unwrap_or_default();
        let marks = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99].map(|part| format!("{:.2}", at(part)));
        println!("scores of {name:<10} p5 p10 p25 p50 p75 p90 p95 p99: {}", marks.join(" "));
    }
    Ok(())
}

fn read(value: &Value) -> Result<Vec<Set>> {
    if let Some(notes) = value.get("notes").and_then(Value::as_array) {
        let notes = notes.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let questions = value["q"].as_array().context("no questions")?.iter().map(|it| {
            let right = match &it[1] {
                Value::Array(several) => several.iter().filter_map(Value::as_u64).map(|it| it as usize).collect(),
                one => one.as_u64().map(|it| it as usize).into_iter().collect(),
            };
            (it[0].as_str().unwrap_or_default().to_owned(), right)
        });
        return Ok(vec![Set { notes, questions: questions.collect() }]);
    }
    value.as_array().context("neither notes nor conversations")?.iter().map(locomo).collect()
}

/// A session: each turn is a note that opens with its date and speaker. Questions that have no answer are left out.
fn locomo(value: &Value) -> Result<Set> {
    let talk = value["conversation"].as_object().context("no conversation")?;
    let (mut notes, mut numbers) = (Vec::new(), HashMap::new());
    for session in 1..=talk.len() {
        let date = talk.get(&format!("session_{session}_date_time")).and_then(Value::as_str).unwrap_or_default();
        let turns = talk.get(&format!("session_{session}")).and_then(Value::as_array);
        for turn in turns.into_iter().flatten() {
            let part = |name: &str| turn[name].as_str().unwrap_or_default();
            numbers.insert(part("dia_id").to_owned(), notes.len());
            notes.push(format!("[{date}] {}: {}", part("speaker"), part("text")));
        }
    }
    let mut questions = Vec::new();
    for it in value["qa"].as_array().into_iter().flatten().filter(|it| it["category"] != 5) {
        let proof = it["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let proof = proof.flat_map(|it| it.split([';', ' ', ',']));
        let right: BTreeSet<usize> = proof.filter_map(|it| numbers.get(it).copied()).collect();
        if !right.is_empty() {
            questions.push((it["question"].as_str().unwrap_or_default().to_owned(), right));
        }
    }
    Ok(Set { notes, questions })
}

fn words(set: &Set, tokenizer: &str, sums: &mut Sums) -> Result<()> {
    let file = Connection::open_in_memory()?;
    file.execute_batch(&format!("CREATE VIRTUAL TABLE notes USING fts5 (text, tokenize = '{tokenizer}')"))?;
    for (number, note) in set.notes.iter().enumerate() {
        file.execute("INSERT INTO notes (rowid, text) VALUES (?1, ?2)", params![number, note])?;
    }
    let mut find = file.prepare("SELECT rowid FROM notes WHERE notes MATCH ?1 ORDER BY rank LIMIT 10")?;
    for (question, right) in &set.questions {
        let terms = question.split(|c: char| !c.is_alphanumeric()).filter(|it| !it.is_empty());
        let terms: Vec<String> = terms.map(|it| format!("\"{it}\"")).collect();
        let hits: Vec<usize> = find.query_map([terms.join(" OR ")], |row| row.get(0))?.collect::<Result<_, _>>()?;
        sums.add(right, &hits);
    }
    Ok(())
}

async fn wholes(set: &Set, sums: &mut Sums) -> Result<()> {
    let embed = async |texts: &[&str]| BuiltinEmbedder.embed(texts).await.map_err(|error| anyhow!("{error}"));
    let notes = embed(&set.notes.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for (question, right) in &set.questions {
        let asked = embed(&[question]).await?.remove(0);
        let near = |note: &Vec<f32>| note.iter().zip(&asked).map(|(a, b)| a * b).sum::<f32>();
        let mut hits: Vec<(f32, usize)> = notes.iter().enumerate().map(|(it, note)| (near(note), it)).collect();
        hits.sort_by(|a, b| b.0.total_cmp(&a.0));
        sums.add(right, &hits.into_iter().map(|(_, it)| it).take(10).collect::<Vec<_>>());
    }
    Ok(())
}

/// The same through the port that the tools use.
async fn helve(set: &Set, sums: &mut Sums, spread: &mut (Vec<f32>, Vec<f32>)) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("store.db"))?.with_memory(MemoryConfig::default());
    let mut numbers = HashMap::new();
    for (number, text) in set.notes.iter().enumerate() {
        let note = NewNote { text: text.clone(), tags: None, ..NewNote::default() };
        numbers.insert(store.save_note("me", &note).await?.id, number);
    }
    for (question, right) in &set.questions {
        let ask = MemoryQuery { text: question.clone(), user: Some("me".into()), limit: 100, ..MemoryQuery::default() };
        let mut hits = Vec::new();
        for it in store.search_memory(&ask).await? {
            let MemorySource::Note(id) = &it.source else { continue };
            let number = numbers[id];
            if right.contains(&number) { &mut spread.0 } else { &mut spread.1 }.push(it.score);
            hits.push(number);
        }
        sums.add(right, &hits);
    }
    Ok(())
}
