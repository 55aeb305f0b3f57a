//! The tolerant ways to find a text, from the closest to the loosest.

use std::{collections::BTreeMap, ops::Range, time::Duration, time::Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

use super::{
    Match, Rung,
    ends::{self, Folded, fitted, usual},
};

/// Climbs until a rung finds something.
pub(super) fn climb(text: &str, old: &str, new: &str) -> (Vec<Match>, Rung) {
    for (rung, find) in [
        (Rung::TrailingBlanks, trailing_blanks as fn(&str, &str, &str) -> Vec<Match>),
        (Rung::Indentation, indentation),
        (Rung::Typography, typography),
    ] {
        let matches = find(text, old, new);
        if !matches.is_empty() {
            return (matches, rung);
        }
    }
    (Vec::new(), Rung::Exact)
}

/// A line of a file: where it is without its end, and where the next one begins.
struct Line<'a> {
    text: &'a str,
    start: usize,
    next: usize,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut at = 0;
    text.split_inclusive('\n')
        .map(|whole| {
            let start = at;
            at += whole.len();
            let text = whole.strip_suffix('\n').unwrap_or(whole);
            Line { text: text.strip_suffix('\r').unwrap_or(text), start, next: at }
        })
        .collect()
}

/// The lines of a pattern, and whether the last one has an end.
fn pattern(old: &str) -> (Vec<&str>, bool) {
    let body = old.strip_suffix('\n');
    let lines = body.unwrap_or(old).split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    (lines.collect(), body.is_some())
}

/// The windows of the file in which all lines are alike, none over another.
fn windows(file: &[Line], old: &[&str], ended: bool, alike: impl Fn(&str, &str) -> bool) -> Vec<Range<usize>> {
    if old.iter().all(|line| line.trim().is_empty()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = 0;
    while at + old.len() <= file.len() {
        let here = &file[at..at + old.len()];
        let closed = !ended || here.last().is_some_and(|it| it.next > it.start + it.text.len());
        if closed && here.iter().zip(old).all(|(line, old)| alike(line.text, old)) {
            found.push(at..at + old.len());
            at += old.len();
        } else {
            at += 1;
        }
    }
    found
}

/// The bytes of a window: whole lines, the last one with its end only when the pattern has one.
fn span(file: &[Line], window: &Range<usize>, ended: bool) -> Range<usize> {
    let last = &file[window.end - 1];
    file[window.start].start..if ended { last.next } else { last.start + last.text.len() }
}

fn trailing_blanks(text: &str, old: &str, new: &str) -> Vec<Match> {
    let (file, (lines, ended)) = (lines(text), pattern(old));
    windows(&file, &lines, ended, |a, b| a.trim_end() == b.trim_end())
        .into_iter()
        .map(|window| {
            let range = span(&file, &window, ended);
            Match { new: fitted(new, &text[range.clone()], usual(text)), range }
        })
        .collect()
}

fn indentation(text: &str, old: &str, new: &str) -> Vec<Match> {
    let (file, (lines, ended)) = (lines(text), pattern(old));
    windows(&file, &lines, ended, |a, b| a.trim() == b.trim())
        .into_iter()
        .filter_map(|window| {
            let range = span(&file, &window, ended);
            let here: Vec<_> = file[window].iter().map(|line| line.text).collect();
            let new = Indents::learn(&here, &lines)?.apply(new)?;
            Some(Match { new: fitted(&new, &text[range.clone()], usual(text)), range })
        })
        .collect()
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Which indentation of a pattern stands for which in the file.
struct Indents<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Indents<'a> {
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
        // Deeper than a line that is known: as much deeper than that line in the file.
        if let Some((known, here)) = self.0.iter().rev().find(|(known, _)| there.starts_with(**known)) {
            return Some(format!("{here}{}", &there[known.len()..]));
        }
        // Less deep than all that are known: as much less deep in the file.
        let (known, here) = self.0.first_key_value()?;
        let less = known.strip_prefix(there)?;
        here.strip_suffix(less).map(str::to_owned)
    }
}

/// A character in its plainest form. Every one stands for exactly one.
pub(super) fn plain(it: char) -> char {
    match it {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        it => it,
    }
}

fn typography(text: &str, old: &str, new: &str) -> Vec<Match> {
    let folded = Folded::new(text, plain);
    let sought: String = ends::plain(old, &folded).chars().map(plain).collect();
    folded
        .find(&sought)
        .map(|range| {
            let here = text[range.clone()].replace("\r\n", "\n");
            let styled = styled(&here, &old.replace("\r\n", "\n"), &new.replace("\r\n", "\n"));
            Match { new: fitted(&styled, &text[range.clone()], usual(text)), range }
        })
        .collect()
}

/// The new text in the style of the file: what it has in common with the old text is taken from the file, and new
/// quotes are curled where the file's are.
fn styled(here: &str, old: &str, new: &str) -> String {
    let (here, old, new): (Vec<_>, Vec<_>, Vec<_>) = (here.chars().collect(), old.chars().collect(), new.chars().collect());
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
            let opens = text.chars().next_back().is_none_or(|it| it.is_whitespace() || "([{-\u{2013}\u{2014}".contains(it));
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
