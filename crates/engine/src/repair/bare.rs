//! Numbers and words without quotes.

use serde_json::{Number, Value};

use super::{is_whitespace_like, reader::LenientParser};

impl LenientParser<'_, '_> {
    /// The value without quotes that begins here: up to a comma, a bracket or the end of the line.
    pub(super) fn unquoted(&mut self) -> Value {
        let rest = self.rest();
        let end = end_of(rest);
        let word = rest[..end].trim_end_matches(is_whitespace_like);
        self.advance(end);
        let at_end = end == rest.len();
        let (word, stray) = match word.strip_suffix(['"', '\'']) {
            Some(word) if !word.is_empty() => (word, true),
            _ => (word, false),
        };
        if stray {
            self.repairs.guess("a string whose first quote was missing");
            return Value::String(word.to_owned());
        }
        if at_end && !self.inside.is_empty() {
            // `12` may have been `123`.
            self.repairs.guess("the end is missing right after a number or word");
        }
        self.literal(word).or_else(|| self.number(word)).unwrap_or_else(|| {
            self.repairs.guess("a string without quotes");
            Value::String(word.to_owned())
        })
    }

    fn literal(&mut self, word: &str) -> Option<Value> {
        let value = match word {
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            "null" | "None" | "NULL" | "Null" | "nil" | "undefined" => Value::Null,
            _ => return None,
        };
        if !matches!(word, "true" | "false" | "null") {
            self.repairs.harmless("a word that JSON writes in another way, such as True");
        }
        Some(value)
    }

    /// A number, in the spellings of other languages too. Leading zeros, hexadecimal and NaN stay words.
    fn number(&mut self, word: &str) -> Option<Value> {
        if let Ok(number) = serde_json::from_str::<Number>(word) {
            return Some(Value::Number(number));
        }
        if word.len() > 64 || !word.starts_with(|it: char| it.is_ascii_digit() || "+-.".contains(it)) {
            return None;
        }
        let mut plain = word.strip_prefix('+').unwrap_or(word).to_owned();
        if let Some(digits) = plain.strip_prefix("-.") {
            plain = format!("-0.{digits}");
        } else if plain.starts_with('.') {
            plain.insert(0, '0');
        }
        if plain.contains('_') && is_grouped(&plain) {
            plain.retain(|it| it != '_');
        }
        if let Ok(number) = serde_json::from_str::<Number>(&plain) {
            self.repairs.harmless("a number that JSON writes in another way");
            return Some(Value::Number(number));
        }
        let short = plain.trim_end_matches(['e', 'E', '+', '-', '.']);
        let number = serde_json::from_str::<Number>(short).ok()?;
        self.repairs.guess("a number with a loose end");
        Some(Value::Number(number))
    }
}

/// `1_000`: digits on both sides of every `_`.
fn is_grouped(word: &str) -> bool {
    word.split('_')
        .all(|part| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit() || it == b'-' || it == b'.'))
}

/// Where a word without quotes ends. A quote or a comment after a blank is something else; `https://` is not.
fn end_of(text: &str) -> usize {
    let mut blank = false;
    for (at, it) in text.char_indices() {
        match it {
            ',' | '}' | ']' | '\n' => return at,
            '"' | '#' if blank => return at,
            '/' if text[at..].starts_with("/*") || (blank && text[at..].starts_with("//")) => return at,
            _ => blank = is_whitespace_like(it),
        }
    }
    text.len()
}
