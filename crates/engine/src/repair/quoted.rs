//! Text in quotes of any kind, with whatever models put between them.

use super::{
    is_whitespace_like,
    reader::{JsonContainer, LenientParser},
};

/// The quotes that end a text which begins with this one; nothing if it is no quote.
pub(super) fn closing_quotes(quote: char) -> Option<&'static [char]> {
    match quote {
        '"' => Some(&['"']),
        '\'' => Some(&['\'']),
        '`' => Some(&['`']),
        '“' | '”' | '„' => Some(&['”', '“', '"']),
        '‘' | '’' => Some(&['’', '‘', '\'']),
        _ => None,
    }
}

impl LenientParser<'_, '_> {
    /// The text in quotes that begins here. Newlines and tabs may stand in it as they are.
    pub(super) fn quoted(&mut self, quote: char, is_key: bool) -> String {
        let closers = closing_quotes(quote).unwrap_or_default();
        self.advance(quote.len_utf8());
        if quote != '"' {
            self.repairs.harmless("quotes that are not JSON's");
        }
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.find(|it: char| it == '\\' || closers.contains(&it)).unwrap_or(rest.len());
            if rest[..plain].bytes().any(|byte| byte < b' ') {
                self.repairs.harmless("a newline, tab or the like in a string");
            }
            text.push_str(&rest[..plain]);
            self.advance(plain);
            match self.peek() {
                None => return self.finish_unterminated(text),
                Some('\\') => self.escape(&mut text),
                Some(it) => {
                    self.advance(it.len_utf8());
                    if self.is_closing_quote(is_key) {
                        return text;
                    }
                    self.repairs.guess("a quote inside a string that was not escaped");
                    text.push(it);
                }
            }
        }
    }

    /// Whether the quote just passed ends its text, by what stands behind it.
    fn is_closing_quote(&mut self, is_key: bool) -> bool {
        let behind = self.rest().trim_start_matches(is_whitespace_like);
        let gap = &self.rest()[..self.rest().len() - behind.len()];
        let Some(next) = behind.chars().next() else { return true };
        match next {
            ':' => is_key || self.inside.is_empty(),
            ',' | '}' | ']' => !is_key || next != ',',
            '/' => behind.starts_with("//") || behind.starts_with("/*"),
            '#' => true,
            ';' | ')' => self.inside.is_empty(),
            _ if self.inside.is_empty() => behind.starts_with("```") || gap.contains('\n'),
            '=' => is_key,
            _ if is_key => !next.is_alphabetic(),
            '{' | '[' | '-' | '0'..='9' => self.inside.last() == Some(&JsonContainer::List) || gap.contains('\n'),
            next if closing_quotes(next).is_some() => {
                !gap.is_empty() || self.inside.last() == Some(&JsonContainer::List)
            }
            next if next.is_alphabetic() || next == '_' => {
                self.inside.last() == Some(&JsonContainer::Object) && is_key_ahead(behind)
            }
            _ => false,
        }
    }

    fn escape(&mut self, text: &mut String) {
        self.advance(1);
        let Some(it) = self.peek() else {
            text.push('\\');
            return;
        };
        self.advance(it.len_utf8());
        match it {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            '"' | '\\' | '/' => text.push(it),
            '\'' | '`' => {
                self.repairs.harmless("a quote that needed no escape");
                text.push(it);
            }
            'u' => self.unicode(text),
            other => {
                self.repairs.guess("a backslash that is no escape; it was kept");
                text.extend(['\\', other]);
            }
        }
    }

    /// Four digits, or twice four for one character. Half of a pair is no character.
    fn unicode(&mut self, text: &mut String) {
        let Some(first) = hex(self.rest()) else {
            self.repairs.guess("a broken \\u escape; it was kept");
            text.push_str("\\u");
            return;
        };
        self.advance(4);
        let second = self.rest().strip_prefix("\\u").and_then(hex).filter(|it| (0xdc00..0xe000).contains(it));
        let (code, more) = match (first, second) {
            (0xd800..0xdc00, Some(second)) => (0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00), 6),
            _ => (first, 0),
        };
        self.advance(more);
        text.push(char::from_u32(code).unwrap_or_else(|| {
            self.repairs.guess("half of a surrogate pair");
            char::REPLACEMENT_CHARACTER
        }));
    }

    /// The text ran out before the closing quote. What looks like the closing brackets of what is open is no content.
    fn finish_unterminated(&mut self, mut text: String) -> String {
        self.repairs.truncated("it ends in the middle of a string");
        let kept =
            text.trim_end_matches(is_whitespace_like).trim_end_matches("```").trim_end_matches(is_whitespace_like);
        let brackets = kept.len() - kept.trim_end_matches(['}', ']']).len();
        if brackets > 0 && brackets <= self.inside.len() {
            text.truncate(kept.len() - brackets);
        }
        text
    }
}

fn hex(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    digits.bytes().all(|it| it.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// `lastName: …` — the next key, without quotes and with no comma before it.
fn is_key_ahead(text: &str) -> bool {
    let name = text.len() - text.trim_start_matches(|it: char| it.is_alphanumeric() || it == '_').len();
    name <= 64 && text[name..].trim_start_matches(is_whitespace_like).starts_with(':')
}
