//! Finds secrets in a text: by keywords before them and by their form.

use std::{ops::Range, sync::LazyLock};

use aho_corasick::{AhoCorasick, Input, MatchKind, Span, packed};
use regex::Regex;

use super::{REDACTED, value};

/// How far after a keyword its value is searched.
const LOOKAHEAD_BYTES: usize = 700;

/// Everything that a secret can start with or follow. Every reply is scanned for it, so it is a word search and not a
/// regular expression.
static ANCHORS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let all = secret_keywords().into_iter().chain(KEY_PREFIXES.map(str::to_owned));
    AhoCorasick::builder().ascii_case_insensitive(true).match_kind(MatchKind::LeftmostFirst).build(all).ok()
});

/// Beginnings of keys and the like, as they are spelt.
const KEY_PREFIXES: [&str; 39] = [
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "AKIA",
    "ASIA",
    "xoxa-",
    "xoxb-",
    "xoxe-",
    "xoxo-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "AIza",
    "ya29.",
    "glpat-",
    "npm_",
    "hf_",
    "pypi-",
    "dop_v1_",
    "SG.",
    "eyJ",
    "://",
    "-----BEGIN ",
    "AGE-SECRET-KEY-1",
    "sbp_",
    "shpat_",
    "dckr_pat_",
    "tvly-",
    "lin_api_",
    "gsk_",
];

/// Words that a secret stands behind, in letters of any size, the longer before the shorter.
fn secret_keywords() -> Vec<String> {
    let joined = |first: &str, last: &str| ["", "_", "-"].map(|sign| format!("{first}{sign}{last}"));
    let schemes = ["bearer", "basic"]
        .iter()
        .flat_map(|it| [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'].map(|end| format!("{it}{end}")));
    let access = joined("secret", "access").into_iter().flat_map(|it| joined(&it, "key"));
    let keys = ["secret", "api", "private", "access", "account", "auth"].into_iter().flat_map(|it| joined(it, "key"));
    let plain = ["password", "passwd", "passphrase", "pwd", "secret", "token"].map(str::to_owned);
    schemes.chain(access).chain(keys).chain(plain).collect()
}

/// Words that a value is given behind; anchors other than those of credentials and of what is spelt end with one.
const ASSIGNMENT_KEYWORDS: [&str; 7] = ["password", "passwd", "passphrase", "pwd", "secret", "token", "key"];

/// The words of anchors in small letters, or enough of each to know it by.
const KEYWORD_STEMS: [&str; 8] = ["bearer", "basic", "secret", "key", "passw", "passp", "pwd", "token"];

/// How many texts one search looks for: with more of them it sees some in every line.
const MAX_NEEDLES_PER_SEARCH: usize = 16;

/// Lower-case fragments, one of which is in every anchor: first keywords, then key prefixes. Each search has few enough
/// to be vectorised. Text without a fragment has no anchor.
static PREFILTERS: LazyLock<Option<Vec<packed::Searcher>>> = LazyLock::new(|| {
    let short = ["sk_", "rk_", "xox"];
    let spelt = KEY_PREFIXES.map(str::to_ascii_lowercase);
    let others = spelt.iter().map(String::as_str).filter(|it| !short.iter().any(|piece| it.contains(piece)));
    let others: Vec<&str> = short.into_iter().chain(others).collect();
    let parts = [&KEYWORD_STEMS[..]].into_iter().chain(others.chunks(MAX_NEEDLES_PER_SEARCH));
    parts.map(|part| packed::Config::new().builder().extend(part).build()).collect()
});

/// The longest anchor.
const MAX_ANCHOR_LEN: usize = 17;

/// Looks for anchors in a text, from its beginning to its end.
struct Anchors<'a> {
    all: &'static AhoCorasick,
    text: &'a str,
    /// The text in small letters.
    small: String,
    /// The searches for pieces in it, that for words first, and where each will find the next one.
    pieces: Vec<(&'static packed::Searcher, Option<usize>)>,
}

impl<'a> Anchors<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let all = ANCHORS.as_ref()?;
        let Some(searches) = PREFILTERS.as_ref() else {
            return Some(Self { all, text, small: String::new(), pieces: Vec::new() });
        };
        let small = text.to_ascii_lowercase();
        let first = |search: &packed::Searcher| search.find(&small).map(|found| found.start());
        let pieces = searches.iter().map(|search| (search, first(search))).collect();
        Some(Self { all, text, small, pieces })
    }

    /// The next anchor from a place on that something may follow.
    fn next(&mut self, from: usize) -> Option<Range<usize>> {
        if self.pieces.is_empty() {
            return self.first_in(from..self.text.len());
        }
        let mut at = from;
        loop {
            let (piece, is_word) = self.next_candidate(at)?;
            at = piece + 1;
            if is_word && !self.may_precede_value(piece) {
                continue;
            }
            let around = from.max(piece.saturating_sub(MAX_ANCHOR_LEN))..self.small.len().min(piece + MAX_ANCHOR_LEN);
            match self.first_in(around) {
                // One that begins behind the piece has a piece of its own.
                Some(found) if found.start <= piece => return Some(found),
                _ => {}
            }
        }
    }

    /// The next piece from a place on, and whether it is a word alone.
    fn next_candidate(&mut self, at: usize) -> Option<(usize, bool)> {
        for (search, next) in &mut self.pieces {
            if next.is_some_and(|next| next < at) {
                *next = search.find_in(&self.small, Span::from(at..self.small.len())).map(|found| found.start());
            }
        }
        let word = self.pieces.first().and_then(|(_, next)| *next);
        let spelt = self.pieces[1..].iter().filter_map(|(_, next)| *next).min();
        match (word, spelt) {
            (Some(word), None) => Some((word, true)),
            (Some(word), Some(spelt)) => Some((word.min(spelt), word < spelt)),
            (None, spelt) => spelt.map(|spelt| (spelt, false)),
        }
    }

    /// Whether a value may stand behind a word. Most are just words, and are told apart here.
    fn may_precede_value(&self, word: usize) -> bool {
        let rest = &self.small[word..];
        if let Some(behind) = rest.strip_prefix("bearer").or_else(|| rest.strip_prefix("basic")) {
            return behind.starts_with(|it: char| it.is_ascii_whitespace() || it == '\u{b}');
        }
        let whole = ASSIGNMENT_KEYWORDS.iter().find(|it| rest.starts_with(**it));
        whole.is_some_and(|it| may_assign(&self.text[word + it.len()..], self.text, &(word..word + it.len())))
    }

    /// The first anchor in a part of the text.
    fn first_in(&self, mut part: Range<usize>) -> Option<Range<usize>> {
        let spelt_from = self.all.patterns_len() - KEY_PREFIXES.len();
        loop {
            let found = self.all.find(Input::new(self.text).range(part.clone()))?;
            let spelt = found.pattern().as_usize().checked_sub(spelt_from).and_then(|at| KEY_PREFIXES.get(at));
            if spelt.is_none_or(|it| self.text[found.range()] == **it) {
                return Some(found.range());
            }
            part.start = found.start() + 1;
        }
    }
}

/// Keys whose shape alone gives them away.
static KEY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?-u:sk-[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}",
        r"|A(?:KIA|SIA)[0-9A-Z]{16}|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,}|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}",
        r"|glpat-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{50,}|dop_v1_[a-f0-9]{64}",
        r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        r"|AGE-SECRET-KEY-1[0-9A-Z]{50,}|sbp_[a-f0-9]{40}|shpat_[a-fA-F0-9]{32}|dckr_pat_[A-Za-z0-9_-]{20,}",
        r"|tvly-[A-Za-z0-9_-]{20,}|lin_api_[A-Za-z0-9]{32,}|gsk_[A-Za-z0-9]{40,})",
    ))
    .ok()
});

/// What stands between a word such as `password` and its value, and the value: in quotes (2), or bare (3).
static ASSIGNMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"^(?:\\?["'])?\]?([ \t]*(?:=>|:=|=|:)[ \t]*|[ \t]+is[ \t]+|[ \t]+)(?:\\?["'`]([^"'`\\\r\n]+)\\?["'`]|([^\s"'`,;&<>(){}\[\]\\|]+))"#,
    )
    .ok()
});

static CREDENTIALS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?i:bearer|basic)[ \t]+([A-Za-z0-9._~+/=-]{16,})").ok());

/// User and password, or a token alone, before the host of an address.
static USERINFO: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"^://(?:[^\s/@:"'<>]*:([^\s/@"'<>]+)|([A-Za-z0-9_-]{20,}))@"#).ok());

static PEM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----((?:\s|\\[nr])*(?:[A-Za-z-]+: [^\n\\]*(?:\s|\\[nr])+)*[A-Za-z0-9+/=]{16,}(?:[A-Za-z0-9+/=\s,]|\\[nr])*)")
        .ok()
});

/// The text with every secret replaced; nothing if there is none.
pub(super) fn redact_secrets(text: &str) -> Option<String> {
    let mut anchors = Anchors::of(text)?;
    let (mut clean, mut copied, mut from) = (String::new(), 0, 0);
    while let Some(found) = anchors.next(from) {
        let end = found.end;
        match secret_at(text, found) {
            Some(secret) => {
                clean.push_str(&text[copied..secret.start]);
                clean.push_str(REDACTED);
                (copied, from) = (secret.end, secret.end);
            }
            None => from = end,
        }
    }
    (copied > 0).then(|| {
        clean.push_str(&text[copied..]);
        clean
    })
}

/// The secret that an anchor leads to, if it is one.
fn secret_at(text: &str, anchor: Range<usize>) -> Option<Range<usize>> {
    let near = &text[anchor.start..text.floor_char_boundary(anchor.end + LOOKAHEAD_BYTES)];
    match &near.as_bytes()[..3] {
        b"://" => {
            let found = USERINFO.as_ref()?.captures(near)?;
            let secret = found.get(1).or(found.get(2).filter(|it| value::has_letters_and_digits(it.as_str())))?;
            (!value::is_placeholder(secret.as_str())).then(|| offset_range(secret.range(), anchor.start))
        }
        b"---" => {
            let rest = &text[anchor.start..];
            let body = PEM.as_ref()?.captures(rest)?.get(1)?;
            Some(offset_range(body.range(), anchor.start))
        }
        _ => key_at(text, &anchor)
            .or_else(|| credentials_at(near, anchor.start))
            .or_else(|| assigned_value_at(text, &anchor)),
    }
}

fn offset_range(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

fn key_at(text: &str, anchor: &Range<usize>) -> Option<Range<usize>> {
    let before = text[..anchor.start].bytes().next_back();
    if before.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-') {
        return None;
    }
    let key = KEY.as_ref()?.find(&text[anchor.start..])?;
    // Names in style sheets and the like begin with `sk-` too, and have no digits.
    key.as_str().bytes().any(|it| it.is_ascii_digit()).then(|| offset_range(key.range(), anchor.start))
}

fn credentials_at(near: &str, start: usize) -> Option<Range<usize>> {
    let token = CREDENTIALS.as_ref()?.captures(near)?.get(1)?;
    let mixed = value::has_letters_and_digits(token.as_str()) || token.as_str().ends_with('=');
    (mixed && !value::is_placeholder(token.as_str())).then(|| offset_range(token.range(), start))
}

/// A value behind a word such as `password`.
fn assigned_value_at(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let anchor = text[word.clone()].to_ascii_lowercase();
    if !ASSIGNMENT_KEYWORDS.iter().any(|it| anchor.ends_with(it)) {
        return None;
    }
    let behind = &text[word.end..text.floor_char_boundary(word.end + LOOKAHEAD_BYTES)];
    if !may_assign(behind, text, word) {
        return None;
    }
    let found = ASSIGNMENT.as_ref()?.captures(behind)?;
    let sign = found.get(1)?.as_str();
    let name = name_before(text, word);
    let bare_sign = sign.trim().is_empty();
    if bare_sign && !name.starts_with("--") {
        return None;
    }
    let secret = found.get(2).or(found.get(3))?;
    let given = value::Assignment {
        name,
        value: secret.as_str(),
        quoted: found.get(2).is_some(),
        no_spaces: sign == "=" || bare_sign,
        starts_line: text[..word.end - name.len()]
            .trim_end_matches([' ', '\t'])
            .bytes()
            .next_back()
            .is_none_or(|it| it == b'\n')
            || text[..word.end - name.len()].ends_with("export "),
        next_char: behind[secret.end()..].chars().next(),
    };
    given.is_secret().then(|| offset_range(secret.range(), word.end))
}

/// Whether a value may follow: a sign, a quote or a bracket does, or a blank that is no mere gap between words.
fn may_assign(behind: &str, text: &str, word: &Range<usize>) -> bool {
    match behind.as_bytes() {
        [b' ' | b'\t', ..] => {
            let next = behind.trim_start_matches([' ', '\t']);
            next.starts_with(['=', ':']) || next.starts_with("is") || name_before(text, word).starts_with("--")
        }
        [b'=' | b':' | b'"' | b'\'' | b'\\' | b']', ..] => true,
        _ => false,
    }
}

/// The whole name that a word such as `token` ends: `DB_ACCESS_TOKEN`.
fn name_before<'a>(text: &'a str, word: &Range<usize>) -> &'a str {
    let before = &text[text.ceil_char_boundary(word.start.saturating_sub(64))..word.start];
    let start = before.trim_end_matches(|it: char| it.is_ascii_alphanumeric() || "_-".contains(it)).len();
    &text[word.start - (before.len() - start)..word.end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_anchor_holds_a_piece() {
        let pieces = PREFILTERS.as_ref().unwrap();
        for anchor in secret_keywords().into_iter().chain(KEY_PREFIXES.map(str::to_owned)) {
            assert!(anchor.len() <= MAX_ANCHOR_LEN, "{anchor}");
            let small = anchor.to_ascii_lowercase();
            assert!(pieces.iter().any(|it| it.find(&small).is_some()), "{anchor}");
        }
        for spelt in KEY_PREFIXES.map(str::to_ascii_lowercase) {
            assert!(pieces[1..].iter().any(|it| it.find(&spelt).is_some()), "{spelt} would be taken for a word");
        }
    }

    #[test]
    fn all_anchors_are_found_wherever_they_stand() {
        let all: Vec<String> = secret_keywords().into_iter().chain(KEY_PREFIXES.map(str::to_owned)).collect();
        for (number, anchor) in all.iter().enumerate() {
            let loud: String =
                anchor.chars().map(|it| if number % 2 == 0 { it.to_ascii_uppercase() } else { it }).collect();
            for written in [anchor.clone(), loud] {
                for sign in ["=", ": ", " = ", "\" ", "\\\"", "'", "] "] {
                    let before = "ein Schlüssel, kein xo key ".repeat(number % 7);
                    let text = format!("{before}{written}{sign}{}", "é ".repeat(number));
                    let mut anchors = Anchors::of(&text).unwrap();
                    let mut slow = Anchors { pieces: Vec::new(), ..Anchors::of(&text).unwrap() };
                    let mut from = 0;
                    while let Some(found) = slow.next(from) {
                        assert_eq!(anchors.next(from), Some(found.clone()), "{text} from {from}");
                        from = found.end;
                    }
                    assert_eq!(anchors.next(from), None, "{text} from {from}");
                }
            }
        }
    }

    #[test]
    fn words_that_nothing_can_follow_are_passed_over() {
        for text in ["a token here", "the secret garden", "passwords", "a password", "keyboard", "basics", "tokens=1"] {
            assert_eq!(Anchors::of(text).unwrap().next(0), None, "{text}");
        }
        assert_eq!(Anchors::of("run --token abc").unwrap().next(0), Some(6..11));
    }
}
