//! Passages in the index: text, tokens and vector.

use helve_contract::{Error, Result};
use rusqlite::{Transaction, params};

use crate::embed::{Embedder, normalize, vocabulary};

/// Texts that a model gets at once.
const EMBED_BATCH: usize = 64;

/// A piece of text that is found as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// Its first line, or its number.
    pub(super) first: u64,
    /// Its last line, or its number.
    pub(super) last: u64,
    pub(super) text: String,
}

/// A passage ready for the index.
pub(super) struct IndexedPassage {
    passage: Passage,
    marks: PassageFeatures,
}

/// What the index keeps beside a text.
pub(super) struct PassageFeatures {
    /// The model that the vector is of; nothing, if there is none yet.
    pub(super) model: String,
    tokens: Vec<u8>,
    vector: Vec<u8>,
}

/// The vectors of some texts.
pub(super) async fn vectors(embedder: &dyn Embedder, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
    let mut all = Vec::with_capacity(texts.len());
    for batch in texts.chunks(EMBED_BATCH) {
        let made = embedder.embed(batch).await?;
        if made.len() != batch.len() || made.iter().any(|it| it.len() != embedder.dims()) {
            return Err(Error::failed(format!("the embedding model `{}` gave vectors of another form", embedder.id())));
        }
        all.extend(made);
    }
    Ok(all)
}

/// Prepares passages. Without vectors they are stored without, until the model answers.
pub(super) fn embed_passages(passages: Vec<Passage>, vectors: Vec<Vec<f32>>, model: &str) -> Vec<IndexedPassage> {
    let mut vectors = vectors.into_iter();
    let mut mark = |passage: Passage| IndexedPassage { marks: features(&passage.text, vectors.next(), model), passage };
    passages.into_iter().map(&mut mark).collect()
}

/// What the index keeps beside this text.
pub(super) fn features(text: &str, vector: Option<Vec<f32>>, model: &str) -> PassageFeatures {
    let tokens = vocabulary().tokens(text).into_iter().flat_map(u16::to_le_bytes).collect();
    let model = if vector.is_some() { model.to_owned() } else { String::new() };
    PassageFeatures { model, tokens, vector: vector.map(quantize).unwrap_or_default() }
}

/// A vector in bytes: its scale, and a byte a number.
fn quantize(mut vector: Vec<f32>) -> Vec<u8> {
    normalize(&mut vector);
    let (scale, numbers) = quantize_i8(&vector);
    scale.to_le_bytes().into_iter().chain(numbers.into_iter().map(|x| x as u8)).collect()
}

/// A vector as whole numbers of eight bits, and what one of them is worth.
pub(super) fn quantize_i8(vector: &[f32]) -> (f32, Vec<i8>) {
    let most = vector.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let scale = if most > 0.0 { most / 127.0 } else { 1.0 };
    (scale, vector.iter().map(|x| (x / scale).round() as i8).collect())
}

/// Inserts passages into a partition.
pub(super) fn insert(
    t: &Transaction<'_>,
    shelf: i64,
    source: &str,
    at: i64,
    passages: &[IndexedPassage],
) -> anyhow::Result<()> {
    let mut add = t.prepare_cached(
        "INSERT INTO passages (shelf, source, first, last, text, at, model, tokens, vector) \
         VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)",
    )?;
    for IndexedPassage { passage: it, marks } in passages {
        add.execute(params![shelf, source, it.first, it.last, it.text, at, marks.model, marks.tokens, marks.vector])?;
    }
    Ok(())
}

/// Removes the passages of a source from a partition.
pub(super) fn remove(t: &Transaction<'_>, shelf: i64, source: &str) -> anyhow::Result<()> {
    t.prepare_cached("DELETE FROM passages WHERE shelf = ?1 AND source = ?2")?.execute(params![shelf, source])?;
    Ok(())
}

/// Some passages of a partition with vectors of another model.
pub(super) fn stale_passages(t: &Transaction<'_>, shelf: i64, model: &str) -> anyhow::Result<Vec<(i64, String)>> {
    // Two ranges of one index instead of `<>`, which would scan all of it.
    let mut some = t.prepare_cached(
        "SELECT id, text FROM passages WHERE shelf = ?1 AND model < ?2 \
         UNION ALL SELECT id, text FROM passages WHERE shelf = ?1 AND model > ?2 LIMIT ?3",
    )?;
    let rows = some.query_map(params![shelf, model, EMBED_BATCH * 4], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Notes what a model made of some passages.
pub(super) fn update_features(t: &Transaction<'_>, passages: &[(i64, PassageFeatures)]) -> anyhow::Result<()> {
    let mut set = t.prepare_cached("UPDATE passages SET model = ?2, tokens = ?3, vector = ?4 WHERE id = ?1")?;
    for (id, it) in passages {
        set.execute(params![id, it.model, it.tokens, it.vector])?;
    }
    Ok(())
}
