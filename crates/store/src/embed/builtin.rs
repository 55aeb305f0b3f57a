//! The built-in embedding model: one vector per token, four bits per number. It is read in place, only when needed.

use std::sync::OnceLock;

use helve_contract::{Result, async_trait};

use super::{Embedder, SUM_WEIGHT, WordPiece, normalize};

/// Rows, numbers a row, first row kept (all before it are zero); a scale for each row kept; their numbers, two a byte.
static MODEL: &[u8] = include_bytes!("../../data/emb256.q4");
static VOCABULARY: &str = include_str!("../../data/vocab.txt");

/// The built-in model: works offline, from the first start.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltinEmbedder;

/// The words that the model inside the program knows, with their vectors.
pub(crate) struct Vocabulary {
    tokenizer: WordPiece,
    /// The smallest token with the same stem: `paints`, `painted` and `painting` count as one word.
    stems: Vec<u16>,
    rows: usize,
    dims: usize,
    first_row: usize,
}

/// Where a token's vector points.
pub(crate) struct TokenVector {
    /// Its numbers before they are scaled, from −8 to 7: those in the low halves of the bytes, then the others.
    numbers: Vec<i16>,
    length: f32,
}

impl TokenVector {
    /// How like another one it is, from −1 to 1; 0 where one of them points nowhere.
    pub(crate) fn cosine(&self, other: &Self) -> f32 {
        let lengths = self.length * other.length;
        if lengths > 0.0 { f32::from(dot(&self.numbers, &other.numbers)) / lengths } else { 0.0 }
    }
}

/// The inner product. It is at most 64 for each of 256 numbers, so that sixteen bits are enough and eight are done at once.
fn dot(a: &[i16], b: &[i16]) -> i16 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The words, made ready when they are first needed.
pub(crate) fn vocabulary() -> &'static Vocabulary {
    static WORDS: OnceLock<Vocabulary> = OnceLock::new();
    WORDS.get_or_init(|| {
        let number =
            |at: usize| MODEL.get(at..at + 4).map_or(0, |it| u32::from_le_bytes([it[0], it[1], it[2], it[3]])) as usize;
        let tokens = || VOCABULARY.lines().zip(0_u32..);
        let (rows, dims, first) = (number(0), number(4), number(8));
        Vocabulary { tokenizer: WordPiece::new(tokens()), stems: stems(tokens(), first), rows, dims, first_row: first }
    })
}

impl Vocabulary {
    /// The tokens of a text that mean something, in order.
    pub(crate) fn tokens(&self, text: &str) -> Vec<u16> {
        let tokens = self.tokenizer.tokens(text).into_iter();
        tokens.filter(|id| (self.first_row..self.rows).contains(&(*id as usize))).map(|id| id as u16).collect()
    }

    /// What stands for a token and its other forms.
    pub(crate) fn stem(&self, token: u16) -> u16 {
        self.stems.get(usize::from(token)).copied().unwrap_or(token)
    }

    /// What one of a token's numbers is worth, and the numbers, two a byte; nothing for a token without a meaning.
    fn row(&self, token: u16) -> Option<(f32, &'static [u8])> {
        let row = usize::from(token).checked_sub(self.first_row)?;
        let (scales, numbers) = MODEL.get(12..)?.split_at_checked((self.rows - self.first_row) * 4)?;
        let scale = scales.get(row * 4..)?.first_chunk()?;
        Some((f32::from_le_bytes(*scale), numbers.get(row * self.dims / 2..(row + 1) * self.dims / 2)?))
    }

    /// Adds a token's vector to a sum.
    fn add(&self, token: u16, sum: &mut [f32]) {
        let Some((scale, packed)) = self.row(token) else { return };
        for (pair, byte) in sum.chunks_exact_mut(2).zip(packed) {
            pair[0] += scale * (f32::from(byte & 15) - 8.0);
            pair[1] += scale * (f32::from(byte >> 4) - 8.0);
        }
    }

    /// A token's direction, and how much it says: rare words say more.
    pub(crate) fn direction(&self, token: u16) -> (TokenVector, f32) {
        let (scale, packed) = self.row(token).unwrap_or_default();
        let mut numbers = Vec::with_capacity(self.dims);
        numbers.extend(packed.iter().map(|byte| i16::from(byte & 15) - 8));
        numbers.extend(packed.iter().map(|byte| i16::from(byte >> 4) - 8));
        let length = f32::from(dot(&numbers, &numbers)).sqrt();
        (TokenVector { numbers, length }, scale * length)
    }

    /// The vector of a text.
    pub(crate) fn vector(&self, tokens: &[u16]) -> Vec<f32> {
        let mut sum = vec![0.0; self.dims];
        for token in tokens {
            self.add(*token, &mut sum);
        }
        normalize(&mut sum);
        sum
    }
}

/// For each token the smallest one with the same stem.
fn stems(tokens: impl Iterator<Item = (&'static str, u32)>, first: usize) -> Vec<u16> {
    let mut smallest = std::collections::HashMap::new();
    tokens
        .map(|(token, id)| {
            let id = id as u16;
            if usize::from(id) < first || !token.bytes().all(|c| c.is_ascii_alphabetic()) {
                return id;
            }
            *smallest.entry(stem(token)).or_insert(id)
        })
        .collect()
}

/// A word without its commonest endings. It need not be a word; it is only compared.
fn stem(word: &str) -> String {
    const ENDINGS: [(&str, &str); 8] =
        [("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("ly", ""), ("e", "")];
    let mut stem = word.to_owned();
    let ending = ENDINGS.iter().find(|(end, _)| word.ends_with(end) && word.len() >= end.len() + 3);
    if let (Some((end, instead)), false) = (ending, word.ends_with("ss")) {
        stem.truncate(word.len() - end.len());
        stem.push_str(instead);
        let bytes = stem.as_bytes();
        if let [.., a, b] = bytes
            && matches!(*end, "ing" | "ed")
            && bytes.len() > 3
            && a == b
            && !matches!(b, b'l' | b's')
        {
            stem.pop();
        }
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    if stem.len() > 3 && stem.ends_with('y') {
        stem.pop();
        stem.push('i');
    }
    stem
}

#[async_trait]
impl Embedder for BuiltinEmbedder {
    fn id(&self) -> &'static str {
        "builtin-256-q4"
    }

    fn dims(&self) -> usize {
        vocabulary().dims
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let words = vocabulary();
        Ok(texts.iter().map(|text| words.vector(&words.tokens(text))).collect())
    }

    fn sentence_weight(&self) -> f32 {
        SUM_WEIGHT
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn set() -> Value {
        serde_json::from_str(include_str!("../../tests/data/evalset.json")).unwrap()
    }

    #[test]
    fn reads_text_as_the_model_was_taught() {
        let pieces = &vocabulary().tokenizer;
        for pair in set()["tok"].as_array().unwrap() {
            let want: Vec<u32> = serde_json::from_value(pair[1].clone()).unwrap();
            assert_eq!(pieces.tokens(pair[0].as_str().unwrap()), want, "{}", pair[0]);
        }
    }

    #[test]
    fn any_text_has_tokens_and_an_end() {
        for text in ["", "\0", "\u{fffd}\u{200b}", "😀😀", "##", "[UNK]", "e\u{301}", &"x".repeat(1 << 20)] {
            assert!(vocabulary().tokens(text).len() < 16, "{text:.20}");
        }
        assert_eq!(vocabulary().tokens(&"word ".repeat(1 << 18)).len(), 4096);
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        let stem = |word: &str| vocabulary().stem(vocabulary().tokens(word)[0]);
        for forms in [["paint", "painted", "paints"], ["city", "cities", "city"], ["run", "running", "runs"]] {
            assert_eq!(stem(forms[0]), stem(forms[1]));
            assert_eq!(stem(forms[0]), stem(forms[2]));
        }
        assert_ne!(stem("glass"), stem("glad"));
    }

    #[tokio::test]
    async fn what_means_the_same_lies_near() {
        let made =
            BuiltinEmbedder.embed(&["the cat sleeps", "a dog is asleep", "quarterly tax report", ""]).await.unwrap();
        let near = |a: usize, b: usize| made[a].iter().zip(&made[b]).map(|(x, y)| x * y).sum::<f32>();
        assert!(near(0, 1) > near(0, 2) + 0.1, "{} {}", near(0, 1), near(0, 2));
        assert_eq!(made[3], vec![0.0; 256]);
    }
}
