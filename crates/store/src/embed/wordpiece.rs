//! WordPiece: text to the tokens of a vocabulary, as BERT's uncased models read it.

use std::collections::HashMap;

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// A longer word is unknown.
const MAX_WORD_CHARS: usize = 100;
/// Tokens of one text at most: what comes later says little more about what it is about.
const MAX_TOKENS: usize = 4096;

/// A vocabulary.
pub struct WordPiece {
    /// Tokens that begin a word.
    word_starts: HashMap<Box<str>, u32>,
    /// Tokens that go on with one, without their `##`.
    continuations: HashMap<Box<str>, u32>,
    unknown: Option<u32>,
    longest: usize,
}

impl WordPiece {
    /// A vocabulary of these tokens with their numbers.
    pub fn new<'a>(tokens: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let (mut first, mut later) = (HashMap::new(), HashMap::new());
        let (mut unknown, mut longest) = (None, 1);
        for (token, id) in tokens {
            if token == "[UNK]" {
                unknown = Some(id);
            }
            longest = longest.max(token.len());
            match token.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => _ = later.insert(rest.into(), id),
                _ => _ = first.insert(token.into(), id),
            }
        }
        Self { word_starts: first, continuations: later, unknown, longest }
    }

    /// The tokens of a text; the first few thousand.
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        for_each_word(text, |word| {
            self.split(word, &mut tokens);
            tokens.len() < MAX_TOKENS
        });
        tokens.truncate(MAX_TOKENS);
        tokens
    }

    /// Greedy: the longest token that the rest of the word begins with, again and again.
    fn split(&self, word: &str, tokens: &mut Vec<u32>) {
        let before = tokens.len();
        let mut rest = word;
        let fits = word.len() <= MAX_WORD_CHARS * 4 && word.chars().count() <= MAX_WORD_CHARS;
        while fits && !rest.is_empty() {
            let known = if rest.len() == word.len() { &self.word_starts } else { &self.continuations };
            let mut end = rest.len().min(self.longest);
            let found = loop {
                while !rest.is_char_boundary(end) {
                    end -= 1;
                }
                if end == 0 {
                    break None;
                }
                if let Some(id) = known.get(&rest[..end]) {
                    break Some(*id);
                }
                end -= 1;
            };
            let Some(id) = found else { break };
            tokens.push(id);
            rest = &rest[end..];
        }
        if !fits || !rest.is_empty() {
            tokens.truncate(before);
            tokens.extend(self.unknown);
        }
    }
}

/// Lower case, without accents, split at white space; punctuation and CJK characters stand alone. Goes on while told to.
fn for_each_word(text: &str, mut each: impl FnMut(&str) -> bool) {
    let mut word = String::new();
    let mut end = |word: &mut String| {
        let on = word.is_empty() || each(word);
        word.clear();
        on
    };
    for c in text.chars().flat_map(char::to_lowercase).nfd() {
        let on = if c.is_whitespace() {
            end(&mut word)
        } else if c == '\0' || c == '\u{fffd}' || c.is_control() || is_combining_mark(c) || is_format(c) {
            true
        } else if is_punctuation(c) || is_cjk(c) {
            let on = end(&mut word);
            word.push(c);
            on && end(&mut word)
        } else {
            word.push(c);
            // A word without an end takes no more room than it needs to be known as too long.
            word.len() <= MAX_WORD_CHARS * 8 || {
                word.truncate(word.char_indices().nth(MAX_WORD_CHARS + 1).map_or(word.len(), |(at, _)| at));
                true
            }
        };
        if !on {
            return;
        }
    }
    end(&mut word);
}

/// Invisible characters that say how others are shown.
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c,
            '¡' | '§' | '«' | '¶' | '·' | '»' | '¿' | '\u{37e}' | '\u{387}'
            | '\u{55a}'..='\u{55f}' | '\u{589}'..='\u{58a}' | '\u{5be}' | '\u{5c0}' | '\u{5c3}' | '\u{5f3}'..='\u{5f4}'
            | '\u{60c}'..='\u{60d}' | '\u{61b}' | '\u{61e}'..='\u{61f}' | '\u{66a}'..='\u{66d}' | '\u{6d4}'
            | '\u{964}'..='\u{965}' | '\u{970}' | '\u{e4f}' | '\u{e5a}'..='\u{e5b}' | '\u{10fb}'
            | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{2043}' | '\u{2045}'..='\u{2051}' | '\u{2053}'..='\u{205e}'
            | '\u{207d}'..='\u{207e}' | '\u{208d}'..='\u{208e}' | '\u{2308}'..='\u{230b}' | '\u{2329}'..='\u{232a}'
            | '\u{2768}'..='\u{2775}' | '\u{27e6}'..='\u{27ef}' | '\u{2983}'..='\u{2998}' | '\u{2e00}'..='\u{2e4f}'
            | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{3030}' | '\u{303d}'
            | '\u{30a0}' | '\u{30fb}' | '\u{fe10}'..='\u{fe19}' | '\u{fe30}'..='\u{fe52}' | '\u{fe54}'..='\u{fe61}'
            | '\u{fe63}' | '\u{fe68}' | '\u{fe6a}'..='\u{fe6b}' | '\u{ff01}'..='\u{ff03}' | '\u{ff05}'..='\u{ff0a}'
            | '\u{ff0c}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff1b}' | '\u{ff1f}'..='\u{ff20}' | '\u{ff3b}'..='\u{ff3d}'
            | '\u{ff3f}' | '\u{ff5b}' | '\u{ff5d}' | '\u{ff5f}'..='\u{ff65}')
}

fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}
