//! Line ends: a normalised text with a mapping to the original.

use std::{borrow::Cow, ops::Range};

use memchr::memmem;

/// A text with `\n` at every line's end and each character folded, and the way back to the text it was made from.
pub(super) struct FoldedText<'a> {
    pub(super) text: Cow<'a, str>,
    /// Places after which the two run alike: offset here, offset in the original.
    marks: Vec<(usize, usize)>,
    /// Lines end with `\r` alone.
    old_style: bool,
}

impl<'a> FoldedText<'a> {
    /// With nothing folded but line ends.
    pub(super) fn new(text: &'a str) -> Self {
        Self::with(text, |it| it, |_| true)
    }

    /// With each character folded; `same` tells where that changes nothing in a text.
    pub(super) fn with(text: &'a str, fold: fn(char) -> char, same: fn(&str) -> bool) -> Self {
        let returns = memchr::memchr(b'\r', text.as_bytes()).is_some();
        if !returns && same(text) {
            return Self { text: text.into(), marks: Vec::new(), old_style: false };
        }
        let old_style = returns && memchr::memchr(b'\n', text.as_bytes()).is_none();
        let mut plain = String::with_capacity(text.len());
        let mut marks = Vec::new();
        let mut chars = text.char_indices().peekable();
        while let Some((at, it)) = chars.next() {
            if it == '\r' && chars.next_if(|(_, next)| *next == '\n').is_some() {
                plain.push('\n');
                marks.push((plain.len(), at + 2));
            } else if it == '\r' && old_style {
                plain.push('\n');
            } else {
                let other = fold(it);
                plain.push(other);
                if other.len_utf8() != it.len_utf8() {
                    marks.push((plain.len(), at + it.len_utf8()));
                }
            }
        }
        Self { text: plain.into(), marks, old_style }
    }

    /// Where a pattern is in the original, from left to right, none over another.
    pub(super) fn find<'b>(&'b self, pattern: &'b str) -> impl Iterator<Item = Range<usize>> + 'b {
        memmem::find_iter(self.text.as_bytes(), pattern.as_bytes())
            .map(move |at| self.origin(at)..self.origin(at + pattern.len()))
    }

    /// Whether a pattern is found a second time where the first find overlaps it.
    pub(super) fn overlapping(&self, pattern: &str) -> bool {
        let bytes = self.text.as_bytes();
        let Some(first) = memmem::find(bytes, pattern.as_bytes()) else { return false };
        let end = (first + 2 * pattern.len()).min(bytes.len());
        memmem::find(&bytes[first + 1..end], pattern.as_bytes()).is_some()
    }

    fn origin(&self, at: usize) -> usize {
        match self.marks.partition_point(|(here, _)| *here <= at) {
            0 => at,
            after => self.marks[after - 1].1 + at - self.marks[after - 1].0,
        }
    }
}

/// What to look for in a folded text.
pub(super) fn fold_pattern(pattern: &str, within: &FoldedText) -> String {
    let plain = pattern.replace("\r\n", "\n");
    if within.old_style { plain.replace('\r', "\n") } else { plain }
}

/// How most lines of a text end; `None` when it has no line ends.
pub(super) fn dominant_line_end(text: &str) -> Option<&'static str> {
    if memchr::memchr(b'\r', text.as_bytes()).is_none() {
        return memchr::memchr(b'\n', text.as_bytes()).map(|_| "\n");
    }
    most_common(breaks(text))
}

fn most_common(breaks: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let mut counts = [("\n", 0), ("\r\n", 0), ("\r", 0)];
    for it in breaks {
        counts.iter_mut().filter(|(end, _)| *end == it).for_each(|(_, count)| *count += 1);
    }
    // The first of equals: plain newlines before the others. Lone returns count only where there is nothing else.
    let (end, count) = if counts[1].1 > counts[0].1 { counts[1] } else { counts[0] };
    if count > 0 { Some(end) } else { (counts[2].1 > 0).then_some("\r") }
}

/// The line ends of a text, in order.
fn breaks(text: &str) -> impl Iterator<Item = &'static str> {
    let bytes = text.as_bytes();
    memchr::memchr2_iter(b'\r', b'\n', bytes).filter_map(|at| match (bytes[at], bytes.get(at + 1)) {
        (b'\r', Some(b'\n')) => None,
        (b'\r', _) => Some("\r"),
        _ if at > 0 && bytes[at - 1] == b'\r' => Some("\r\n"),
        _ => Some("\n"),
    })
}

/// The new text with the line ends of what it replaces; where that has none, with the usual ones of the file.
pub(super) fn adapt_line_ends(new: &str, matched: &str, usual: Option<&'static str>) -> String {
    let here: Vec<_> = breaks(matched).filter(|it| *it != "\r" || usual == Some("\r")).collect();
    let Some(end) = most_common(here.iter().copied()).or(usual) else { return new.to_owned() };
    let plain = new.replace("\r\n", "\n");
    let lines: Vec<_> = plain.split('\n').collect();
    // Line for line where there are equally many, so that a file with mixed ends keeps each where it is.
    let aligned = here.len() + 1 == lines.len();
    let mut text = String::with_capacity(new.len() + lines.len());
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text += if aligned { here[at - 1] } else { end };
        }
        text += line;
    }
    text
}

/// The lines in which these places are, counted from 1. The places are in order.
pub(super) fn line_numbers(text: &str, places: impl Iterator<Item = usize>) -> Vec<usize> {
    let end = if dominant_line_end(text) == Some("\r") { b'\r' } else { b'\n' };
    let (mut line, mut from) = (1, 0);
    places
        .map(|at| {
            line += memchr::memchr_iter(end, &text.as_bytes()[from..at.max(from)]).count();
            from = at.max(from);
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_way_back() {
        let text = "a\r\n“b”\nc\r\nd";
        let folded = FoldedText::with(text, |it| if matches!(it, '“' | '”') { '"' } else { it }, str::is_ascii);
        assert_eq!(folded.text, "a\n\"b\"\nc\nd");
        let found: Vec<_> = folded.find("\n\"b\"\nc\n").map(|range| &text[range]).collect();
        assert_eq!(found, ["\r\n“b”\nc\r\n"]);
        assert_eq!(folded.find("b\"").map(|range| &text[range]).collect::<Vec<_>>(), ["b”"]);
    }

    #[test]
    fn new_lines_end_as_the_old_ones_did() {
        assert_eq!(adapt_line_ends("x\ny", "a\r\nb", Some("\n")), "x\r\ny");
        assert_eq!(adapt_line_ends("x\ny\n", "a\r\nb\n", None), "x\r\ny\n");
        assert_eq!(adapt_line_ends("x\ny\nz", "a", Some("\r\n")), "x\r\ny\r\nz");
        assert_eq!(adapt_line_ends("x\r\ny", "a", Some("\n")), "x\ny");
        assert_eq!(adapt_line_ends("x\r\ny", "a", None), "x\r\ny");
    }
}
