//! The score of a passage for a query, on one scale for all queries.
//!
//! The score is a sum of three parts. *Semantic*: for each query word the similarity of the nearest word of the
//! passage, weighted by rarity, and the similarity of both texts. *Lexical*: the share of the maximum BM25, with word
//! forms merged. *Context*: the speaker, a mentioned time if the query asks for one, and the scores of passages saved
//! just before and after. No part depends on other results, so scores are comparable.

use std::collections::{BTreeSet, HashMap};

use super::{query::SearchQuery, shelf::PassageIndex};
use crate::embed::{Vocabulary, vocabulary};

/// In a partition up to this size every passage is scored.
const EXACT_MAX: usize = 2048;
/// In a larger one, this many candidates by vector similarity, and as many by words.
const CANDIDATES: usize = 200;
/// Passages that the words looked for have together, at most; the rarest are taken first.
const MAX_POSTINGS: usize = 50_000;
/// Passages saved within this many microseconds are neighbours.
const NEIGHBOUR_GAP_MICROS: i64 = 600_000_000;
/// What the one before and the one after lend of their own fit, beyond what anything has.
const NEIGHBOUR_SHARE: [f32; 2] = [0.4, 0.2];
const BASELINE: f32 = 0.2;
/// What it counts that the one asked about speaks, and that a time is told where one is asked for.
const SPEAKER_BONUS: f32 = 0.05;
const TIME_BONUS: f32 = 0.03;
/// BM25's constants, and how much of the best that it could give is as good as all.
const K1: f32 = 1.2;
const B: f32 = 0.75;
const BM25_SATURATION: f32 = 1.6;

/// How parts of a score are weighed.
pub(super) struct RankWeights {
    pub(super) meaning: f32,
    pub(super) words: f32,
    /// How much wholes count beside single words.
    pub(super) sentence: f32,
}

/// Ranks the passages of a partition.
pub(super) struct PassageRanker<'a> {
    shelf: &'a PassageIndex,
    query: &'a SearchQuery,
    weights: &'a RankWeights,
    words: &'static Vocabulary,
    /// What each token of the question counts by likeness, and by itself.
    counts: Vec<(f32, f32)>,
    /// Likeness of a passage's token to each token of the question, as far as needed; and where each token's begins
    /// there, counted from 1.
    likeness: Vec<f32>,
    begins: Vec<u32>,
    usual: f32,
}

impl<'a> PassageRanker<'a> {
    pub(super) fn new(shelf: &'a PassageIndex, query: &'a SearchQuery, weights: &'a RankWeights) -> Self {
        let all = shelf.len() as f32;
        let count = |token: &super::query::QueryToken| {
            let rare = (1.0 + all / (1.0 + shelf.passages_with(token.id) as f32)).ln();
            let with = shelf.with_stem(token.stem).len() as f32;
            let idf = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
            (rare * token.weight, if token.common { 0.3 * idf } else { idf })
        };
        let counts = query.tokens.iter().map(count).collect();
        let usual = shelf.average_length();
        let begins = vec![0; usize::from(u16::MAX) + 1];
        Self { shelf, query, weights, words: vocabulary(), counts, likeness: Vec::new(), begins, usual }
    }

    /// The matching passages with their scores. `found` must be scored; `allowed` restricts the results.
    pub(super) fn scores(&mut self, found: &[usize], allowed: Option<&BTreeSet<usize>>) -> Vec<(usize, f32)> {
        let may = |it: &usize| allowed.is_none_or(|set| set.contains(it));
        let mut chosen: BTreeSet<usize> = if let (Some(set), true) = (allowed, self.shelf.len() > EXACT_MAX) {
            if set.len() <= EXACT_MAX { set.clone() } else { self.candidates(may) }
        } else if self.shelf.len() <= EXACT_MAX {
            (0..self.shelf.len()).filter(may).collect()
        } else {
            self.candidates(may)
        };
        chosen.extend(found.iter().copied().filter(may));
        let lone: HashMap<usize, f32> = {
            let ring = self.with_neighbours(&self.with_neighbours(&chosen));
            ring.into_iter().map(|it| (it, self.own_score(it))).collect()
        };
        let company = if allowed.is_some() { chosen } else { self.with_neighbours(&chosen) };
        company.into_iter().map(|it| (it, self.neighbour_score(it, &lone))).collect()
    }

    /// The passages of a large shelf that are worth a close look.
    fn candidates(&self, may: impl Fn(&usize) -> bool) -> BTreeSet<usize> {
        self.nearest_by_vector(&may).into_iter().chain(self.nearest_by_words(&may)).collect()
    }

    /// The nearest by the vectors of wholes.
    fn nearest_by_vector(&self, may: impl Fn(&usize) -> bool) -> Vec<usize> {
        let Some(probe) = &self.query.vector else { return Vec::new() };
        let all = (0..self.shelf.len()).filter(may);
        top_k(all.map(|it| (self.shelf.cosine(it, probe), it)).collect())
    }

    /// Those that have the question's words: the more and the rarer they are, and the shorter the passage, the better.
    fn nearest_by_words(&self, may: impl Fn(&usize) -> bool) -> Vec<usize> {
        let mut stems: Vec<(&[u32], f32)> = Vec::new();
        let says = self.query.tokens.iter().any(|it| !it.common);
        for (token, (_, counts)) in self.query.tokens.iter().zip(&self.counts).filter(|it| !says || !it.0.common) {
            let places = self.shelf.with_stem(token.stem);
            if !stems.iter().any(|(known, _)| std::ptr::eq(*known, places)) {
                stems.push((places, *counts));
            }
        }
        stems.sort_by_key(|(places, _)| places.len());
        let (mut said, mut seen, mut budget) = (vec![0.0_f32; self.shelf.len()], Vec::new(), MAX_POSTINGS);
        for (places, counts) in stems {
            if places.len() > budget && !seen.is_empty() {
                break;
            }
            budget = budget.saturating_sub(places.len());
            for it in places.iter().map(|it| *it as usize).filter(&may) {
                if said[it] == 0.0 {
                    seen.push(it);
                }
                said[it] += counts;
            }
        }
        let fit = |it: usize| (said[it] / (1.0 + self.length_penalty(it)), it);
        top_k(seen.into_iter().map(fit).collect())
    }

    /// How much a passage's length takes from what it says.
    fn length_penalty(&self, it: usize) -> f32 {
        K1 * (1.0 - B + B * self.shelf.tokens(it).len() as f32 / self.usual)
    }

    fn with_neighbours(&self, chosen: &BTreeSet<usize>) -> BTreeSet<usize> {
        let near = chosen.iter().flat_map(|it| self.shelf.neighbours(*it, NEIGHBOUR_GAP_MICROS)).flatten();
        chosen.iter().copied().chain(near).collect()
    }

    fn neighbour_score(&self, it: usize, lone: &HashMap<usize, f32>) -> f32 {
        let fit = |it: usize| lone.get(&it).copied().unwrap_or(0.0);
        let near = self.shelf.neighbours(it, NEIGHBOUR_GAP_MICROS).into_iter().zip(NEIGHBOUR_SHARE);
        let lent: f32 = near.filter_map(|(other, share)| Some(share * (fit(other?) - BASELINE).max(0.0))).sum();
        scale_score(fit(it) + lent)
    }

    /// How like a token is to each token of the question.
    fn similarity(&mut self, token: u16) -> &[f32] {
        let begin = &mut self.begins[usize::from(token)];
        if *begin == 0 {
            let (direction, _) = self.words.direction(token);
            *begin = self.likeness.len() as u32 + 1;
            self.likeness.extend(self.query.tokens.iter().map(|it| it.direction.cosine(&direction)));
        }
        &self.likeness[*begin as usize - 1..][..self.query.tokens.len()]
    }

    /// How well a passage fits by itself.
    fn own_score(&mut self, it: usize) -> f32 {
        let (shelf, query, words) = (self.shelf, self.query, self.words);
        let mut nearest = vec![0.0_f32; query.tokens.len()];
        let mut times = vec![0_u32; query.tokens.len()];
        for token in shelf.tokens(it) {
            nearest.iter_mut().zip(self.similarity(*token)).for_each(|(most, it)| *most = most.max(*it));
            let stem = words.stem(*token);
            times.iter_mut().zip(&query.tokens).for_each(|(times, it)| *times += u32::from(it.stem == stem));
        }
        let long = self.length_penalty(it);
        let (mut meaning, mut meant, mut said, mut sayable) = (0.0, 0.0, 0.0, 0.0);
        for ((counts, nearest), times) in self.counts.iter().zip(nearest).zip(times) {
            meaning += counts.0 * nearest;
            meant += counts.0;
            said += counts.1 * times as f32 * (K1 + 1.0) / (times as f32 + long);
            sayable += counts.1;
        }
        let share = |part: f32, whole: f32| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
        let (meaning, words) = (share(meaning, meant), share(said, sayable * BM25_SATURATION));
        let meaning = match &self.query.vector {
            Some(probe) => {
                let whole = self.shelf.cosine(it, probe).clamp(0.0, 1.0);
                meaning * (1.0 - self.weights.sentence) + whole * self.weights.sentence
            }
            None => meaning,
        };
        let company = if self.speaker_matches(it) { SPEAKER_BONUS } else { 0.0 }
            + if self.query.asks_for_time && self.shelf.mentions_time[it] { TIME_BONUS } else { 0.0 };
        self.weights.meaning * meaning + self.weights.words * words + company
    }

    /// Whether the one who speaks (`[8 May] Ann: …`, `Ann: …`) is named in the question.
    fn speaker_matches(&self, it: usize) -> bool {
        speaker(self.shelf.tokens(it))
            .is_some_and(|name| name.iter().all(|token| self.query.tokens.iter().any(|it| it.id == *token)))
    }
}

/// The best of some, in any order.
fn top_k(mut all: Vec<(f32, usize)>) -> Vec<usize> {
    if all.len() > CANDIDATES {
        all.select_nth_unstable_by(CANDIDATES, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.truncate(CANDIDATES);
    }
    all.into_iter().map(|(_, it)| it).collect()
}

/// `[`, `]` and `:` in the vocabulary.
const BRACKET_TOKENS: [u16; 3] = [1031, 1033, 1024];

/// What comes after a date in brackets.
pub(super) fn body(tokens: &[u16]) -> &[u16] {
    match tokens.iter().take(40).position(|it| *it == BRACKET_TOKENS[1]) {
        Some(end) if tokens.first() == Some(&BRACKET_TOKENS[0]) => &tokens[end + 1..],
        _ => tokens,
    }
}

/// The name that a turn of a session opens with.
fn speaker(tokens: &[u16]) -> Option<&[u16]> {
    let rest = body(tokens);
    let end = rest.iter().take(6).position(|it| *it == BRACKET_TOKENS[2])?;
    (end > 0).then(|| &rest[..end])
}

/// Stretches the scale. Unrelated text scores 0.05 to 0.15 and a paraphrased answer 0.2 or more, so that the
/// threshold of 0.35 separates them.
const SCORE_EXPONENT: f32 = 0.65;

/// A score as it is told: from 0 to 1.
fn scale_score(fit: f32) -> f32 {
    if fit.is_finite() { fit.clamp(0.0, 1.0).powf(SCORE_EXPONENT) } else { 0.0 }
}
