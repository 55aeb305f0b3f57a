//! Splits a plugin's output into lines of bounded length.

use std::collections::VecDeque;

/// The longest line that is taken.
pub(crate) const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Collects pieces and gives whole lines.
#[derive(Default)]
pub(crate) struct LineBuffer {
    part: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
    /// The rest of a line that was too long is passed over.
    skipping: bool,
}

/// A line above the length limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineTooLong;

impl LineBuffer {
    /// Adds a chunk. A line above the limit is dropped and reported once.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), LineTooLong> {
        let mut result = Ok(());
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.part.len() + line.len() > MAX_LINE_BYTES {
                self.part.clear();
                result = Err(LineTooLong);
                continue;
            }
            self.part.extend_from_slice(line);
            self.whole.push_back(std::mem::take(&mut self.part));
        }
        if !self.skipping {
            self.part.extend_from_slice(bytes);
            if self.part.len() > MAX_LINE_BYTES {
                self.part = Vec::new();
                self.skipping = true;
                result = Err(LineTooLong);
            }
        }
        result
    }

    /// The next whole line.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let mut lines = LineBuffer::default();
        for piece in ["on", "e\ntw", "o\n", "\nthr"] {
            lines.push(piece.as_bytes()).unwrap();
        }
        let seen: Vec<_> = std::iter::from_fn(|| lines.next()).map(|it| String::from_utf8(it).unwrap()).collect();
        assert_eq!(seen, ["one", "two", ""]);
    }

    #[test]
    fn a_line_without_an_end_is_told_once_and_passed_over() {
        let mut lines = LineBuffer::default();
        let flood = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(lines.push(&flood), Err(LineTooLong));
        assert_eq!(lines.push(&flood), Ok(()));
        lines.push(b"\nnext\n").unwrap();
        assert_eq!(lines.next().unwrap(), b"next");
    }
}
