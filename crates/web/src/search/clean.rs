//! Cleans untrusted results: decodes entities, removes invisible characters, bounds sizes.

use std::collections::HashSet;

use helve_contract::{Invisible, invisible, ports::WebResult};
use url::Url;

use super::provider::RawResult;

/// The most characters of a title, of a snippet and of an address.
const MAX_TITLE_CHARS: usize = 200;
const MAX_SNIPPET_CHARS: usize = 1_000;
const MAX_URL_CHARS: usize = 2_048;

/// One line of at most so many characters: blanks folded, control and invisible characters gone.
#[must_use]
pub fn single_line(text: &str, most: usize) -> String {
    let mut out = String::new();
    let (mut taken, mut gap) = (0, false);
    // What comes after the last character that can be kept is not looked at: an answer may be long.
    for it in text.chars().take(most.saturating_mul(8).saturating_add(64)) {
        if it.is_whitespace() || (it.is_control() && !out.is_empty()) {
            gap = taken > 0;
        } else if is_visible(it) {
            if taken + usize::from(gap) + 1 > most {
                out.push('…');
                break;
            }
            if gap {
                out.push(' ');
                taken += 1;
            }
            out.push(it);
            taken += 1;
            gap = false;
        }
    }
    out
}

/// Not a control character, and none that turns the text around, joins nothing, or hides words from a reader.
fn is_visible(it: char) -> bool {
    !it.is_control()
        && !matches!(invisible(it), Some(Invisible::Mark | Invisible::Hidden))
        // Private use: no font says what they are.
        && !matches!(it, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..)
}

/// A piece of HTML as text: without its tags, entities resolved once.
pub(super) fn strip_html(html: &str) -> String {
    let mut plain = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        plain.push_str(&rest[..open]);
        // A bare `<` before anything but a tag's first letter is text.
        let tag = rest[open + 1..].starts_with(|it: char| it.is_ascii_alphabetic() || it == '/' || it == '!');
        match rest[open..].find('>').filter(|_| tag) {
            Some(close) => rest = &rest[open + close + 1..],
            None => {
                plain.push('<');
                rest = &rest[open + 1..];
            }
        }
    }
    plain.push_str(rest);
    decode_entities(&plain)
}

/// Resolves the entities that occur in titles and snippets; others stay as they are.
pub(super) fn decode_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest[1..].split(';').next().filter(|it| it.len() <= 10 && it.len() + 1 < rest.len());
        match name.and_then(entity) {
            Some(it) => {
                out.push(it);
                rest = &rest[name.map_or(1, |it| it.len() + 2)..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|it| *it != '\0');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "hellip" => '…',
        "mdash" => '—',
        "ndash" => '–',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "bull" => '•',
        "middot" => '·',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "deg" => '°',
        "euro" => '€',
        "pound" => '£',
        "times" => '×',
        "rarr" => '→',
        "larr" => '←',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "egrave" => 'è',
        _ => return None,
    })
}

/// The address of a result, if it is one that can be followed.
pub(super) fn result_url(text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok().filter(|it| it.as_str().len() <= MAX_URL_CHARS)?;
    (matches!(url.scheme(), "http" | "https") && url.host().is_some()).then_some(url)
}

/// A result as it is shown.
pub(super) fn result(raw: RawResult, url: &Url) -> WebResult {
    let title = single_line(&raw.title, MAX_TITLE_CHARS);
    WebResult {
        title: if title.is_empty() { url.host_str().unwrap_or_default().to_owned() } else { title },
        url: url.to_string(),
        snippet: single_line(&raw.snippet, MAX_SNIPPET_CHARS),
        published: raw.published.map(|it| single_line(&it, 40)).filter(|it| !it.is_empty()),
    }
}

/// Addresses that were shown already.
#[derive(Default)]
pub(super) struct SeenUrls(HashSet<String>);

impl SeenUrls {
    pub(super) fn is_new(&mut self, url: &Url) -> bool {
        self.0.insert(url.as_str().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_is_left() {
        let hidden = "a\u{200b}b \u{202e}c\u{e0041}\u{e0042}\n\n d\u{0}\u{1b}[31m";
        assert_eq!(single_line(hidden, 100), "ab c d [31m");
        assert_eq!(single_line("one two three", 7), "one two…");
        assert_eq!(single_line("one two", 7), "one two");
        assert_eq!(single_line(&"\u{200b}".repeat(10_000), 5), "");
    }

    #[test]
    fn entities_are_resolved_once() {
        let html = "A <b>bold</b> &amp;lt; &#39;x&#x27; 3 < 4 &unknown; &amp";
        assert_eq!(strip_html(html), "A bold &lt; 'x' 3 < 4 &unknown; &amp");
    }

    #[test]
    fn only_addresses_that_can_be_followed() {
        let seen = ["https://a.org/x", "javascript:alert(1)", "data:text/html,x", "//a.org", "ftp://a.org/"]
            .map(|it| result_url(it).is_some());
        assert_eq!(seen, [true, false, false, false, false]);
    }
}
