//! Locates hunks: exactly first, then with increasing tolerance for whitespace and typography.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

use super::{LineSide, PatchHunk};

/// How well lines fit, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchQuality {
    Exact,
    TrailingWhitespace,
    Whitespace,
    Punctuation,
}

impl MatchQuality {
    const ALL: [Self; 4] = [Self::Exact, Self::TrailingWhitespace, Self::Whitespace, Self::Punctuation];

    /// The note about tolerated differences.
    pub(super) fn note(self) -> Option<&'static str> {
        match self {
            Self::Exact => None,
            Self::TrailingWhitespace => Some("blanks at the ends of lines"),
            Self::Whitespace => Some("indentation and blanks at the ends of lines"),
            Self::Punctuation => Some("typographic quotes, dashes and blanks"),
        }
    }

    fn lines_match(self, a: &str, b: &str) -> bool {
        match self {
            Self::Exact => a == b,
            Self::TrailingWhitespace => a.trim_end() == b.trim_end(),
            Self::Whitespace => a.trim() == b.trim(),
            Self::Punctuation => fold_line(a) == fold_line(b),
        }
    }
}

/// Where a hunk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HunkLocation {
    /// The first line of the file that it covers, counted from 0.
    pub(super) at: usize,
    /// The number of hunk lines that count: trailing blank lines may not belong to it.
    pub(super) lines: usize,
    /// How well it fits.
    pub(super) fit: MatchQuality,
}

/// Why a hunk cannot be located.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HunkMiss {
    /// The line that should come before it is not there.
    AnchorMissing(String),
    /// Its lines are not there.
    Nowhere,
    /// Its lines are not at the end of the file.
    NotAtEnd,
    /// It fits at all of these lines, counted from 1.
    Ambiguous(Vec<usize>),
    /// It changes what another one changes.
    Overlaps,
    /// It fits except for inconsistent indentation.
    InconsistentIndent(usize),
}

/// The lines of a file, ready to be searched for the lines of some hunks.
pub(super) struct SearchableLines<'a> {
    pub(super) texts: Vec<&'a str>,
    /// What remains of each line without blanks and typography.
    folds: Vec<u64>,
    /// Where the lines are that the hunks name.
    index: HashMap<u64, Vec<usize>, BuildHasherDefault<IdentityHasher>>,
}

impl<'a> SearchableLines<'a> {
    pub(super) fn new(texts: Vec<&'a str>, hunks: &[PatchHunk]) -> Self {
        let named = hunks.iter().flat_map(|it| it.anchors.iter().map(String::as_str).chain(it.old()));
        let mut index: HashMap<_, Vec<usize>, _> = named.map(|line| (line_hash(line), Vec::new())).collect();
        let folds: Vec<u64> = texts.iter().map(|text| line_hash(text)).collect();
        for (at, fold) in folds.iter().enumerate() {
            if let Some(places) = index.get_mut(fold) {
                places.push(at);
            }
        }
        Self { texts, folds, index }
    }

    /// Places every hunk, in the order of the file; an error names the hunk.
    pub(super) fn locate_all(&self, hunks: &[PatchHunk]) -> Result<Vec<HunkLocation>, (usize, HunkMiss)> {
        let (mut from, mut drift) = (0, 0_isize);
        let mut places = Vec::with_capacity(hunks.len());
        for (number, hunk) in hunks.iter().enumerate() {
            let twins =
                || hunks[number..].iter().take_while(|it| it.lines == hunk.lines && it.anchors.is_empty()).count();
            let place = self.locate_one(hunk, from, drift, twins).map_err(|miss| (number, miss))?;
            let covered = hunk.lines[..place.lines].iter().filter(|line| line.side != LineSide::Added).count();
            if let Some(hint) = hunk.hint.filter(|_| covered > 0) {
                drift = place.at as isize - hint.saturating_sub(1) as isize;
            }
            // Lines appended at the end of the file do not determine the next hunk's position.
            if covered > 0 || hunk.hint.is_some() || !hunk.anchors.is_empty() {
                from = place.at + covered;
            }
            places.push(place);
        }
        Ok(places)
    }

    fn locate_one(
        &self,
        hunk: &PatchHunk,
        from: usize,
        drift: isize,
        twins: impl Fn() -> usize,
    ) -> Result<HunkLocation, HunkMiss> {
        let mut start = from;
        for head in &hunk.anchors {
            start = self.find_anchor(head, start).ok_or_else(|| HunkMiss::AnchorMissing(head.clone()))? + 1;
        }
        let old: Vec<&str> = hunk.old().collect();
        if old.is_empty() {
            let at = self.insertion(hunk, start, drift).max(from);
            return Ok(HunkLocation { at, lines: hunk.lines.len(), fit: MatchQuality::Exact });
        }
        // A header is often repeated as the first line of its hunk.
        let starts = [Some(start), (start > from).then(|| start - 1)];
        for start in starts.into_iter().flatten() {
            for dropped in 0..=blank_end(hunk) {
                let old = &old[..old.len() - dropped];
                if old.is_empty() {
                    continue;
                }
                if let Some((fit, found)) = self.fits(old, start, hunk.at_end) {
                    let at = disambiguate(&found, hunk, drift, &twins)?;
                    return Ok(HunkLocation { at, lines: hunk.lines.len() - dropped, fit });
                }
            }
        }
        let elsewhere = hunk.at_end && self.fits(&old, start, false).is_some();
        Err(if elsewhere { HunkMiss::NotAtEnd } else { HunkMiss::Nowhere })
    }

    /// Where lines go that have nothing old beside them.
    fn insertion(&self, hunk: &PatchHunk, start: usize, drift: isize) -> usize {
        let len = self.texts.len();
        match hunk.hint {
            Some(hint) => hint.saturating_add_signed(drift).min(len),
            None if !hunk.anchors.is_empty() => start,
            None => len,
        }
    }

    fn find_anchor(&self, head: &str, from: usize) -> Option<usize> {
        self.fits(&[head], from, false).and_then(|(_, found)| found.first().copied())
    }

    /// All places from a line on where these lines fit, for the best way in which they fit at all.
    fn fits(&self, old: &[&str], from: usize, at_end: bool) -> Option<(MatchQuality, Vec<usize>)> {
        let last = self.texts.len().checked_sub(old.len())?;
        let folds: Vec<u64> = old.iter().map(|line| line_hash(line)).collect();
        let (rare, positions) = folds
            .iter()
            .enumerate()
            .map(|(at, fold)| (at, self.index.get(fold).map_or(&[][..], Vec::as_slice)))
            .min_by_key(|(_, positions)| positions.len())?;
        let likely: Vec<usize> = positions
            .iter()
            .filter_map(|at| at.checked_sub(rare))
            .filter(|at| *at >= from && *at <= last && (!at_end || *at == last))
            .filter(|at| self.folds[*at..*at + old.len()] == folds)
            .collect();
        MatchQuality::ALL.into_iter().find_map(|fit| {
            let fits = |at: &usize| old.iter().zip(&self.texts[*at..]).all(|(a, b)| fit.lines_match(a, b));
            let found: Vec<usize> = likely.iter().copied().filter(fits).collect();
            (!found.is_empty()).then_some((fit, found))
        })
    }

    /// Where lines that fit nowhere would come nearest.
    pub(super) fn nearest(&self, hunk: &PatchHunk) -> Option<usize> {
        let old: Vec<&str> = hunk.old().collect();
        let mut votes: HashMap<usize, usize> = HashMap::new();
        for (at, line) in old.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            for position in self.index.get(&line_hash(line)).into_iter().flatten().take(1000) {
                if let Some(start) = position.checked_sub(at) {
                    *votes.entry(start).or_default() += 1;
                }
            }
        }
        if let Some((start, _)) = votes.into_iter().max_by_key(|(start, votes)| (*votes, usize::MAX - start)) {
            return Some(start);
        }
        let (at, line) = old.iter().enumerate().max_by_key(|(_, line)| line.trim().len())?;
        let wanted = byte_pairs(line);
        let alike = |text: &str| {
            let pairs = byte_pairs(text);
            let both = pairs.iter().filter(|pair| wanted.contains(pair)).count();
            both * 200 / (pairs.len() + wanted.len()).max(1)
        };
        let scored = self.texts.iter().take(50_000).enumerate().map(|(at, text)| (alike(text), at));
        let (score, best) = scored.max_by_key(|(score, at)| (*score, usize::MAX - at))?;
        (score >= 40).then(|| best.saturating_sub(at))
    }
}

/// Which of several places is meant.
fn disambiguate(
    found: &[usize],
    hunk: &PatchHunk,
    drift: isize,
    twins: &impl Fn() -> usize,
) -> Result<usize, HunkMiss> {
    let many = || HunkMiss::Ambiguous(found.iter().map(|at| at + 1).collect());
    match (found, hunk.hint) {
        ([only], _) => Ok(*only),
        (_, Some(hint)) => {
            let meant = hint.saturating_sub(1) as isize + drift;
            let away = |at: &usize| (*at as isize - meant).unsigned_abs();
            let nearest = found.iter().min_by_key(|at| away(at)).copied().ok_or(HunkMiss::Nowhere)?;
            let tied = found.iter().filter(|at| away(at) == away(&nearest)).count() > 1;
            if tied { Err(many()) } else { Ok(nearest) }
        }
        // An anchor selects the place, nothing is removed, or each place has its own hunk.
        ([first, ..], None) if !hunk.anchors.is_empty() || !hunk.removes() || found.len() <= twins() => Ok(*first),
        _ => Err(many()),
    }
}

/// How many lines at the end of a hunk are empty context.
fn blank_end(hunk: &PatchHunk) -> usize {
    hunk.lines.iter().rev().take_while(|line| line.side == LineSide::Context && line.text.is_empty()).count()
}

/// The hash of a hash is itself.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |mark, byte| mark.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, mark: u64) {
        self.0 = mark;
    }
}

fn line_hash(line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    fold_line(line).hash(&mut hasher);
    hasher.finish()
}

fn byte_pairs(text: &str) -> Vec<[u8; 2]> {
    text.trim().as_bytes().windows(2).take(400).map(|it| [it[0], it[1]]).collect()
}

/// A line without blanks around it, and with plain quotes, dashes and blanks.
fn fold_line(line: &str) -> Cow<'_, str> {
    let line = line.trim();
    if line.is_ascii() {
        line.into()
    } else {
        line.chars().map(to_ascii_punctuation).collect::<String>().trim().to_owned().into()
    }
}

/// The plain character for a typographic one.
pub(super) fn to_ascii_punctuation(it: char) -> char {
    match it {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}
