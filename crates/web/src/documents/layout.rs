//! Converts positioned characters on a page to lines of text.
//!
//! Producers nearly always write a page in reading order, including columns, so that order is kept. The code detects
//! spaces, line ends and paragraphs. Only a page written from the bottom up is sorted.

use std::collections::HashSet;

/// A gap this wide is a space, in ems. Kerning stays below, the tightest of set spaces above.
const SPACE_GAP_EM: f64 = 0.16;
/// A gap this wide stands between two columns of a table.
const COLUMN_GAP_EM: f64 = 2.0;
/// A step this far across the line starts another, in ems; indices and exponents stay below.
const LINE_STEP_EM: f64 = 0.6;
/// A step this far across the line leaves a blank one.
const PARAGRAPH_STEP_EM: f64 = 1.9;
/// Text of one page; more is not for reading.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Where a character stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlyphPosition {
    /// Its origin, with y upwards.
    pub at: (f64, f64),
    /// The direction of writing, of length 1.
    pub direction: (f64, f64),
    /// How far it goes in that direction.
    pub advance: f64,
    /// The height of an em.
    pub size: f64,
}

/// The lines of a page as they are being written.
#[derive(Default)]
pub(super) struct PageLayout {
    lines: Vec<LayoutLine>,
    pen: Option<PenPosition>,
    seen: HashSet<(char, i64, i64)>,
    bytes: usize,
}

struct LayoutLine {
    text: String,
    top: f64,
    left: f64,
    size: f64,
    level: bool,
}

/// Where the last character ended.
struct PenPosition {
    end: (f64, f64),
    way: (f64, f64),
    size: f64,
}

impl PageLayout {
    /// Writes a character, or the several that one glyph stands for.
    pub(super) fn add_glyph(&mut self, mark: GlyphPosition, text: &str) {
        if self.bytes > MAX_PAGE_BYTES || !self.is_new(mark, text) {
            return;
        }
        let clean: String = text.chars().flat_map(normalize_char).collect();
        if clean.trim().is_empty() {
            // A drawn space counts as a gap; the pen stays, so that gaps add up.
            if !clean.is_empty() && self.pen.is_some() {
                self.space(" ");
            }
            return;
        }

        let step = self.pen.as_ref().map(|pen| pen.step(mark));
        match step {
            Some(GlyphStep::On) => {}
            Some(GlyphStep::Space) => self.space(" "),
            Some(GlyphStep::Column) => self.space("  "),
            Some(GlyphStep::Line) | None => self.line(mark),
        }
        self.bytes += clean.len();
        if let Some(line) = self.lines.last_mut() {
            line.text.push_str(&clean);
        }
        let end = (mark.at.0 + mark.direction.0 * mark.advance, mark.at.1 + mark.direction.1 * mark.advance);
        self.pen = Some(PenPosition { end, way: mark.direction, size: mark.size });
    }

    /// The text of the page.
    pub(super) fn text(mut self) -> String {
        if self.is_upside_down() {
            self.lines.sort_by(|a, b| b.top.total_cmp(&a.top).then(a.left.total_cmp(&b.left)));
        }
        let mut text = String::new();
        let mut above: Option<&LayoutLine> = None;
        for line in &self.lines {
            let words = line.text.trim_end();
            if words.is_empty() {
                continue;
            }
            if let Some(above) = above {
                let apart = (above.top - line.top).abs() > above.size.max(line.size) * PARAGRAPH_STEP_EM;
                text.push_str(if apart { "\n\n" } else { "\n" });
            }
            text.push_str(words);
            above = Some(line);
        }
        if self.bytes > MAX_PAGE_BYTES {
            text.push_str("\n[the rest of this page is left out]");
        }
        text
    }

    /// Whether a character is not a repetition: bold is sometimes faked by drawing it twice.
    fn is_new(&mut self, mark: GlyphPosition, text: &str) -> bool {
        let Some(first) = text.chars().next() else { return false };
        let grid = mark.size * 0.1;
        self.seen.insert((first, (mark.at.0 / grid).round() as i64, (mark.at.1 / grid).round() as i64))
    }

    fn space(&mut self, gap: &str) {
        if let Some(line) = self.lines.last_mut()
            && !line.text.ends_with(' ')
        {
            line.text.push_str(gap);
        }
    }

    fn line(&mut self, mark: GlyphPosition) {
        self.lines.push(LayoutLine {
            text: String::new(),
            top: mark.at.1,
            left: mark.at.0,
            size: mark.size,
            level: mark.direction.0 > 0.99,
        });
    }

    fn is_upside_down(&self) -> bool {
        let level = self.lines.iter().all(|line| line.level);
        let rising = self.lines.windows(2).filter(|pair| pair[1].top > pair[0].top).count();
        level && self.lines.len() > 3 && rising * 3 > self.lines.len() * 2
    }
}

enum GlyphStep {
    On,
    Space,
    Column,
    Line,
}

impl PenPosition {
    /// How a character follows the last one.
    fn step(&self, mark: GlyphPosition) -> GlyphStep {
        let em = self.size.max(mark.size);
        let (x, y) = (mark.at.0 - self.end.0, mark.at.1 - self.end.1);
        let along = (x * self.way.0 + y * self.way.1) / em;
        let across = (x * self.way.1 - y * self.way.0).abs() / em;
        let turned = self.way.0 * mark.direction.0 + self.way.1 * mark.direction.1 < 0.9;
        if turned || across > LINE_STEP_EM || along < -1.0 {
            GlyphStep::Line
        } else if along > COLUMN_GAP_EM {
            GlyphStep::Column
        } else if along > SPACE_GAP_EM * mark.size.min(self.size) / em {
            GlyphStep::Space
        } else {
            GlyphStep::On
        }
    }
}

/// A character as people type it: ligatures in letters, every blank a space, nothing that cannot be seen.
fn normalize_char(it: char) -> impl Iterator<Item = char> {
    let text = match it {
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        '\u{ad}' => "-",
        it if it.is_whitespace() => " ",
        it if it.is_control() || helve_contract::invisible(it).is_some() => "",
        it => return CharIter::One(std::iter::once(it)),
    };
    CharIter::Some(text.chars())
}

enum CharIter {
    One(std::iter::Once<char>),
    Some(std::str::Chars<'static>),
}

impl Iterator for CharIter {
    type Item = char;
    fn next(&mut self) -> Option<char> {
        match self {
            Self::One(it) => it.next(),
            Self::Some(it) => it.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes words at places; a character is half an em wide, an em is 10.
    fn sheet(words: &[(f64, f64, &str)]) -> String {
        let mut sheet = PageLayout::default();
        for (x, y, word) in words {
            for (n, it) in word.chars().enumerate() {
                let at = (x + n as f64 * 5.0, *y);
                sheet.add_glyph(
                    GlyphPosition { at, direction: (1.0, 0.0), advance: 5.0, size: 10.0 },
                    it.encode_utf8(&mut [0; 4]),
                );
            }
        }
        sheet.text()
    }

    #[test]
    fn gaps_are_spaces_and_steps_are_lines() {
        let words =
            [(0.0, 90.0, "He"), (10.5, 90.0, "llo"), (28.0, 90.0, "you"), (0.0, 78.0, "and"), (0.0, 40.0, "me")];
        assert_eq!(sheet(&words), "Hello you\nand\n\nme");
    }

    #[test]
    fn an_exponent_stays_on_its_line_and_a_column_apart() {
        assert_eq!(sheet(&[(0.0, 90.0, "x"), (5.0, 93.0, "2"), (100.0, 90.0, "y")]), "x2  y");
    }

    #[test]
    fn a_page_written_upwards_is_turned() {
        let words = [(0.0, 10.0, "four"), (0.0, 20.0, "three"), (0.0, 30.0, "two"), (0.0, 40.0, "one")];
        assert_eq!(sheet(&words), "one\ntwo\nthree\nfour");
    }

    #[test]
    fn ligatures_come_apart_and_double_strokes_count_once() {
        assert_eq!(sheet(&[(0.0, 9.0, "\u{fb01}ne"), (0.0, 9.0, "\u{fb01}ne"), (20.0, 9.0, "ab\u{200b}")]), "fine ab");
    }
}
