//! Searches every requested partition for a query.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, PoisonError},
};

use helve_contract::{
    Result,
    ports::{MemoryHit, MemoryQuery, MemorySource},
};
use rusqlite::{OptionalExtension, Transaction, params, params_from_iter};

use super::{
    super::{SqliteStore, Tx, from_micros},
    MemorySearcher, index,
    query::SearchQuery,
    rank::{PassageRanker, RankWeights},
    shelf::{self, Key, PartitionKind, PartitionState, PassageIndex},
};

/// Hits at most.
const MAX_HITS: usize = 100;
/// Passages with odd words that are looked at, at most.
const MAX_FTS_HITS: usize = 1_000;

impl SqliteStore {
    pub(super) async fn recall_passages(&self, question: &MemoryQuery) -> Result<Vec<MemoryHit>> {
        let shelves = requested_partitions(question);
        if question.include_sessions
            && let Some(user) = &question.user
        {
            self.index_conversations(user).await?;
        }
        for key in &shelves {
            self.reembed(key).await;
        }
        let embedder = &self.search.memory.embedder;
        let vector = embedder.embed(&[&question.text]).await.ok().and_then(|made| made.into_iter().next());
        let vector = vector.filter(|it| it.len() == embedder.dims()).map(|mut it| {
            crate::embed::normalize(&mut it);
            it
        });
        let (desk, question) = (self.search.clone(), question.clone());
        self.read(move |t| {
            let query = SearchQuery::new(&question.text, vector.as_deref());
            let mut hits = Vec::new();
            for key in shelves {
                if let Some(state) = shelf::state(t, &key)? {
                    let wanted = question.limit.clamp(1, MAX_HITS) * 4 + 16;
                    let best = best_passages(t, &desk, state, &query, &question, wanted)?;
                    for (id, score) in best {
                        hits.extend(load_hit(t, key.kind, id, score)?);
                    }
                }
            }
            Ok(dedup_hits(hits, question.limit.min(MAX_HITS)))
        })
        .await
    }

    /// Recomputes vectors of another model, in batches that commit separately. If the model does not answer, lexical
    /// search remains.
    async fn reembed(&self, key: &Key) {
        let embedder = &self.search.memory.embedder;
        loop {
            let (key, model) = (key.clone(), embedder.id().to_owned());
            let unread = self.read(move |t| match shelf::state(t, &key)? {
                Some(state) => index::stale_passages(t, state.id, &model),
                None => Ok(Vec::new()),
            });
            let Ok(unread) = unread.await else { return };
            if unread.is_empty() {
                return;
            }
            let texts: Vec<&str> = unread.iter().map(|(_, text)| text.as_str()).collect();
            let Ok(vectors) = index::vectors(&**embedder, &texts).await else { return };
            let read: Vec<_> = unread
                .iter()
                .zip(vectors)
                .map(|((id, text), vector)| (*id, index::features(text, Some(vector), embedder.id())))
                .collect();
            if self.write(move |t| index::update_features(t, &read)).await.is_err() {
                return;
            }
        }
    }
}

/// The shelves that a question is about. Tags are of notes alone.
fn requested_partitions(question: &MemoryQuery) -> Vec<Key> {
    let mut shelves = Vec::new();
    if let Some(user) = &question.user {
        shelves.push(Key::notes(user));
        if question.include_sessions && question.tags.is_empty() {
            shelves.push(Key::talk(user));
        }
    }
    if let (Some(place), true) = (&question.workspace, question.tags.is_empty()) {
        shelves.push(Key::files(question.user.as_deref().unwrap_or_default(), place));
    }
    shelves
}

/// The best passages of a shelf, by their rows.
fn best_passages(
    t: &Tx<'_>,
    desk: &MemorySearcher,
    state: PartitionState,
    query: &SearchQuery,
    question: &MemoryQuery,
    wanted: usize,
) -> anyhow::Result<Vec<(i64, f32)>> {
    let embedder = &desk.memory.embedder;
    let shelf: Arc<PassageIndex> = {
        let mut library = desk.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        library.get(t, state, embedder.dims())?
    };
    let place = |id: &i64| shelf.ids.binary_search(id).ok();
    let user = question.user.as_deref().unwrap_or_default();
    let allowed = tagged_passages(t, state.id, user, &question.tags)?;
    let allowed: Option<BTreeSet<usize>> = allowed.map(|ids| ids.iter().filter_map(place).collect());
    let found = fts_matches(t, state.id, query)?;
    let found: Vec<usize> = found.iter().filter_map(place).collect();
    let (meaning, words) = desk.weights();
    let weights = RankWeights { meaning, words, sentence: embedder.sentence_weight().clamp(0.0, 1.0) };
    let mut scores = PassageRanker::new(&shelf, query, &weights).scores(&found, allowed.as_ref());
    scores.retain(|(_, score)| *score >= question.min_score && *score > 0.0);
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(shelf.ids[b.0].cmp(&shelf.ids[a.0])));
    Ok(scores.into_iter().take(wanted).map(|(it, score)| (shelf.ids[it], score)).collect())
}

/// The passages of notes that have all of these tags; `None`, if none is asked for.
fn tagged_passages(t: &Tx<'_>, shelf: i64, user: &str, tags: &[String]) -> anyhow::Result<Option<Vec<i64>>> {
    if tags.is_empty() {
        return Ok(None);
    }
    let unique: BTreeSet<&String> = tags.iter().collect();
    let sql = format!(
        "SELECT id FROM passages WHERE shelf = ? AND source IN (SELECT note FROM note_tags \
         WHERE tenant = ? AND user = ? AND tag IN ({}) GROUP BY note HAVING count(*) = {})",
        vec!["?"; unique.len()].join(","),
        unique.len()
    );
    let (shelf, tenant) = (shelf.to_string(), t.tenant.to_string());
    let values = [shelf.as_str(), &tenant, user].into_iter().chain(unique.into_iter().map(String::as_str));
    let mut rows = t.prepare_cached(&sql)?;
    let ids = rows.query_map(params_from_iter(values), |row| row.get(0))?;
    Ok(Some(ids.collect::<Result<_, _>>()?))
}

/// Full-text matches in a partition, newest first. It is queried only for rare words: all others are in memory. It
/// does not rank, because that would scan every passage.
fn fts_matches(t: &Transaction<'_>, number: i64, query: &SearchQuery) -> anyhow::Result<Vec<i64>> {
    let Some(words) = query.full_text(number) else { return Ok(Vec::new()) };
    let mut rows =
        t.prepare_cached("SELECT rowid FROM passages_fts WHERE passages_fts MATCH ?1 ORDER BY rowid DESC LIMIT ?2")?;
    let ids = rows.query_map(params![words, MAX_FTS_HITS], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// A passage as it is told.
fn load_hit(t: &Transaction<'_>, kind: PartitionKind, id: i64, score: f32) -> anyhow::Result<Option<MemoryHit>> {
    let sql = match kind {
        PartitionKind::Notes => {
            "SELECT p.source, p.first, p.last, p.text, n.created, n.updated, n.tags, n.origin \
             FROM passages p JOIN shelves s ON s.id = p.shelf \
             JOIN notes n ON n.tenant = s.tenant AND n.user = s.user AND n.id = p.source WHERE p.id = ?1"
        }
        PartitionKind::Files | PartitionKind::Conversations => {
            "SELECT source, first, last, text, at, at, '[]', NULL FROM passages WHERE id = ?1"
        }
    };
    let row = t.prepare_cached(sql)?.query_row([id], |row| {
        let (source, first, last): (String, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(MemoryHit {
            source: match kind {
                PartitionKind::Notes => MemorySource::Note(source),
                PartitionKind::Files => MemorySource::File { path: source, first, last },
                PartitionKind::Conversations => MemorySource::Session { session: source, seq: first },
            },
            text: row.get(3)?,
            score,
            tags: serde_json::from_str(&row.get::<_, String>(6)?).unwrap_or_default(),
            origin: row.get::<_, Option<String>>(7)?.map(|it| it.as_str().into()),
            created: from_micros(row.get(4)?),
            updated: from_micros(row.get(5)?),
        })
    });
    Ok(row.optional()?)
}

/// Best first; ties by recency. The same note or text occurs once.
fn dedup_hits(mut hits: Vec<MemoryHit>, most: usize) -> Vec<MemoryHit> {
    let rounded = |it: &MemoryHit| (it.score * 1e4).round() as i64;
    hits.sort_by(|a, b| rounded(b).cmp(&rounded(a)).then(b.updated.cmp(&a.updated)));
    let (mut texts, mut sources) = (HashSet::new(), HashSet::new());
    hits.retain(|it| {
        let source = match &it.source {
            MemorySource::Note(id) => id.clone(),
            MemorySource::File { path, first, last } => format!("{path}:{first}-{last}"),
            MemorySource::Session { session, seq } => format!("{session}#{seq}"),
        };
        let text = it.text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        texts.insert(text) & sources.insert(source)
    });
    hits.truncate(most);
    hits
}
