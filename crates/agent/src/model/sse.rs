//! The lines of a stream that carry data, out of pieces cut anywhere.

/// The longest line that is taken.
const MAX_LINE_BYTES: usize = 8 << 20;

/// Lines in the making.
#[derive(Default)]
pub(crate) struct SseLineParser {
    line: Vec<u8>,
    after_return: bool,
}

/// A line was longer than is taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SseLineTooLong;

impl SseLineParser {
    /// Takes a piece, and gives what the lines it completes carry. Every provider puts one event into one line.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, SseLineTooLong> {
        let mut whole = Vec::new();
        for byte in bytes {
            let second_half = std::mem::replace(&mut self.after_return, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\n' | b'\r' => whole.extend(self.finish()),
                byte => self.line.push(*byte),
            }
            if self.line.len() > MAX_LINE_BYTES {
                return Err(SseLineTooLong);
            }
        }
        Ok(whole)
    }

    /// What the last line carries, when the stream ended without a line break.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let data = line.strip_prefix(b"data:")?;
        let data = String::from_utf8_lossy(data).trim().to_owned();
        Some(data).filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_whole_however_it_was_cut() {
        let text = ": hello\r\n\r\nevent: x\r\ndata: {\"a\":\"ä\"}\r\n\r\ndata:b\n\nid: 7\rdata: c\r\rdata: [DONE]";
        for size in [1, 2, 3, 1000] {
            let mut lines = SseLineParser::default();
            let mut all: Vec<String> = text.as_bytes().chunks(size).flat_map(|it| lines.push(it).unwrap()).collect();
            all.extend(lines.finish());
            assert_eq!(all, ["{\"a\":\"ä\"}", "b", "c", "[DONE]"]);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = SseLineParser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..9).any(|_| lines.push(&piece) == Err(SseLineTooLong));
        assert!(refused);
    }
}
