//! A search query: its tokens and features.

use std::{collections::BTreeSet, sync::OnceLock};

use super::{index, shelf::QueryVector};
use crate::embed::{TokenVector, vocabulary};

/// Bytes of a question that are read; what comes later adds nothing.
const MAX_QUERY_BYTES: usize = 4096;
/// Words that are looked for at most.
const MAX_TERMS: usize = 32;

/// Words that are in every text and say little.
const STOP_WORDS: &str = "a an the and or but if of at by for with about to from in on is are was were be been being am do \
    does did doing have has had having i me my we our you your he him his she her it its they them their what which \
    who whom this that these those when where why how not no so than too very can will just should now as into out up \
    down then there here all any both each few more most other some such only own same s t d ll m o re ve would could \
    might may must shall didn don doesn hasn haven isn wasn weren";

/// Words that tell when something was.
const TIME_WORDS: &str = "yesterday today tonight tomorrow last next ago week weekend month year day monday tuesday wednesday \
    thursday friday saturday sunday since recently january february march april june july august september october \
    november december just";

/// A question.
pub(super) struct SearchQuery {
    /// Words that the vocabulary has only in pieces: names, numbers, other languages.
    rare_words: Vec<String>,
    /// Each token once.
    pub(super) tokens: Vec<QueryToken>,
    /// The whole question's vector.
    pub(super) vector: Option<QueryVector>,
    /// It asks for a time.
    pub(super) asks_for_time: bool,
}

/// A token of a question.
pub(super) struct QueryToken {
    pub(super) id: u16,
    pub(super) stem: u16,
    /// Its direction, and how much it says by itself.
    pub(super) direction: TokenVector,
    pub(super) weight: f32,
    /// It is in every text.
    pub(super) common: bool,
}

impl SearchQuery {
    /// Reads a question. Without a vector it is answered by its words alone.
    pub(super) fn new(text: &str, vector: Option<&[f32]>) -> Self {
        let text = truncate(text);
        let lower = text.to_lowercase();
        let words = vocabulary();
        let mut odd: Vec<String> = Vec::new();
        for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            if odd.len() < MAX_TERMS && !odd.iter().any(|it| it == word) && words.tokens(word).len() != 1 {
                odd.push(word.to_owned());
            }
        }
        let ids: BTreeSet<u16> = words.tokens(text).into_iter().take(MAX_TERMS * 2).collect();
        let token = |id| {
            let (direction, says) = words.direction(id);
            QueryToken {
                id,
                stem: words.stem(id),
                direction,
                weight: says,
                common: tokens_of(STOP_WORDS, &STOP_WORD_TOKENS).contains(&id),
            }
        };
        Self {
            rare_words: odd,
            tokens: ids.into_iter().map(token).collect(),
            vector: vector.filter(|it| it.iter().any(|x| *x != 0.0)).map(|it| QueryVector::new(index::quantize_i8(it))),
            asks_for_time: asks_when(&lower),
        }
    }

    /// The full-text query: each rare word quoted, combined by OR, in one partition. `None`: there is none.
    pub(super) fn full_text(&self, number: i64) -> Option<String> {
        let terms: Vec<String> = self.rare_words.iter().map(|word| format!("\"{word}\"")).collect();
        (!terms.is_empty()).then(|| format!("shelf : \"{number}\" AND text : ({})", terms.join(" OR ")))
    }
}

fn truncate(text: &str) -> &str {
    let mut end = text.len().min(MAX_QUERY_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn asks_when(lower: &str) -> bool {
    let first = lower.trim_start();
    first.starts_with("when ")
        || ["how long", "what date", "what day", "what year", "what month", "which day", "which year", "which month"]
            .iter()
            .any(|it| first.starts_with(it))
}

static STOP_WORD_TOKENS: OnceLock<BTreeSet<u16>> = OnceLock::new();

fn tokens_of(list: &str, cell: &'static OnceLock<BTreeSet<u16>>) -> &'static BTreeSet<u16> {
    cell.get_or_init(|| vocabulary().tokens(list).into_iter().collect())
}

/// Whether a token tells when something was.
pub(super) fn is_time(token: u16) -> bool {
    static SET: OnceLock<Vec<bool>> = OnceLock::new();
    let set = SET.get_or_init(|| {
        let mut set = vec![false; usize::from(u16::MAX) + 1];
        vocabulary().tokens(TIME_WORDS).into_iter().for_each(|it| set[usize::from(it)] = true);
        set
    });
    set[usize::from(token)]
}
