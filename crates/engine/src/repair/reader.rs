//! Objects and lists, read leniently.

use serde_json::{Map, Value};

use super::{RepairLog, is_whitespace_like, strict::note_duplicate_key};

/// How deep values may lie in each other.
const MAX_DEPTH: usize = 128;

/// What a reader is inside of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonContainer {
    Object,
    List,
}

/// A place in a text, and what was repaired on the way to it.
pub(super) struct LenientParser<'a, 'm> {
    text: &'a str,
    at: usize,
    pub(super) inside: Vec<JsonContainer>,
    pub(super) repairs: &'m mut RepairLog,
}

impl<'a, 'm> LenientParser<'a, 'm> {
    pub(super) fn new(text: &'a str, mends: &'m mut RepairLog) -> Self {
        Self { text, at: 0, inside: Vec::new(), repairs: mends }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
    }

    /// Steps over one character, if it is this one.
    pub(super) fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Steps over blanks and comments.
    pub(super) fn skip_whitespace(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches(is_whitespace_like).len();
            let rest = self.rest();
            let comment = if rest.starts_with("//") || rest.starts_with('#') {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else {
                return;
            };
            self.repairs.harmless("a comment");
            self.at += comment;
        }
    }

    /// Steps over a code fence with its language, if there is one.
    pub(super) fn skip_fence(&mut self) -> bool {
        let Some(rest) = self.rest().strip_prefix("```") else { return false };
        let word =
            rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_alphanumeric() || "+-_".contains(it)).len();
        self.advance(3 + word);
        true
    }

    /// The next value. The reader stands at its first character.
    pub(super) fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some('{') => self.nested(JsonContainer::Object),
            Some('[') => self.nested(JsonContainer::List),
            Some(quote) if super::quoted::closing_quotes(quote).is_some() => {
                Ok(Value::String(self.quoted(quote, false)))
            }
            _ => Ok(self.unquoted()),
        }
    }

    fn nested(&mut self, inside: JsonContainer) -> Result<Value, String> {
        if self.inside.len() >= MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        self.advance(1);
        self.inside.push(inside);
        let value = match inside {
            JsonContainer::Object => self.object(),
            JsonContainer::List => self.list(),
        };
        self.inside.pop();
        value
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut map = Map::new();
        let mut after_comma = false;
        loop {
            self.skip_whitespace();
            if self.at_container_end('}', map.is_empty() || after_comma, after_comma) {
                return Ok(Value::Object(map));
            }
            if self.skip_stray_tokens(map.is_empty() || after_comma) {
                after_comma = true;
                continue;
            }
            if self.peek() == Some('{') {
                // `{"a": 1, {"b": 2}`: the first object was never closed.
                self.repairs.guess("a brace where a key was expected");
                if map.is_empty() {
                    let value = self.value()?;
                    self.skip_whitespace();
                    self.skip_fence();
                    self.skip_whitespace();
                    self.eat('}');
                    return Ok(value);
                }
                return if self.inside.len() > 1 {
                    Ok(Value::Object(map))
                } else {
                    Err("a key is missing in it".into())
                };
            }
            let key = self.key()?;
            let value = self.member_value()?;
            if map.get(&key).is_some_and(|before| *before != value) {
                note_duplicate_key(self.repairs, &key);
            }
            map.insert(key, value);
            after_comma = self.comma();
        }
    }

    fn list(&mut self) -> Result<Value, String> {
        let mut list = Vec::new();
        let mut after_comma = false;
        loop {
            self.skip_whitespace();
            if self.at_container_end(']', list.is_empty() || after_comma, after_comma) {
                return Ok(Value::Array(list));
            }
            if self.skip_stray_tokens(list.is_empty() || after_comma) {
                after_comma = true;
                continue;
            }
            list.push(self.value()?);
            after_comma = self.comma();
        }
    }

    /// Whether the object or list ends here: with its bracket, with another one, or because the text does.
    fn at_container_end(&mut self, bracket: char, open: bool, after_comma: bool) -> bool {
        match self.peek() {
            None if open => self.repairs.guess("the end is missing where more was to come"),
            None => self.repairs.harmless("closing brackets were missing"),
            Some(it) if it == bracket => {
                if after_comma {
                    self.repairs.harmless("a comma too many");
                }
                self.advance(1);
            }
            Some(other @ ('}' | ']')) => {
                self.repairs.guess("a closing bracket of the wrong kind");
                let kind = if other == '}' { JsonContainer::Object } else { JsonContainer::List };
                let outer = &self.inside[..self.inside.len() - 1];
                if !outer.contains(&kind) {
                    self.advance(1);
                }
            }
            _ => return false,
        }
        true
    }

    /// Steps over a comma with nothing before it, or dots in place of what was left out.
    fn skip_stray_tokens(&mut self, open: bool) -> bool {
        if open && self.peek() == Some(',') {
            self.repairs.guess("a comma with nothing before it");
            self.advance(1);
            return true;
        }
        for dots in ["...", "…"] {
            if self.rest().starts_with(dots) {
                self.repairs.guess("dots in place of a value");
                self.advance(dots.len());
                self.skip_whitespace();
                self.eat(',');
                return true;
            }
        }
        if self.rest().starts_with("```") {
            self.repairs.guess("a code fence inside the JSON");
            return self.skip_fence();
        }
        false
    }

    fn comma(&mut self) -> bool {
        self.skip_whitespace();
        if self.eat(',') {
            return true;
        }
        if !matches!(self.peek(), None | Some('}' | ']')) {
            self.repairs.guess("a comma was missing");
        }
        false
    }

    fn key(&mut self) -> Result<String, String> {
        let quote = self.peek().filter(|it| super::quoted::closing_quotes(*it).is_some());
        if let Some(quote) = quote {
            return Ok(self.quoted(quote, true));
        }
        let rest = self.rest();
        let end = rest.find(|it: char| is_whitespace_like(it) || ":,{}[]\"'=".contains(it)).unwrap_or(rest.len());
        if end == 0 {
            return Err(format!("there is {:?} where a key was expected", self.peek().unwrap_or(' ')));
        }
        self.repairs.harmless("a key without quotes");
        self.advance(end);
        Ok(rest[..end].to_owned())
    }

    /// The colon and the value behind a key.
    fn member_value(&mut self) -> Result<Value, String> {
        self.skip_whitespace();
        if !self.eat(':') {
            if self.eat('=') {
                self.eat('>');
                self.repairs.harmless("an equals sign in place of a colon");
            } else if self.peek().is_some() {
                self.repairs.guess("a colon was missing");
            }
        }
        self.skip_whitespace();
        match self.peek() {
            None => {
                self.repairs.truncated("it ends where a value was to come");
                Ok(Value::Null)
            }
            Some(',' | '}' | ']') => {
                self.repairs.guess("a key without a value");
                Ok(Value::Null)
            }
            _ => self.value(),
        }
    }
}
