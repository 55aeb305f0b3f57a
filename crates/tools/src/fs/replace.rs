//! Replaces text in the bytes of a file without loss.
//!
//! The encoding, byte order mark and line ends are preserved, and only the bytes of the matched text may change. The
//! result is verified before it is returned.

mod ends;
mod ladder;
mod miss;

use std::ops::Range;

use helve_contract::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

use self::ends::{FoldedText, adapt_line_ends, dominant_line_end};
use super::{
    diff::ByteChange,
    text::{self, Charset, DecodedText, TextFormat},
};

/// How closely the text must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tolerance {
    /// Character by character; only the way that lines end may differ.
    #[default]
    Exact,
    /// Where nothing matches so: without regard to blanks at line ends, indentation, or the style of quotes and dashes.
    Tolerant,
}

/// How a text was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchLevel {
    /// Exact match.
    Exact,
    /// Ignoring trailing whitespace.
    TrailingBlanks,
    /// Ignoring indentation; the new text is indented accordingly.
    Indentation,
    /// Ignoring the style of quotes and dashes; the file's style is kept.
    Typography,
}

impl MatchLevel {
    /// The note for the reply; `None` for an exact match.
    #[must_use]
    pub const fn note(self) -> Option<&'static str> {
        match self {
            Self::Exact => None,
            Self::TrailingBlanks => Some("matched without regard to blanks at the ends of lines"),
            Self::Indentation => {
                Some("matched without regard to indentation; the new text was indented as the file is")
            }
            Self::Typography => {
                Some("matched without regard to the style of quotes and dashes; the file's own were kept")
            }
        }
    }
}

/// What to replace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) all: bool,
    pub(super) tolerance: Tolerance,
}

/// A file after the change.
#[derive(Debug)]
pub(super) struct ReplaceResult {
    /// All of its bytes.
    pub(super) bytes: Vec<u8>,
    /// Which of them are others now.
    pub(super) changes: Vec<ByteChange>,
    /// How many places were changed.
    pub(super) count: usize,
    pub(super) rung: MatchLevel,
}

/// Why nothing was replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplaceError {
    /// There is nothing to look for.
    Empty,
    /// The new text is the old one.
    NoChange,
    /// The text occurs several times: the count and the first line numbers.
    Ambiguous(usize, Vec<usize>),
    /// The result would be larger than can be handled.
    TooLarge,
    /// The text does not occur; what is there instead.
    Missing(String),
    /// A character that the file's encoding does not have.
    Unmappable(char),
    /// The new text has marks of bytes that could not be read.
    Unreadable,
    /// The result would not be what was asked for.
    VerificationFailed,
}

/// How many bytes all new texts may take together.
const MAX_NEW_BYTES: usize = 128 << 20;
/// How many places are told when there are too many.
const MAX_REPORTED_LINES: usize = 10;

/// One place of the text, and what goes there.
struct TextMatch {
    range: Range<usize>,
    new: String,
}

/// The places that were found: all of them where all are wanted, else the first few.
#[derive(Default)]
struct TextMatches {
    matches: Vec<TextMatch>,
    count: usize,
}

impl TextMatches {
    /// Collects matches. `made` returns the replacement for one, or nothing if it is no match.
    fn gather(
        places: impl Iterator<Item = Range<usize>>,
        all: bool,
        made: impl Fn(&Range<usize>) -> Option<String>,
    ) -> Result<Self, ReplaceError> {
        let (mut finds, mut room) = (Self::default(), MAX_NEW_BYTES);
        for range in places {
            if !all && finds.matches.len() >= MAX_REPORTED_LINES {
                finds.count += 1;
                continue;
            }
            let Some(new) = made(&range) else { continue };
            room = room.checked_sub(new.len() + size_of::<TextMatch>()).ok_or(ReplaceError::TooLarge)?;
            finds.count += 1;
            finds.matches.push(TextMatch { range, new });
        }
        Ok(finds)
    }
}

/// Replaces text in the bytes of a file.
pub(super) fn replace(bytes: &[u8], format: TextFormat, wanted: &Replacement) -> Result<ReplaceResult, ReplaceError> {
    let decoded = DecodedText::new(bytes, format);
    let text = &*decoded.text;
    let old = wanted.old.strip_prefix('\u{feff}').filter(|_| format.bom > 0).unwrap_or(wanted.old);
    let new = wanted.new.strip_prefix('\u{feff}').filter(|_| format.bom > 0).unwrap_or(wanted.new);
    if old.is_empty() {
        return Err(ReplaceError::Empty);
    }
    if old == new {
        return Err(ReplaceError::NoChange);
    }
    let folded = FoldedText::new(text);
    let (mut finds, mut rung) = (find_exact(text, &folded, old, new, wanted.all)?, MatchLevel::Exact);
    if finds.count == 0 && wanted.tolerance == Tolerance::Tolerant {
        (finds, rung) = ladder::find_tolerant(text, old, new, wanted.all)?;
    }
    if finds.count == 0 {
        return Err(ReplaceError::Missing(miss::explain(text, old, new)));
    }
    // `aa` is twice in `aaa`.
    let overlaps = || rung == MatchLevel::Exact && folded.overlapping(&ends::fold_pattern(old, &folded));
    if !wanted.all && (finds.count > 1 || overlaps()) {
        let starts = finds.matches.iter().map(|it| it.range.start);
        return Err(ReplaceError::Ambiguous(finds.count, ends::line_numbers(text, starts)));
    }
    splice(bytes, &decoded, &finds.matches, rung)
}

/// All places where the text is, from left to right, none over another. A line end in `old` stands for any line end.
fn find_exact(text: &str, folded: &FoldedText, old: &str, new: &str, all: bool) -> Result<TextMatches, ReplaceError> {
    if old.contains('\r') {
        // Explicit carriage returns are matched exactly.
        let places = text.match_indices(old).map(|(at, _)| at..at + old.len());
        let finds = TextMatches::gather(places, all, |_| Some(new.to_owned()))?;
        if finds.count > 0 {
            return Ok(finds);
        }
    }
    let pattern = ends::fold_pattern(old, folded);
    let usual = dominant_line_end(text);
    TextMatches::gather(folded.find(&pattern), all, |range| Some(adapt_line_ends(new, &text[range.clone()], usual)))
}

/// Puts the new texts in their places, as bytes.
fn splice(
    bytes: &[u8],
    decoded: &DecodedText,
    matches: &[TextMatch],
    rung: MatchLevel,
) -> Result<ReplaceResult, ReplaceError> {
    let text = &*decoded.text;
    let more: usize = matches.iter().map(|it| it.new.len()).sum();
    let mut made =
        VerifiedResult { bytes: Vec::with_capacity(bytes.len() + more), parts: Vec::new(), changes: Vec::new() };
    let (mut byte, mut at, mut count) = (0, 0, 0);
    for TextMatch { range, new } in matches {
        let (inner, piece) = trim_common(text, range, new);
        // A range that splits a character of the file is extended.
        let (inner, piece, here) = match decoded.bytes_of(inner.clone()) {
            Some(here) => (inner, piece, here),
            None => {
                (range.clone(), new.as_str(), decoded.bytes_of(range.clone()).ok_or(ReplaceError::VerificationFailed)?)
            }
        };
        if decoded.format.damaged && piece.contains(char::REPLACEMENT_CHARACTER) {
            return Err(ReplaceError::Unreadable);
        }
        let encoded = text::encode(piece, decoded.format.charset).map_err(ReplaceError::Unmappable)?;
        count += usize::from(text[inner.clone()] != *piece);
        made.bytes.extend_from_slice(&bytes[byte..here.start]);
        let start = made.bytes.len();
        made.bytes.extend_from_slice(&encoded);
        made.changes.push((here.clone(), start..made.bytes.len()));
        made.parts.extend([&text[at..inner.start], piece]);
        (byte, at) = (here.end, inner.end);
    }
    made.bytes.extend_from_slice(&bytes[byte..]);
    made.parts.push(&text[at..]);
    if count == 0 {
        return Err(ReplaceError::NoChange);
    }
    if !made.verify(bytes, decoded.format) {
        return Err(ReplaceError::VerificationFailed);
    }
    Ok(ReplaceResult { bytes: made.bytes, changes: made.changes, count, rung })
}

/// The part of a match that changes: the common prefix and suffix stay untouched.
fn trim_common<'a>(text: &str, range: &Range<usize>, new: &'a str) -> (Range<usize>, &'a str) {
    let old = &text[range.clone()];
    let head: usize = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let (a, b) = (&old[head..], &new[head..]);
    let tail: usize = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    (range.start + head..range.end - tail, &b[..b.len() - tail])
}

/// The result, and which bytes of it are new.
struct VerifiedResult<'a> {
    bytes: Vec<u8>,
    /// Its text: pieces of the old one, and the pieces between them that are new.
    parts: Vec<&'a str>,
    changes: Vec<ByteChange>,
}

impl VerifiedResult<'_> {
    /// Whether every byte outside the changes is unchanged and the whole decodes as expected.
    fn verify(&self, before: &[u8], format: TextFormat) -> bool {
        let (mut from, mut to) = (0, 0);
        for (old, new) in &self.changes {
            if before.get(from..old.start) != self.bytes.get(to..new.start) {
                return false;
            }
            (from, to) = (old.end, new.end);
        }
        let rest = before.get(from..).is_some() && before.get(from..) == self.bytes.get(to..);
        let reads = || match format.charset {
            Charset::Utf8 if !format.damaged => self.is_text(self.bytes.get(format.bom..).unwrap_or_default()),
            _ => self.is_text(DecodedText::new(&self.bytes, format).text.as_bytes()),
        };
        rest && reads()
    }

    /// Whether this is the text.
    fn is_text(&self, bytes: &[u8]) -> bool {
        self.parts.iter().try_fold(bytes, |rest, part| rest.strip_prefix(part.as_bytes())).is_some_and(<[u8]>::is_empty)
    }
}

#[cfg(test)]
mod tests;
