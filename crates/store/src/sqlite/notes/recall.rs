//! Looking for what fits a question, on every shelf that was asked for.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, PoisonError},
};

use helve_contract::{
    Result,
    ports::{Recall, Recalled, Source},
};
use rusqlite::{OptionalExtension, Transaction, params, params_from_iter};

use super::{
    super::{Sqlite, Tx, told},
    Desk, index,
    query::Query,
    rank::{Ranking, Weights},
    shelf::{self, Key, Kind, Shelf, State},
};

/// Hits at most.
const MOST: usize = 100;
/// Passages with odd words that are looked at, at most.
const ODD: usize = 1_000;

impl Sqlite {
    pub(super) async fn recall_passages(&self, question: &Recall) -> Result<Vec<Recalled>> {
        let shelves = asked(question);
        if question.conversations
            && let Some(user) = &question.user
        {
            self.listen(user).await?;
        }
        for key in &shelves {
            self.catch_up(key).await;
        }
        let embedder = &self.desk.memory.embedder;
        let vector = embedder.embed(&[&question.text]).await.ok().and_then(|made| made.into_iter().next());
        let vector = vector.filter(|it| it.len() == embedder.dims()).map(|mut it| {
            crate::embed::unit(&mut it);
            it
        });
        let (desk, question) = (self.desk.clone(), question.clone());
        self.read(move |t| {
            let query = Query::new(&question.text, vector.as_deref());
            let mut hits = Vec::new();
            for key in shelves {
                if let Some(state) = shelf::state(t, &key)? {
                    let wanted = question.most.clamp(1, MOST) * 4 + 16;
                    let best = best(t, &desk, state, &query, &question, wanted)?;
                    for (id, score) in best {
                        hits.extend(hit(t, key.kind, id, score)?);
                    }
                }
            }
            Ok(folded(hits, question.most.min(MOST)))
        })
        .await
    }

    /// Lets the present model read what another one has read. Each batch is a step of its own. When the model does not
    /// answer, words must do.
    async fn catch_up(&self, key: &Key) {
        let embedder = &self.desk.memory.embedder;
        loop {
            let (key, model) = (key.clone(), embedder.id().to_owned());
            let unread = self.read(move |t| match shelf::state(t, &key)? {
                Some(state) => index::unread(t, state.id, &model),
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
                .map(|((id, text), vector)| (*id, index::marks(text, Some(vector), embedder.id())))
                .collect();
            if self.write(move |t| index::reread(t, &read)).await.is_err() {
                return;
            }
        }
    }
}

/// The shelves that a question is about. Tags are of notes alone.
fn asked(question: &Recall) -> Vec<Key> {
    let mut shelves = Vec::new();
    if let Some(user) = &question.user {
        shelves.push(Key::notes(user));
        if question.conversations && question.tags.is_empty() {
            shelves.push(Key::talk(user));
        }
    }
    if let (Some(place), true) = (&question.place, question.tags.is_empty()) {
        shelves.push(Key::files(question.user.as_deref().unwrap_or_default(), place));
    }
    shelves
}

/// The best passages of a shelf, by their rows.
fn best(
    t: &Tx<'_>,
    desk: &Desk,
    state: State,
    query: &Query,
    question: &Recall,
    wanted: usize,
) -> anyhow::Result<Vec<(i64, f32)>> {
    let embedder = &desk.memory.embedder;
    let shelf: Arc<Shelf> = {
        let mut library = desk.library.lock().unwrap_or_else(PoisonError::into_inner);
        library.shelf(t, state, embedder.dims())?
    };
    let place = |id: &i64| shelf.ids.binary_search(id).ok();
    let user = question.user.as_deref().unwrap_or_default();
    let allowed = tagged(t, state.id, user, &question.tags)?;
    let allowed: Option<BTreeSet<usize>> = allowed.map(|ids| ids.iter().filter_map(place).collect());
    let found = full_text(t, state.id, query)?;
    let found: Vec<usize> = found.iter().filter_map(place).collect();
    let (meaning, words) = desk.weights();
    let weights = Weights { meaning, words, trust: embedder.trust().clamp(0.0, 1.0) };
    let mut scores = Ranking::new(&shelf, query, &weights).scores(&found, allowed.as_ref());
    scores.retain(|(_, score)| *score >= question.least && *score > 0.0);
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(shelf.ids[b.0].cmp(&shelf.ids[a.0])));
    Ok(scores.into_iter().take(wanted).map(|(it, score)| (shelf.ids[it], score)).collect())
}

/// The passages of notes that have all of these tags; `None`, if none is asked for.
fn tagged(t: &Tx<'_>, shelf: i64, user: &str, tags: &[String]) -> anyhow::Result<Option<Vec<i64>>> {
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

/// What the full-text index finds on a shelf, the newest first. It is asked for odd words alone: all others lie ready
/// in memory. Nor does it rank, because it would count every passage of the shelf to do so.
fn full_text(t: &Transaction<'_>, number: i64, query: &Query) -> anyhow::Result<Vec<i64>> {
    let Some(words) = query.full_text(number) else { return Ok(Vec::new()) };
    let mut rows =
        t.prepare_cached("SELECT rowid FROM passages_fts WHERE passages_fts MATCH ?1 ORDER BY rowid DESC LIMIT ?2")?;
    let ids = rows.query_map(params![words, ODD], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// A passage as it is told.
fn hit(t: &Transaction<'_>, kind: Kind, id: i64, score: f32) -> anyhow::Result<Option<Recalled>> {
    let sql = match kind {
        Kind::Notes => {
            "SELECT p.source, p.first, p.last, p.text, n.created, n.updated, n.tags, n.origin \
             FROM passages p JOIN shelves s ON s.id = p.shelf \
             JOIN notes n ON n.tenant = s.tenant AND n.user = s.user AND n.id = p.source WHERE p.id = ?1"
        }
        Kind::Files | Kind::Talk => "SELECT source, first, last, text, at, at, '[]', NULL FROM passages WHERE id = ?1",
    };
    let row = t.prepare_cached(sql)?.query_row([id], |row| {
        let (source, first, last): (String, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Recalled {
            source: match kind {
                Kind::Notes => Source::Note(source),
                Kind::Files => Source::File { path: source, first, last },
                Kind::Talk => Source::Conversation { session: source, seq: first },
            },
            text: row.get(3)?,
            score,
            tags: serde_json::from_str(&row.get::<_, String>(6)?).unwrap_or_default(),
            origin: row.get::<_, Option<String>>(7)?.map(|it| it.as_str().into()),
            created: told(row.get(4)?),
            updated: told(row.get(5)?),
        })
    });
    Ok(row.optional()?)
}

/// Best first; of two that fit alike the newer one. The same note, or the same words, come once.
fn folded(mut hits: Vec<Recalled>, most: usize) -> Vec<Recalled> {
    let rounded = |it: &Recalled| (it.score * 1e4).round() as i64;
    hits.sort_by(|a, b| rounded(b).cmp(&rounded(a)).then(b.updated.cmp(&a.updated)));
    let (mut texts, mut sources) = (HashSet::new(), HashSet::new());
    hits.retain(|it| {
        let source = match &it.source {
            Source::Note(id) => id.clone(),
            Source::File { path, first, last } => format!("{path}:{first}-{last}"),
            Source::Conversation { session, seq } => format!("{session}#{seq}"),
        };
        let text = it.text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        texts.insert(text) & sources.insert(source)
    });
    hits.truncate(most);
    hits
}
