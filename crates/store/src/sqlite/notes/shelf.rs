//! A partition in memory: tokens and vectors, so that a search reads only what it shows.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use rusqlite::{OptionalExtension, Transaction, params};

use super::{super::Tx, query, rank};
use crate::embed::{Vocabulary, vocabulary};

/// The approximate maximum of cached passages; the least recently used partition is evicted.
const MAX_CACHED_PASSAGES: usize = 400_000;

/// What is searched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionKind {
    /// The notes of a user.
    Notes,
    /// The memory files of a place.
    Files,
    /// The sessions of a user.
    Conversations,
}

impl PartitionKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Notes => "notes",
            Self::Files => "files",
            Self::Conversations => "talk",
        }
    }
}

/// Which shelf of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) kind: PartitionKind,
    user: String,
    /// The place of files; empty for the others.
    place: String,
}

impl Key {
    pub(super) fn notes(user: &str) -> Self {
        Self { kind: PartitionKind::Notes, user: user.to_owned(), place: String::new() }
    }

    pub(super) fn talk(user: &str) -> Self {
        Self { kind: PartitionKind::Conversations, user: user.to_owned(), place: String::new() }
    }

    pub(super) fn files(user: &str, place: &str) -> Self {
        Self { kind: PartitionKind::Files, user: user.to_owned(), place: place.to_owned() }
    }
}

/// Which shelf, in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionState {
    pub(super) id: i64,
    added: i64,
    changed: i64,
}

/// The number of a shelf, which is made if need be.
pub(super) fn id(t: &Tx<'_>, key: &Key) -> anyhow::Result<i64> {
    let values = params![t.tenant, key.user, key.kind.name(), key.place];
    t.prepare_cached("INSERT OR IGNORE INTO shelves (tenant, user, kind, place) VALUES (?1, ?2, ?3, ?4)")?
        .execute(values)?;
    let sql = "SELECT id FROM shelves WHERE tenant = ?1 AND user = ?2 AND kind = ?3 AND place = ?4";
    Ok(t.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
}

/// The state of a shelf, if there is one.
pub(super) fn state(t: &Tx<'_>, key: &Key) -> anyhow::Result<Option<PartitionState>> {
    let sql = "SELECT id, added, changed FROM shelves WHERE tenant = ?1 AND user = ?2 AND kind = ?3 AND place = ?4";
    Ok(t.prepare_cached(sql)?
        .query_row(params![t.tenant, key.user, key.kind.name(), key.place], |row| {
            Ok(PartitionState { id: row.get(0)?, added: row.get(1)?, changed: row.get(2)? })
        })
        .optional()?)
}

/// The cached partitions.
#[derive(Default)]
pub(super) struct IndexCache {
    /// The one used last stands at the end.
    shelves: Vec<Arc<PassageIndex>>,
}

impl IndexCache {
    /// The current partition. Reads additions; after other changes rereads all of it.
    pub(super) fn get(
        &mut self,
        t: &Transaction<'_>,
        now: PartitionState,
        dims: usize,
    ) -> anyhow::Result<Arc<PassageIndex>> {
        let known = self.shelves.iter().position(|it| it.state.id == now.id).map(|at| self.shelves.remove(at));
        let known = known.filter(|it| it.state.changed == now.changed && it.dims == dims);
        let shelf = match known {
            Some(shelf) if shelf.state == now => shelf,
            Some(shelf) => {
                let mut shelf = Arc::unwrap_or_clone(shelf);
                shelf.load_new(t, now)?;
                Arc::new(shelf)
            }
            None => {
                let mut shelf = PassageIndex::new(now, dims);
                shelf.load_new(t, now)?;
                Arc::new(shelf)
            }
        };
        self.shelves.push(shelf.clone());
        while self.shelves.len() > 1 && self.shelves.iter().map(|it| it.ids.len()).sum::<usize>() > MAX_CACHED_PASSAGES
        {
            self.shelves.remove(0);
        }
        Ok(shelf)
    }
}

/// A partition in memory. Passages are numbered in the order read.
#[derive(Clone)]
pub(super) struct PassageIndex {
    state: PartitionState,
    dims: usize,
    /// The rows in the file.
    pub(super) ids: Vec<i64>,
    /// Where each comes from, in short.
    sources: Vec<u64>,
    at: Vec<i64>,
    /// Where each one's tokens end.
    ends: Vec<u32>,
    tokens: Vec<u16>,
    scales: Vec<f32>,
    /// The numbers of each one's vector, two in a word and each 128 more than it is, as [`dot`] takes them.
    numbers: Vec<u16>,
    /// It has words such as `yesterday`.
    pub(super) mentions_time: Vec<bool>,
    /// In how many passages each token is.
    document_frequency: Vec<u32>,
    /// The passages that each stem is in.
    postings: Vec<Vec<u32>>,
    /// In order of time, and where each one stands in that order.
    order: Vec<u32>,
    place: Vec<u32>,
}

impl PassageIndex {
    fn new(state: PartitionState, dims: usize) -> Self {
        let all = usize::from(u16::MAX) + 1;
        Self {
            state,
            dims,
            ids: Vec::new(),
            sources: Vec::new(),
            at: Vec::new(),
            ends: Vec::new(),
            tokens: Vec::new(),
            scales: Vec::new(),
            numbers: Vec::new(),
            mentions_time: Vec::new(),
            document_frequency: vec![0; all],
            postings: vec![Vec::new(); all],
            order: Vec::new(),
            place: Vec::new(),
        }
    }

    /// Reads what came after what is here.
    fn load_new(&mut self, t: &Transaction<'_>, now: PartitionState) -> anyhow::Result<()> {
        let from = self.ids.last().copied().unwrap_or(0);
        let mut rows = t.prepare_cached(
            "SELECT id, source, at, tokens, vector FROM passages WHERE shelf = ?1 AND id > ?2 ORDER BY id",
        )?;
        let mut rows = rows.query(params![now.id, from])?;
        let words = vocabulary();
        while let Some(row) = rows.next()? {
            let source = row.get_ref(1)?.as_str()?;
            let mut hash = DefaultHasher::new();
            source.hash(&mut hash);
            let tokens = row.get_ref(3)?.as_blob()?;
            self.add(words, row.get(0)?, hash.finish(), row.get(2)?, tokens, row.get_ref(4)?.as_blob()?);
        }
        self.state = now;
        self.order = (0..self.ids.len() as u32).collect();
        self.order.sort_by_key(|it| (self.at[*it as usize], self.ids[*it as usize]));
        self.place = vec![0; self.ids.len()];
        for (place, it) in self.order.iter().enumerate() {
            self.place[*it as usize] = place as u32;
        }
        Ok(())
    }

    fn add(&mut self, words: &Vocabulary, id: i64, source: u64, at: i64, tokens: &[u8], vector: &[u8]) {
        let from = self.tokens.len();
        self.tokens.extend(tokens.chunks_exact(2).map(|it| u16::from_le_bytes([it[0], it[1]])));
        let own = &self.tokens[from..];
        self.mentions_time.push(rank::body(own).iter().any(|token| query::is_time(*token)));
        let mut once = own.to_vec();
        once.sort_unstable();
        once.dedup();
        for token in &mut once {
            self.document_frequency[usize::from(*token)] += 1;
            *token = words.stem(*token);
        }
        once.sort_unstable();
        once.dedup();
        for stem in once {
            self.postings[usize::from(stem)].push(self.ids.len() as u32);
        }
        self.ids.push(id);
        self.sources.push(source);
        self.at.push(at);
        self.ends.push(self.tokens.len() as u32);
        // A vector of another size belongs to another model and is ignored.
        match vector.split_first_chunk::<4>() {
            Some((scale, numbers)) if numbers.len() == self.dims => {
                self.scales.push(f32::from_le_bytes(*scale));
                let raised = |x: Option<&u8>| x.map_or(BIAS as u8, |x| x.wrapping_add(BIAS as u8));
                let pair = |it: &[u8]| u16::from_le_bytes([raised(it.first()), raised(it.get(1))]);
                self.numbers.extend(numbers.chunks(2).map(pair));
            }
            _ => {
                self.scales.push(0.0);
                self.numbers.resize(self.numbers.len() + self.dims.div_ceil(2), 0);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Tokens of a passage on average.
    pub(super) fn average_length(&self) -> f32 {
        (self.tokens.len() as f32 / self.len().max(1) as f32).max(1.0)
    }

    pub(super) fn tokens(&self, it: usize) -> &[u16] {
        let from = if it == 0 { 0 } else { self.ends[it - 1] as usize };
        &self.tokens[from..self.ends[it] as usize]
    }

    /// How many passages have this token.
    pub(super) fn passages_with(&self, token: u16) -> u32 {
        self.document_frequency[usize::from(token)]
    }

    /// The passages that have a word of this stem.
    pub(super) fn with_stem(&self, stem: u16) -> &[u32] {
        &self.postings[usize::from(stem)]
    }

    /// How like a passage's vector is to this one, from −1 to 1.
    pub(super) fn cosine(&self, it: usize, probe: &QueryVector) -> f32 {
        let words = self.dims.div_ceil(2);
        let own = &self.numbers[it * words..(it + 1) * words];
        (dot(own, probe) - probe.raised) as f32 * probe.scale * self.scales[it]
    }

    /// The passages right before and after this one, where they were saved within `gap` of it and stand alone.
    pub(super) fn neighbours(&self, it: usize, gap: i64) -> [Option<usize>; 2] {
        let place = self.place[it] as usize;
        let near = |place: Option<usize>| {
            let other = *self.order.get(place?)? as usize;
            let near = (self.at[other] - self.at[it]).abs() <= gap && self.sources[other] != self.sources[it];
            near.then_some(other)
        };
        [near(place.checked_sub(1)), near(Some(place + 1))]
    }
}

/// What each number of a vector is raised by, so that none is below zero.
const BIAS: i16 = 128;

/// A vector to compare those of a shelf with.
pub(super) struct QueryVector {
    /// What one of its numbers is worth.
    scale: f32,
    /// The first, third, fifth … of its numbers, and the others.
    even: Vec<i16>,
    odd: Vec<i16>,
    /// By how much an inner product is too large because the other side is raised.
    raised: i32,
}

impl QueryVector {
    pub(super) fn new((scale, numbers): (f32, Vec<i8>)) -> Self {
        let part = |at: usize| numbers.chunks(2).map(|it| it.get(at).copied().map_or(0, i16::from)).collect();
        let raised = i32::from(BIAS) * numbers.iter().map(|x| i32::from(*x)).sum::<i32>();
        Self { scale, even: part(0), odd: part(1), raised }
    }
}

/// The inner product, with one side raised: a word is taken apart by a mask and a shift in eight lanes at once, where
/// bytes that have a sign would have to be widened first.
fn dot(words: &[u16], probe: &QueryVector) -> i32 {
    const LANES: usize = 8;
    let one = |word: u16, even: i16, odd: i16| {
        i32::from((word & 0xff) as i16) * i32::from(even) + i32::from((word >> 8) as i16) * i32::from(odd)
    };
    let (all, even, odd) = (words.chunks_exact(LANES), probe.even.chunks_exact(LANES), probe.odd.chunks_exact(LANES));
    let rest = all.remainder().iter().zip(even.remainder()).zip(odd.remainder());
    let rest: i32 = rest.map(|((word, even), odd)| one(*word, *even, *odd)).sum();
    let mut sums = [0_i32; LANES];
    for ((words, even), odd) in all.zip(even).zip(odd) {
        for i in 0..LANES {
            sums[i] += one(words[i], even[i], odd[i]);
        }
    }
    sums.iter().sum::<i32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_product_of_any_length_is_that_of_the_numbers() {
        for dims in [1, 2, 15, 16, 17, 63, 256, 257] {
            let a: Vec<i8> = (0..dims).map(|at| (at * 37 % 255 - 127) as i8).collect();
            let b: Vec<i8> = (0..dims).map(|at| (at * 91 % 255 - 127) as i8).collect();
            let plain: i32 = a.iter().zip(&b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            let mut shelf = PassageIndex::new(PartitionState { id: 1, added: 0, changed: 0 }, dims as usize);
            let vector: Vec<u8> = 1.0_f32.to_le_bytes().into_iter().chain(a.iter().map(|x| *x as u8)).collect();
            shelf.add(vocabulary(), 7, 0, 0, &[], &vector);
            let likeness = shelf.cosine(0, &QueryVector::new((1.0, b)));
            assert!((likeness - plain as f32).abs() < 0.5, "{dims}: {likeness} and not {plain}");
        }
    }
}
