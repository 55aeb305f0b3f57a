//! Truncating text to a limit, and formatting sizes. The engine truncates every reply with these functions; authors of
//! tools can call them too.

use std::fmt;

/// What a [`Limit`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeUnit {
    /// Bytes of UTF-8.
    #[default]
    Bytes,
    /// Unicode scalar values.
    Chars,
}

impl SizeUnit {
    /// The size of a text.
    #[must_use]
    pub fn measure(self, text: &str) -> usize {
        match self {
            Self::Bytes => text.len(),
            Self::Chars => text.chars().count(),
        }
    }

    /// The offset after the first `size` units.
    fn end_of_first(self, text: &str, size: usize) -> usize {
        match self {
            _ if text.len() <= size => text.len(),
            Self::Bytes => text.floor_char_boundary(size),
            Self::Chars => text.char_indices().nth(size).map_or(text.len(), |(at, _)| at),
        }
    }

    /// The offset of the last `size` units.
    fn start_of_last(self, text: &str, size: usize) -> usize {
        match (self, size.checked_sub(1)) {
            _ if text.len() <= size => 0,
            (_, None) => text.len(),
            (Self::Bytes, _) => text.ceil_char_boundary(text.len() - size),
            (Self::Chars, Some(last)) => text.char_indices().nth_back(last).map_or(0, |(at, _)| at),
        }
    }
}

impl fmt::Display for SizeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Chars => "characters",
        })
    }
}

/// A limit for text: a size and a number of lines, whichever is reached first.
///
/// Truncation keeps whole lines if they fill at least half of the size. Otherwise it ends inside a line, between two
/// characters.
///
/// ```
/// use helve_contract::Limit;
///
/// let limit = Limit::bytes(10);
/// assert_eq!(limit.head("one\ntwo\nthree\n").text, "one\ntwo\n");
/// assert_eq!(limit.head("ab\na line that is too long").text, "ab\na line ");
/// assert_eq!(Limit::chars(3).tail("üüüüü").text, "üüü");
/// assert_eq!(limit.lines(1).head("one\ntwo\n").text, "one\n");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The maximum size, in `unit`.
    pub size: usize,
    /// What `size` counts.
    pub unit: SizeUnit,
    /// The maximum number of lines.
    pub lines: usize,
}

impl Limit {
    /// At most `size` bytes.
    #[must_use]
    pub const fn bytes(size: usize) -> Self {
        Self { size, unit: SizeUnit::Bytes, lines: usize::MAX }
    }

    /// At most `size` characters.
    #[must_use]
    pub const fn chars(size: usize) -> Self {
        Self { size, unit: SizeUnit::Chars, lines: usize::MAX }
    }

    /// The same limit with a maximum number of lines.
    #[must_use]
    pub const fn lines(self, lines: usize) -> Self {
        Self { lines, ..self }
    }

    /// The smaller of two limits. For different units, the result admits nothing that either limit refuses.
    ///
    /// ```
    /// use helve_contract::Limit;
    ///
    /// let most = Limit::chars(1000);
    /// assert_eq!(Limit::chars(5000).at_most(most), most);
    /// assert_eq!(Limit::bytes(400).at_most(most), Limit::bytes(400));
    /// assert_eq!(Limit::bytes(1 << 20).at_most(most), most);
    /// ```
    #[must_use]
    pub fn at_most(self, most: Self) -> Self {
        let lines = self.lines.min(most.lines);
        if self.unit == most.unit {
            return Self { size: self.size.min(most.size), lines, ..self };
        }
        let (bytes, chars) = if self.unit == SizeUnit::Bytes { (self.size, most.size) } else { (most.size, self.size) };
        // A character has one to four bytes.
        if bytes >= chars.saturating_mul(4) {
            return Self::chars(chars).lines(lines);
        }
        Self::bytes(bytes.min(chars)).lines(lines)
    }

    /// Whether the text is within the limit.
    #[must_use]
    pub fn admits(self, text: &str) -> bool {
        let few_bytes = text.len() <= self.size || self.unit.measure(text) <= self.size;
        few_bytes && (text.len() <= self.lines || count_lines(text) <= self.lines)
    }

    /// The beginning of a text.
    #[must_use]
    pub fn head(self, text: &str) -> Truncated<'_> {
        let end = match self.lines {
            0 => 0,
            usize::MAX => text.len(),
            lines => text.match_indices('\n').nth(lines - 1).map_or(text.len(), |(at, _)| at + 1),
        };
        let by_lines = &text[..end];
        let end = self.unit.end_of_first(by_lines, self.size);
        if end == by_lines.len() {
            return Truncated::new(text, by_lines, TruncatedBy::Lines);
        }
        let whole_lines = &by_lines[..by_lines[..end].rfind('\n').map_or(0, |at| at + 1)];
        let part = if self.is_half_filled(whole_lines) { whole_lines } else { &by_lines[..end] };
        Truncated::new(text, part, TruncatedBy::Size)
    }

    /// The end of a text.
    #[must_use]
    pub fn tail(self, text: &str) -> Truncated<'_> {
        let body = text.strip_suffix('\n').unwrap_or(text);
        let start = match self.lines {
            0 => text.len(),
            usize::MAX => 0,
            lines => body.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1),
        };
        let by_lines = &text[start..];
        let start = self.unit.start_of_last(by_lines, self.size);
        if start == 0 {
            return Truncated::new(text, by_lines, TruncatedBy::Lines);
        }
        let part = &by_lines[start..];
        let starts_a_line = by_lines.as_bytes()[start - 1] == b'\n';
        let whole_lines = if starts_a_line { part } else { part.find('\n').map_or("", |at| &part[at + 1..]) };
        let part = if self.is_half_filled(whole_lines) { whole_lines } else { part };
        Truncated::new(text, part, TruncatedBy::Size)
    }

    fn is_half_filled(self, part: &str) -> bool {
        !part.is_empty() && self.unit.measure(part) >= self.size.div_ceil(2)
    }
}

/// A part of a text, and the size of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated<'a> {
    /// The part that is kept.
    pub text: &'a str,
    /// Bytes of the whole text.
    pub total_bytes: usize,
    /// Lines of the whole text.
    pub total_lines: usize,
    /// The limit that truncated the text; `None` if the text is complete.
    pub by: Option<TruncatedBy>,
}

/// The part of a [`Limit`] that truncated a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedBy {
    /// The number of lines.
    Lines,
    /// The size.
    Size,
}

impl<'a> Truncated<'a> {
    fn new(whole: &str, part: &'a str, by: TruncatedBy) -> Self {
        let by = (part.len() < whole.len()).then_some(by);
        Self { text: part, total_bytes: whole.len(), total_lines: count_lines(whole), by }
    }
}

/// The beginning of a text, for files, listings and matches.
///
/// ```
/// use helve_contract::truncate_head;
///
/// let page = truncate_head("one\ntwo\nthree\n", 51_200, 2);
/// assert_eq!((page.text, page.total_lines, page.total_bytes), ("one\ntwo\n", 3, 14));
/// ```
#[must_use]
pub fn truncate_head(text: &str, max_bytes: usize, max_lines: usize) -> Truncated<'_> {
    Limit::bytes(max_bytes).lines(max_lines).head(text)
}

/// The end of a text, for logs and the output of commands.
///
/// ```
/// use helve_contract::truncate_tail;
///
/// assert_eq!(truncate_tail("one\ntwo\nthree\n", 51_200, 2).text, "two\nthree\n");
/// ```
#[must_use]
pub fn truncate_tail(text: &str, max_bytes: usize, max_lines: usize) -> Truncated<'_> {
    Limit::bytes(max_bytes).lines(max_lines).tail(text)
}

/// The number of lines of a text. A newline at the end starts no further line.
#[must_use]
pub fn count_lines(text: &str) -> usize {
    text.bytes().filter(|it| *it == b'\n').count() + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// A size for people: whole units without a fraction, other sizes with one digit.
///
/// ```
/// use helve_contract::format_size;
///
/// assert_eq!([66, 51_200, 1_572_864].map(format_size), ["66B", "50KB", "1.5MB"]);
/// ```
#[must_use]
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut unit = 1024_u64;
    let mut name = UNITS[0];
    for next in &UNITS[1..] {
        // 1048575 bytes are 1MB and not 1024KB.
        if tenths(bytes, unit) < 10_240 {
            break;
        }
        (unit, name) = (unit * 1024, next);
    }
    let tenths = tenths(bytes, unit);
    match tenths % 10 {
        0 => format!("{}{name}", tenths / 10),
        fraction => format!("{}.{fraction}{name}", tenths / 10),
    }
}

/// The number of tenths of a unit, rounded.
fn tenths(bytes: u64, unit: u64) -> u64 {
    let tenths = (u128::from(bytes) * 10 + u128::from(unit) / 2) / u128::from(unit);
    u64::try_from(tenths).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keeps_whole_lines_where_they_fill_half() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(Limit::bytes(9).head(text).text, "one\ntwo\n");
        assert_eq!(Limit::bytes(11).tail(text).text, "two\nthree\n");
        assert_eq!(Limit::bytes(10).tail(text).text, "two\nthree\n");
        assert_eq!(Limit::bytes(8).tail(text).text, "three\n");
    }

    #[test]
    fn cuts_inside_a_line_that_would_leave_too_little() {
        let text = format!("/* licence */\n{}", "x".repeat(100_000));
        assert_eq!(Limit::bytes(16_384).head(&text).text.len(), 16_384);
        let text = format!("{}\nthe end\n", "x".repeat(100_000));
        assert_eq!(Limit::bytes(16_384).tail(&text).text.len(), 16_384);
    }

    #[test]
    fn counts_characters_or_bytes() {
        let text = "ü".repeat(100_001);
        assert!(Limit::chars(100_001).admits(&text) && !Limit::chars(100_000).admits(&text));
        assert_eq!(Limit::chars(100_000).head(&text).text.chars().count(), 100_000);
        assert_eq!(Limit::chars(100_000).tail(&text).text.chars().count(), 100_000);
        assert_eq!(Limit::bytes(99_999).head(&text).text.len(), 99_998);
    }

    #[test]
    fn says_which_limit_was_reached() {
        let by = |limit: Limit| limit.head("a\nb\nc\n").by;
        assert_eq!(by(Limit::bytes(6)), None);
        assert_eq!(by(Limit::bytes(5)), Some(TruncatedBy::Size));
        assert_eq!(by(Limit::bytes(6).lines(2)), Some(TruncatedBy::Lines));
        assert_eq!(by(Limit::bytes(6).lines(0)), Some(TruncatedBy::Lines));
    }

    #[test]
    fn formats_sizes() {
        let sizes = [0, 1023, 1024, 1075, 1536, 10_000, 1_048_575, 1_048_576, 5 << 30, u64::MAX].map(format_size);
        assert_eq!(sizes, ["0B", "1023B", "1KB", "1KB", "1.5KB", "9.8KB", "1MB", "1MB", "5GB", "16777216TB"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_cut_is_bounded_and_uses_at_least_half(
            bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n'), 3 => 0x20_u8..0x7f], 0..400),
            wide in "[a-zü雪👩\n]{0,200}",
            size in 0_usize..300,
            lines in prop_oneof![Just(usize::MAX), 0_usize..40],
            chars in any::<bool>(),
            from_head in any::<bool>(),
        ) {
            for text in [&String::from_utf8_lossy(&bytes).into_owned(), &wide] {
                let limit = if chars { Limit::chars(size) } else { Limit::bytes(size) }.lines(lines);
                let cut = if from_head { limit.head(text) } else { limit.tail(text) };
                let used = limit.unit.measure(cut.text);
                prop_assert!(used <= size && count_lines(cut.text) <= lines);
                prop_assert!(limit.admits(cut.text));
                let is_end = if from_head { text.starts_with(cut.text) } else { text.ends_with(cut.text) };
                prop_assert!(is_end);
                prop_assert_eq!(cut.by.is_none(), limit.admits(text));
                match cut.by {
                    None => prop_assert_eq!(cut.text, text.as_str()),
                    Some(TruncatedBy::Lines) => prop_assert_eq!(count_lines(cut.text), lines),
                    // The last character may exceed the limit by up to three bytes.
                    Some(TruncatedBy::Size) => prop_assert!(used >= (size / 2).min(size.saturating_sub(3))),
                }
            }
        }
    }
}
