//! Messages from a stream: one a line, none too long.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line that is taken.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 20;
/// Room that is kept between lines.
const RETAINED_CAPACITY: usize = 1 << 20;

/// The lines of a stream.
pub(crate) struct LineReader<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
}

/// What comes next on a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine<'a> {
    /// A message.
    Text(&'a [u8]),
    /// Something longer than is taken; it was passed over.
    TooLong,
    /// Nothing any more.
    End,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), line: Vec::new(), longest: MAX_LINE_BYTES }
    }

    /// Whether nothing of what came is left.
    pub(crate) fn is_buffer_empty(&self) -> bool {
        self.from.buffer().is_empty()
    }

    /// Whether the next line has come already, whole.
    pub(crate) fn has_buffered_line(&self) -> bool {
        let mut lines = self.from.buffer().split_inclusive(|it| *it == b'\n');
        lines.any(|line| line.ends_with(b"\n") && !line.trim_ascii().is_empty())
    }

    /// The next line that is not blank. A last one without an end counts.
    pub(crate) fn next(&mut self) -> io::Result<InputLine<'_>> {
        loop {
            self.line.clear();
            self.line.shrink_to(RETAINED_CAPACITY);
            let most = self.longest as u64 + 1;
            if self.from.by_ref().take(most).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(InputLine::End);
            }
            if self.line.last() != Some(&b'\n') && self.line.len() > self.longest {
                self.from.skip_until(b'\n')?;
                return Ok(InputLine::TooLong);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(InputLine::Text(self.line.trim_ascii()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_after_a_line_that_is_too_long() {
        let mut lines = LineReader { longest: 5, ..LineReader::new(&b"one\r\n\n  \ntoolong\n12345\n123456\nlast"[..]) };
        let mut seen = Vec::new();
        loop {
            match lines.next().unwrap() {
                InputLine::Text(text) => seen.push(String::from_utf8(text.to_vec()).unwrap()),
                InputLine::TooLong => seen.push("(too long)".into()),
                InputLine::End => break,
            }
        }
        assert_eq!(seen, ["one", "(too long)", "12345", "(too long)", "last"]);
    }

    #[test]
    fn knows_whether_the_next_line_is_there() {
        let mut lines = LineReader::new(&b"one\ntwo\n\n  \nhalf"[..]);
        let mut seen = Vec::new();
        while let InputLine::Text(text) = lines.next().unwrap() {
            let text = String::from_utf8(text.to_vec()).unwrap();
            seen.push((text, lines.has_buffered_line()));
        }
        assert_eq!(seen, [("one".to_owned(), true), ("two".to_owned(), false), ("half".to_owned(), false)]);
    }
}
