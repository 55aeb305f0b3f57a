//! Reads lines of bounded length from a pipe.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// The longest message that is taken.
pub(crate) const MAX_LINE_BYTES: usize = 8 << 20;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OwnedInputLine {
    /// A whole line, without its end.
    Whole(Vec<u8>),
    /// A line above the length limit; it was skipped.
    TooLong,
    /// End of input.
    End,
}

/// The next line.
pub(crate) async fn next(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<OwnedInputLine> {
    let mut line = Vec::new();
    let mut skipping = false;
    loop {
        let piece = from.fill_buf().await?;
        if piece.is_empty() {
            return Ok(if skipping || line.is_empty() { OwnedInputLine::End } else { OwnedInputLine::Whole(line) });
        }
        let (take, ends) = match piece.iter().position(|it| *it == b'\n') {
            Some(at) => (at, true),
            None => (piece.len(), false),
        };
        skipping = skipping || line.len() + take > MAX_LINE_BYTES;
        if skipping {
            line = Vec::new();
        } else {
            line.extend_from_slice(&piece[..take]);
        }
        from.consume(take + usize::from(ends));
        if ends {
            return Ok(if skipping { OwnedInputLine::TooLong } else { OwnedInputLine::Whole(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_passed_over() {
        let mut text = b"one\n".to_vec();
        text.resize(MAX_LINE_BYTES + 100, b'x');
        text.extend(b"\n\nlast");
        let mut from = tokio::io::BufReader::new(&text[..]);
        let mut seen = Vec::new();
        loop {
            match next(&mut from).await.unwrap() {
                OwnedInputLine::Whole(line) => seen.push(String::from_utf8(line).unwrap()),
                OwnedInputLine::TooLong => seen.push("(too long)".into()),
                OwnedInputLine::End => break,
            }
        }
        assert_eq!(seen, ["one", "(too long)", "", "last"]);
    }
}
