//! Counts tokens as `o200k_base` does, from a table of 1.6 MB: each token's length and bytes, in order of rank.

use std::{collections::HashMap, sync::LazyLock};

use regex::Regex;

/// The vocabulary that OpenAI publishes for `o200k_base`, without the special tokens.
static TABLE: &[u8] = include_bytes!("../data/o200k_base.bin");

static RANKS: LazyLock<HashMap<&'static [u8], u32>> = LazyLock::new(|| {
    let mut ranks = HashMap::with_capacity(200_000);
    let mut rest = TABLE;
    while let Some((len, tail)) = rest.split_first() {
        let (token, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        ranks.insert(token, ranks.len() as u32);
        rest = tail;
    }
    ranks
});

/// The chunks that are encoded separately. The vocabulary's pattern has one more look-ahead (`\s+(?!\S)`), which
/// [`split_pieces`] implements.
static PIECE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"|\s*[\r\n]+",
        r"|\s+",
    ))
    .ok()
});

/// How many tokens a text is.
pub(crate) fn count_tokens(text: &str) -> usize {
    split_pieces(text).map(|piece| count_merged(piece.as_bytes())).sum()
}

fn split_pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = PIECE.as_ref().and_then(|it| it.find(rest)).map_or(rest.len(), |found| found.end());
        let (piece, _) = rest.split_at(end);
        let blank = piece.chars().all(char::is_whitespace) && !piece.ends_with(['\r', '\n']);
        // The last space before a word belongs to the word.
        let cut = match piece.char_indices().next_back() {
            Some((at, _)) if blank && at > 0 && end < rest.len() => at,
            _ => end,
        };
        let (piece, tail) = rest.split_at(cut);
        rest = tail;
        Some(piece)
    })
}

/// The number of tokens of a chunk after merging neighbours, lowest rank first.
fn count_merged(piece: &[u8]) -> usize {
    if RANKS.contains_key(piece) {
        return 1;
    }
    let mut borders: Vec<usize> = (0..=piece.len()).collect();
    let rank = |borders: &[usize], at: usize| {
        borders.get(at + 2).and_then(|end| RANKS.get(&piece[borders[at]..*end])).copied().unwrap_or(u32::MAX)
    };
    let mut ranks: Vec<u32> = (0..piece.len()).map(|at| rank(&borders, at)).collect();
    while let Some((at, least)) = ranks.iter().copied().enumerate().min_by_key(|(_, rank)| *rank) {
        if least == u32::MAX {
            break;
        }
        borders.remove(at + 1);
        ranks.remove(at);
        ranks[at] = rank(&borders, at);
        if at > 0 {
            ranks[at - 1] = rank(&borders, at - 1);
        }
    }
    borders.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert_eq!(RANKS.len(), 199_998);
        assert!((0..=255_u8).all(|byte| RANKS.contains_key([byte].as_slice())));
    }

    /// The figures are those of the published tokenizer.
    #[test]
    fn counts_what_the_published_tokenizer_counts() {
        let seen = [
            "",
            "hello world",
            "Finds files by name pattern, newest first.",
            "   three blanks  before\n\n\n  and lines \t\r\n",
            "{\"type\":\"function\",\"name\":\"Read\"}",
            "I'LL don't CamelCaseName 1234567 größer 日本語のテキスト 👩‍👩‍👧 https://a.b/c//",
        ]
        .map(count_tokens);
        assert_eq!(seen, [0, 2, 10, 11, 9, 32]);
    }
}
