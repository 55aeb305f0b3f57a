//! The tolerant match levels, from the strictest to the loosest.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    ops::Range,
    time::{Duration, Instant},
};

use memchr::memmem;
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

use super::{
    MatchLevel, ReplaceError, TextMatches,
    ends::{self, FoldedText, adapt_line_ends, dominant_line_end},
};

/// Tries each level until one matches.
pub(super) fn find_tolerant(
    text: &str,
    old: &str,
    new: &str,
    all: bool,
) -> Result<(TextMatches, MatchLevel), ReplaceError> {
    for (rung, find) in [
        (
            MatchLevel::TrailingBlanks,
            trailing_blanks as fn(&str, &str, &str, bool) -> Result<TextMatches, ReplaceError>,
        ),
        (MatchLevel::Indentation, indentation),
        (MatchLevel::Typography, typography),
    ] {
        let finds = find(text, old, new, all)?;
        if finds.count > 0 {
            return Ok((finds, rung));
        }
    }
    Ok((TextMatches::default(), MatchLevel::Exact))
}

/// A line of a file: where it is without its end, and where the next one begins.
struct LineRef<'a> {
    text: &'a str,
    start: usize,
    next: usize,
}

fn lines(text: &str) -> Vec<LineRef<'_>> {
    let mut at = 0;
    text.split_inclusive('\n')
        .map(|whole| {
            let start = at;
            at += whole.len();
            let text = whole.strip_suffix('\n').unwrap_or(whole);
            LineRef { text: text.strip_suffix('\r').unwrap_or(text), start, next: at }
        })
        .collect()
}

/// The lines of a pattern, and whether the last one has an end.
fn pattern(old: &str) -> (Vec<&str>, bool) {
    let body = old.strip_suffix('\n');
    let lines = body.unwrap_or(old).split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    (lines.collect(), body.is_some())
}

/// The windows of the file in which all lines are alike once `bare` has taken off what does not count, none over
/// another.
fn windows(file: &[LineRef], old: &[&str], ended: bool, bare: fn(&str) -> &str) -> Vec<Range<usize>> {
    if old.iter().all(|line| line.trim().is_empty()) {
        return Vec::new();
    }
    // Lines are compared as numbers of eight bytes, so that the search for a window is the search for a string.
    let number = |line: &str| BuildHasherDefault::<DefaultHasher>::default().hash_one(bare(line)).to_ne_bytes();
    let hay: Vec<u8> = file.iter().flat_map(|line| number(line.text)).collect();
    let needle: Vec<u8> = old.iter().flat_map(|line| number(line)).collect();
    let finder = memmem::Finder::new(&needle);
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(at) = hay.get(from..).and_then(|hay| finder.find(hay)).map(|at| from + at) {
        let start = at / 8;
        let here = &file[start..file.len().min(start + old.len())];
        let closed = !ended || here.last().is_some_and(|it| it.next > it.start + it.text.len());
        let alike = at.is_multiple_of(8) && here.iter().zip(old).all(|(line, old)| bare(line.text) == bare(old));
        if closed && alike && here.len() == old.len() {
            found.push(start..start + old.len());
            from = at + needle.len();
        } else {
            from = at + 1;
        }
    }
    found
}

/// The bytes of a window: whole lines, the last one with its end only when the pattern has one.
fn span(file: &[LineRef], window: &Range<usize>, ended: bool) -> Range<usize> {
    let last = &file[window.end - 1];
    file[window.start].start..if ended { last.next } else { last.start + last.text.len() }
}

fn trim_end(line: &str) -> &str {
    line.trim_end_matches([' ', '\t'])
}

fn trim(line: &str) -> &str {
    line.trim_matches([' ', '\t'])
}

fn trailing_blanks(text: &str, old: &str, new: &str, all: bool) -> Result<TextMatches, ReplaceError> {
    let (file, (lines, ended), usual) = (lines(text), pattern(old), dominant_line_end(text));
    let places = windows(&file, &lines, ended, trim_end).into_iter().map(|window| span(&file, &window, ended));
    TextMatches::gather(places, all, |range| Some(adapt_line_ends(new, &text[range.clone()], usual)))
}

fn indentation(text: &str, old: &str, new: &str, all: bool) -> Result<TextMatches, ReplaceError> {
    let (file, (lines, ended), usual) = (lines(text), pattern(old), dominant_line_end(text));
    let places = windows(&file, &lines, ended, trim).into_iter().map(|window| span(&file, &window, ended));
    TextMatches::gather(places, all, |range| {
        let here: Vec<_> = text[range.clone()].split('\n').collect();
        let new = IndentMap::learn(&here, &lines)?.apply(new)?;
        Some(adapt_line_ends(&new, &text[range.clone()], usual))
    })
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Maps indentations of the pattern to those of the file.
struct IndentMap<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> IndentMap<'a> {
    /// `None` where one indentation would have to stand for two.
    fn learn(file: &[&'a str], old: &[&'a str]) -> Option<Self> {
        let mut known = BTreeMap::new();
        for (file, old) in file.iter().zip(old).filter(|(file, _)| !file.trim().is_empty()) {
            let (here, there) = (indent(file), indent(old));
            if *known.entry(there).or_insert(here) != here {
                return None;
            }
        }
        Some(Self(known))
    }

    /// The new text, indented as the file is; `None` where that cannot be told.
    fn apply(&self, new: &str) -> Option<String> {
        let mut text = String::new();
        for (at, line) in new.split('\n').enumerate() {
            if at > 0 {
                text.push('\n');
            }
            if line.trim().is_empty() {
                text += line;
                continue;
            }
            text += &self.of(indent(line))?;
            text += &line[indent(line).len()..];
        }
        Some(text)
    }

    fn of(&self, there: &str) -> Option<String> {
        if let Some(here) = self.0.get(there) {
            return Some((*here).to_owned());
        }
        // Deeper than a known line: add the same amount in the file.
        if let Some((known, here)) = self.0.iter().rev().find(|(known, _)| there.starts_with(**known)) {
            return Some(format!("{here}{}", &there[known.len()..]));
        }
        // Less deep than all known lines: remove the same amount in the file.
        let (known, here) = self.0.first_key_value()?;
        let less = known.strip_prefix(there)?;
        here.strip_suffix(less).map(str::to_owned)
    }
}

/// A character in its plainest form. Every one stands for exactly one.
pub(super) fn to_ascii_punctuation(it: char) -> char {
    match it {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        it => it,
    }
}

fn typography(text: &str, old: &str, new: &str, all: bool) -> Result<TextMatches, ReplaceError> {
    let (folded, usual) = (FoldedText::with(text, to_ascii_punctuation, str::is_ascii), dominant_line_end(text));
    let sought: String = ends::fold_pattern(old, &folded).chars().map(to_ascii_punctuation).collect();
    let (old, new) = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    TextMatches::gather(folded.find(&sought), all, |range| {
        let here = text[range.clone()].replace("\r\n", "\n");
        Some(adapt_line_ends(&apply_file_style(&here, &old, &new), &text[range.clone()], usual))
    })
}

/// Adapts the new text to the file's style: common parts come from the file, and new quotes follow its style.
fn apply_file_style(here: &str, old: &str, new: &str) -> String {
    let (here, old, new): (Vec<_>, Vec<_>, Vec<_>) =
        (here.chars().collect(), old.chars().collect(), new.chars().collect());
    if here.len() != old.len() {
        return new.into_iter().collect();
    }
    let curled = |quote: char| {
        let mut pairs = old.iter().zip(&here).filter(|(old, _)| **old == quote).peekable();
        pairs.peek().is_some() && pairs.all(|(_, here)| *here != quote)
    };
    let (single, double) = (curled('\''), curled('"'));
    let deadline = Instant::now() + Duration::from_millis(200);
    let mut text = String::new();
    for op in capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline)) {
        if op.tag() == DiffTag::Equal {
            text.extend(&here[op.old_range()]);
            continue;
        }
        for it in &new[op.new_range()] {
            let opens =
                text.chars().next_back().is_none_or(|it| it.is_whitespace() || "([{-\u{2013}\u{2014}".contains(it));
            text.push(match (it, opens) {
                ('\'', true) if single => '\u{2018}',
                ('\'', false) if single => '\u{2019}',
                ('"', true) if double => '\u{201c}',
                ('"', false) if double => '\u{201d}',
                (it, _) => *it,
            });
        }
    }
    text
}
