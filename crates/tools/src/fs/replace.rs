//! Replacing a piece of text in the bytes of a file, without loss.
//!
//! Bytes in, bytes out: the file's encoding, byte-order mark and line ends are kept, and only the bytes of the matched
//! text may change. That is proved before the result is handed out.

mod ends;
mod ladder;
mod miss;

use std::ops::Range;

use helve_contract::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

use self::ends::{Folded, fitted, usual};
use super::{
    diff::Change,
    text::{self, Charset, Decoded, Format},
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
pub enum Rung {
    /// Character by character.
    Exact,
    /// Without regard to blanks at the ends of lines.
    TrailingBlanks,
    /// Without regard to indentation; the new text was indented alike.
    Indentation,
    /// Without regard to the style of quotes and dashes; the file's own were kept.
    Typography,
}

impl Rung {
    /// What to tell about it; nothing when the match was exact.
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
pub(super) struct Wanted<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) all: bool,
    pub(super) tolerance: Tolerance,
}

/// A file after the change.
#[derive(Debug)]
pub(super) struct Replaced {
    /// All of its bytes.
    pub(super) bytes: Vec<u8>,
    /// Which of them are others now.
    pub(super) changes: Vec<Change>,
    /// How many places were changed.
    pub(super) count: usize,
    pub(super) rung: Rung,
}

/// Why nothing was replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is nothing to look for.
    Empty,
    /// The new text is the old one.
    Same,
    /// The text is in several places: how many, and in which lines the first ones begin.
    Several(usize, Vec<usize>),
    /// The result would be larger than can be handled.
    TooLarge,
    /// The text is not there; what is there instead.
    Missing(String),
    /// A character that the file's encoding does not have.
    Unmappable(char),
    /// The new text has marks of bytes that could not be read.
    Unreadable,
    /// The result would not be what was asked for.
    Unproved,
}

/// How many bytes all new texts may take together.
const ROOM: usize = 128 << 20;
/// How many places are told when there are too many.
const TOLD: usize = 10;

/// One place of the text, and what goes there.
struct Match {
    range: Range<usize>,
    new: String,
}

/// The places that were found: all of them where all are wanted, else the first few.
#[derive(Default)]
struct Finds {
    matches: Vec<Match>,
    count: usize,
}

impl Finds {
    /// Collects places. `made` says what goes to one; nothing where it is no place after all.
    fn gather(
        places: impl Iterator<Item = Range<usize>>,
        all: bool,
        made: impl Fn(&Range<usize>) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let (mut finds, mut room) = (Self::default(), ROOM);
        for range in places {
            if !all && finds.matches.len() >= TOLD {
                finds.count += 1;
                continue;
            }
            let Some(new) = made(&range) else { continue };
            room = room.checked_sub(new.len() + size_of::<Match>()).ok_or(Refusal::TooLarge)?;
            finds.count += 1;
            finds.matches.push(Match { range, new });
        }
        Ok(finds)
    }
}

/// Replaces text in the bytes of a file.
pub(super) fn replace(bytes: &[u8], format: Format, wanted: &Wanted) -> Result<Replaced, Refusal> {
    let decoded = Decoded::new(bytes, format);
    let text = &*decoded.text;
    let old = wanted.old.strip_prefix('\u{feff}').filter(|_| format.bom > 0).unwrap_or(wanted.old);
    let new = wanted.new.strip_prefix('\u{feff}').filter(|_| format.bom > 0).unwrap_or(wanted.new);
    if old.is_empty() {
        return Err(Refusal::Empty);
    }
    if old == new {
        return Err(Refusal::Same);
    }
    let folded = Folded::new(text);
    let (mut finds, mut rung) = (exact(text, &folded, old, new, wanted.all)?, Rung::Exact);
    if finds.count == 0 && wanted.tolerance == Tolerance::Tolerant {
        (finds, rung) = ladder::climb(text, old, new, wanted.all)?;
    }
    if finds.count == 0 {
        return Err(Refusal::Missing(miss::explain(text, old, new)));
    }
    // `aa` is twice in `aaa`.
    let overlaps = || rung == Rung::Exact && folded.overlapping(&ends::plain(old, &folded));
    if !wanted.all && (finds.count > 1 || overlaps()) {
        let starts = finds.matches.iter().map(|it| it.range.start);
        return Err(Refusal::Several(finds.count, ends::line_numbers(text, starts)));
    }
    splice(bytes, &decoded, &finds.matches, rung)
}

/// All places where the text is, from left to right, none over another. A line end in `old` stands for any line end.
fn exact(text: &str, folded: &Folded, old: &str, new: &str, all: bool) -> Result<Finds, Refusal> {
    if old.contains('\r') {
        // Whoever writes carriage returns means them.
        let places = text.match_indices(old).map(|(at, _)| at..at + old.len());
        let finds = Finds::gather(places, all, |_| Some(new.to_owned()))?;
        if finds.count > 0 {
            return Ok(finds);
        }
    }
    let pattern = ends::plain(old, folded);
    let usual = usual(text);
    Finds::gather(folded.find(&pattern), all, |range| Some(fitted(new, &text[range.clone()], usual)))
}

/// Puts the new texts in their places, as bytes.
fn splice(bytes: &[u8], decoded: &Decoded, matches: &[Match], rung: Rung) -> Result<Replaced, Refusal> {
    let text = &*decoded.text;
    let more: usize = matches.iter().map(|it| it.new.len()).sum();
    let mut made = Made { bytes: Vec::with_capacity(bytes.len() + more), parts: Vec::new(), changes: Vec::new() };
    let (mut byte, mut at, mut count) = (0, 0, 0);
    for Match { range, new } in matches {
        let (inner, piece) = narrowed(text, range, new);
        // A range that cuts a character of the file in two is taken whole.
        let (inner, piece, here) = match decoded.bytes_of(inner.clone()) {
            Some(here) => (inner, piece, here),
            None => (range.clone(), new.as_str(), decoded.bytes_of(range.clone()).ok_or(Refusal::Unproved)?),
        };
        if decoded.format.damaged && piece.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Refusal::Unreadable);
        }
        let encoded = text::encode(piece, decoded.format.charset).map_err(Refusal::Unmappable)?;
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
        return Err(Refusal::Same);
    }
    if !made.is_proved(bytes, decoded.format) {
        return Err(Refusal::Unproved);
    }
    Ok(Replaced { bytes: made.bytes, changes: made.changes, count, rung })
}

/// The part of a match that really changes: what old and new begin and end with in common stays untouched.
fn narrowed<'a>(text: &str, range: &Range<usize>, new: &'a str) -> (Range<usize>, &'a str) {
    let old = &text[range.clone()];
    let head: usize = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let (a, b) = (&old[head..], &new[head..]);
    let tail: usize = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    (range.start + head..range.end - tail, &b[..b.len() - tail])
}

/// The result, and which bytes of it are new.
struct Made<'a> {
    bytes: Vec<u8>,
    /// Its text: pieces of the old one, and the pieces between them that are new.
    parts: Vec<&'a str>,
    changes: Vec<Change>,
}

impl Made<'_> {
    /// Whether every byte outside of the changes is the one that was there, and the whole reads as it should.
    fn is_proved(&self, before: &[u8], format: Format) -> bool {
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
            _ => self.is_text(Decoded::new(&self.bytes, format).text.as_bytes()),
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
