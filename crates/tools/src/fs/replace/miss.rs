//! Explains a missing text: the most similar lines and their differences.

use std::time::Duration;

use similar::TextDiff;

use super::{
    ends::{self, FoldedText},
    ladder::to_ascii_punctuation,
};

/// The most lines and bytes of the file that are shown.
const MAX_SHOWN: (usize, usize) = (60, 4000);
/// How many lines of the text are looked for, and how many candidates are compared closely.
const MAX_ANCHORS: usize = 8;
const CANDIDATES: usize = 12;

/// What to say about a text that is not there.
pub(super) fn explain(text: &str, old: &str, new: &str) -> String {
    let folded = FoldedText::new(text);
    let file = &*folded.text;
    let old = &*ends::fold_pattern(old, &folded);
    let new = &*ends::fold_pattern(new, &folded);
    if text.is_empty() {
        return "the file is empty".to_owned();
    }
    let mut parts = vec!["the text to replace was not found".to_owned()];
    parts.extend(known_mistake(file, old));
    let done = new.trim().len() >= 3 && file.contains(new);
    if done {
        let line = line_of(file, file.find(new).unwrap_or(0));
        parts.push(format!("the new text is there already, at line {line}: perhaps the change was made before"));
    }
    match nearest(file, old).or_else(|| whitespace_mismatch(file, old)).or_else(|| longest_prefix_match(file, old)) {
        Some(near) => parts.push(near),
        None if done || parts.len() > 1 => {}
        None => parts.push("nothing in the file looks like it; read the file again".to_owned()),
    }
    parts.join("; ")
}

/// A known mistake that can be undone: escapes, line numbers, surrounding whitespace.
fn known_mistake(file: &str, old: &str) -> Option<String> {
    let there = |text: &str| !text.trim().is_empty() && file.contains(text);
    let unescaped = old.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\'", "'");
    if unescaped != old && there(&unescaped) {
        return Some(
            "it has escapes such as `\\n` or `\\\"` where the file has the real characters; send those".into(),
        );
    }
    let unescaped = unescaped.replace("\\\\", "\\");
    if unescaped != old && there(&unescaped) {
        return Some("its backslashes are doubled; the file has single ones".into());
    }
    let escaped = old.replace('\n', "\\n").replace('\t', "\\t");
    if escaped != old && there(&escaped) {
        return Some("it has real line breaks or tabs where the file has the two characters `\\n` or `\\t`".into());
    }
    let bare: Vec<_> = old.split('\n').map(strip_line_number).collect();
    if bare.iter().zip(old.split('\n')).any(|(bare, line)| bare.len() < line.len()) && there(&bare.join("\n")) {
        return Some("it has the line numbers of a listing, which are not in the file; leave them out".into());
    }
    if there(old.trim_end_matches('\n')) {
        return Some("it is there without the line break at its end; leave that out".into());
    }
    None
}

/// A line without the number that a listing puts before it.
fn strip_line_number(line: &str) -> &str {
    let rest = line.trim_start_matches(' ').trim_start_matches(|it: char| it.is_ascii_digit());
    if rest.len() < line.len() { rest.strip_prefix('\t').or(rest.strip_prefix('→')).unwrap_or(line) } else { line }
}

/// The lines that look most like the text, ready to be sent back.
fn nearest(file: &str, old: &str) -> Option<String> {
    let lines: Vec<_> = file.split('\n').collect();
    let wanted: Vec<_> = old.trim_end_matches('\n').split('\n').collect();
    let (start, count) = window(&lines, &wanted)?;
    let near = &lines[start..start + count];
    let shown = near.join("\n");
    if shown.len() > MAX_SHOWN.1 || count > MAX_SHOWN.0 {
        let differ = differing(near, &wanted, start);
        return Some(format!("lines {}-{} look most like it, and differ in {differ}", start + 1, start + count));
    }
    let place =
        if count == 1 { format!("line {}", start + 1) } else { format!("lines {}-{}", start + 1, start + count) };
    let differ = difference(&shown, old.trim_end_matches('\n')).unwrap_or_else(|| differing(near, &wanted, start));
    Some(format!(
        "the nearest is {place}, different in {differ}. This is what the file has, to be sent as it stands:\n{shown}\n"
    ))
}

/// Which lines are not alike.
fn differing(near: &[&str], wanted: &[&str], start: usize) -> String {
    let lines: Vec<_> = (0..near.len().max(wanted.len())).filter(|at| near.get(*at) != wanted.get(*at)).collect();
    let numbers: Vec<_> = lines.iter().take(5).map(|at| (start + at + 1).to_string()).collect();
    match (near.len() == wanted.len(), lines.len()) {
        (false, _) => format!("the number of lines ({} here, {} in the text)", near.len(), wanted.len()),
        (true, 1) => format!("line {}", numbers.join("")),
        (true, count) if count > 5 => format!("{count} lines, from line {} on", numbers[0]),
        (true, _) => format!("lines {}", numbers.join(", ")),
    }
}

/// What makes two texts different, where it is one thing.
fn difference(near: &str, old: &str) -> Option<String> {
    let by = |change: fn(&str) -> String| near != old && change(near) == change(old);
    let each = |text: &str, change: fn(&str) -> &str| text.split('\n').map(change).collect::<Vec<_>>().join("\n");
    let tabs = |text: &str| text.split('\n').any(|line| line.starts_with('\t'));
    if each(near, str::trim_end) == each(old, str::trim_end) {
        return Some("blanks at the ends of lines".into());
    }
    if each(near, str::trim) == each(old, str::trim) {
        return Some(match (tabs(near), tabs(old)) {
            (true, false) => "indentation (tabs in the file, blanks in the text)".into(),
            (false, true) => "indentation (blanks in the file, tabs in the text)".into(),
            _ => "indentation".into(),
        });
    }
    if by(|it| it.split_whitespace().collect()) {
        return Some("blanks and line breaks".into());
    }
    if by(|it| it.chars().map(to_ascii_punctuation).collect()) {
        return Some("the style of quotes, dashes or blanks".into());
    }
    if by(str::to_lowercase) {
        return Some("upper and lower case".into());
    }
    by(|it| it.to_lowercase().chars().map(to_ascii_punctuation).filter(|it| !it.is_whitespace()).collect())
        .then(|| "blanks, case, quotes or dashes".into())
}

/// The window of lines that looks most like the wanted ones: its first line (counted from 0) and its length.
fn window(lines: &[&str], wanted: &[&str]) -> Option<(usize, usize)> {
    let sketches: Vec<_> = lines.iter().map(|line| BigramSet::of(line)).collect();
    let mut anchors: Vec<_> = wanted.iter().map(|line| BigramSet::of(line)).enumerate().collect();
    anchors.sort_by_key(|(_, sketch)| std::cmp::Reverse(sketch.size()));
    anchors.truncate(MAX_ANCHORS);
    anchors.retain(|(_, sketch)| sketch.size() > 0);
    let mut votes = vec![0.0_f32; lines.len()];
    for (offset, anchor) in &anchors {
        for (at, sketch) in sketches.iter().enumerate().skip(*offset) {
            let likeness = anchor.similarity(sketch);
            if likeness > 0.4 {
                votes[at - offset] += likeness;
            }
        }
    }
    let mut best: Vec<_> = votes.iter().copied().enumerate().filter(|(_, votes)| *votes > 0.0).collect();
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    let old = wanted.join("\n");
    let ratio = |start: usize, count: usize| {
        let end = (start + count).min(lines.len());
        (similarity(&lines[start..end].join("\n"), &old), start, end - start)
    };
    let nearest = best
        .iter()
        .take(CANDIDATES)
        .map(|(start, _)| ratio(*start, wanted.len()))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    // A line more or less may fit better.
    let others = [wanted.len().saturating_sub(1).max(1), wanted.len() + 1].map(|count| ratio(nearest.1, count));
    let nearest = others.into_iter().fold(nearest, |best, it| if it.0 > best.0 + 0.01 { it } else { best });
    (nearest.0 >= 0.6).then_some((nearest.1, nearest.2))
}

/// How alike two texts are, from 0 to 1. Only the beginning of long ones is looked at.
fn similarity(a: &str, b: &str) -> f32 {
    let short = |text: &str| text.chars().take(3000).collect::<String>();
    let (a, b) = (short(a), short(b));
    TextDiff::configure().timeout(Duration::from_millis(60)).diff_chars(&a, &b).ratio()
}

/// Which pairs of letters a line has, blanks and case aside: cheap to compare.
#[derive(Clone, Copy)]
struct BigramSet([u64; 4]);

impl BigramSet {
    fn of(line: &str) -> Self {
        let mut bits = [0; 4];
        let mut last = 0_usize;
        for byte in line.bytes().filter(|it| !it.is_ascii_whitespace()).take(2000) {
            let byte = usize::from(byte.to_ascii_lowercase());
            let hash = (last * 37 + byte) & 255;
            bits[hash >> 6] |= 1_u64 << (hash & 63);
            last = byte;
        }
        Self(bits)
    }

    fn size(&self) -> u32 {
        self.0.iter().map(|it| it.count_ones()).sum()
    }

    fn similarity(&self, other: &Self) -> f32 {
        let both: u32 = self.0.iter().zip(other.0).map(|(a, b)| (a & b).count_ones()).sum();
        let all = self.size() + other.size();
        if all == 0 { 0.0 } else { 2.0 * both as f32 / all as f32 }
    }
}

/// Where a part of a line is that has other blanks around it.
fn whitespace_mismatch(file: &str, old: &str) -> Option<String> {
    let bare = old.trim();
    let at = file.find(bare).filter(|_| bare.len() >= 3 && bare != old)?;
    Some(format!("it is there with other blanks around it, at line {}", line_of(file, at)))
}

/// How far the text is there, where a good part of it is: for files whose lines are too long to be compared.
fn longest_prefix_match(file: &str, old: &str) -> Option<String> {
    let ends: Vec<_> = old.char_indices().map(|(at, it)| at + it.len_utf8()).take(10_000).collect();
    let finder = |count: usize| memchr::memmem::find(file.as_bytes(), &old.as_bytes()[..ends[count - 1]]);
    let (mut least, mut most) = (0, ends.len());
    while least < most {
        let middle = (least + most).div_ceil(2);
        if finder(middle).is_some() { least = middle } else { most = middle - 1 }
    }
    if least < 12 && (least < 4 || least * 2 < ends.len()) {
        return None;
    }
    let at = finder(least)?;
    let end = at + ends[least - 1];
    let after: String = file[end..].chars().take(120).collect();
    Some(format!(
        "its first {least} characters are there, at line {}, but then the file goes on with:\n{after}\n",
        line_of(file, at)
    ))
}

fn line_of(text: &str, at: usize) -> usize {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() + 1
}
