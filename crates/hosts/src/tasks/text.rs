//! Converts program output to text that is safe for terminals and readers.
//!
//! Escape sequences are removed; other invisible characters are shown as `\x00` or `\u{202e}`. Incomplete sequences
//! are kept until the next chunk.

use helve_contract::{Invisible, invisible};

/// The longest escape sequence that is waited for.
const MAX_ESCAPE_BYTES: usize = 4096;

/// Makes text out of one stream of bytes, piece by piece.
#[derive(Default)]
pub(super) struct OutputSanitizer {
    waiting: Vec<u8>,
}

/// How an escape sequence goes on.
enum EscapeMatch {
    /// It is this long.
    Whole(usize),
    /// Its end is not here yet.
    Open,
    /// It is none.
    Broken,
}

impl OutputSanitizer {
    /// The next piece as text. What may go on stays here.
    pub(super) fn feed(&mut self, piece: &[u8], text: &mut String) {
        self.run(piece, text, false);
    }

    /// What was still waiting, as it is.
    pub(super) fn finish(&mut self, text: &mut String) {
        self.run(&[], text, true);
    }

    /// How many bytes wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn run(&mut self, piece: &[u8], text: &mut String, last: bool) {
        let joined;
        let bytes = if self.waiting.is_empty() {
            piece
        } else {
            self.waiting.extend(piece);
            joined = std::mem::take(&mut self.waiting);
            &joined
        };
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match step(rest, text, last) {
                Some(count) => at += count,
                None => {
                    self.waiting = rest.to_vec();
                    return;
                }
            }
        }
    }
}

/// Shows the beginning of these bytes and says how many that were; `None` when more must come first.
fn step(rest: &[u8], text: &mut String, last: bool) -> Option<usize> {
    let plain = rest.iter().take_while(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')).count();
    if plain > 0 {
        text.extend(rest[..plain].iter().map(|byte| char::from(*byte)));
        return Some(plain);
    }
    match rest[0] {
        0x1b => match escape(rest) {
            EscapeMatch::Whole(length) => return Some(length),
            EscapeMatch::Open if !last && rest.len() < MAX_ESCAPE_BYTES => return None,
            EscapeMatch::Open | EscapeMatch::Broken => text.push_str("\\x1b"),
        },
        // A lone carriage return starts the line again; here it starts the next one.
        b'\r' => match rest.get(1) {
            Some(b'\n') => text.push('\r'),
            None if !last => return None,
            _ => text.push('\n'),
        },
        byte @ (0..0x20 | 0x7f) => push_hex_escape(text, byte),
        _ => return decode_multibyte(rest, text, last),
    }
    Some(1)
}

/// A character of more than one byte.
fn decode_multibyte(rest: &[u8], text: &mut String, last: bool) -> Option<usize> {
    let four = &rest[..rest.len().min(4)];
    let valid = match std::str::from_utf8(four) {
        Ok(valid) => valid,
        Err(error) if error.valid_up_to() > 0 => std::str::from_utf8(&four[..error.valid_up_to()]).unwrap_or_default(),
        Err(error) if error.error_len().is_none() && !last => return None,
        Err(_) => "",
    };
    let Some(it) = valid.chars().next() else {
        push_hex_escape(text, rest[0]);
        return Some(1);
    };
    if is_invisible(it) {
        text.extend(it.escape_unicode());
    } else {
        text.push(it);
    }
    Some(it.len_utf8())
}

/// Invisible characters that change how others appear: controls, directions, tags, other line ends. Joiners stay; the
/// engine, which sees the whole text, escapes those that join nothing.
fn is_invisible(it: char) -> bool {
    it.is_control() || matches!(invisible(it), Some(Invisible::Mark | Invisible::Hidden))
}

fn push_hex_escape(text: &mut String, byte: u8) {
    text.push_str(&format!("\\x{byte:02x}"));
}

/// Looks at a sequence that begins with ESC.
fn escape(rest: &[u8]) -> EscapeMatch {
    match rest.get(1) {
        None => EscapeMatch::Open,
        Some(b'[') => {
            let inside = rest[2..].iter().take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
            match rest.get(2 + inside) {
                None => EscapeMatch::Open,
                Some(0x40..=0x7e) => EscapeMatch::Whole(3 + inside),
                Some(_) => EscapeMatch::Broken,
            }
        }
        Some(b']' | b'P' | b'_' | b'^' | b'X') => match_string_sequence(rest),
        Some(0x20..=0x2f) => {
            let inside = rest[1..].iter().take_while(|byte| matches!(byte, 0x20..=0x2f)).count();
            match rest.get(1 + inside) {
                None => EscapeMatch::Open,
                Some(0x30..=0x7e) => EscapeMatch::Whole(2 + inside),
                Some(_) => EscapeMatch::Broken,
            }
        }
        Some(0x30..=0x7e) => EscapeMatch::Whole(2),
        Some(_) => EscapeMatch::Broken,
    }
}

/// Titles, links, clipboards: up to BEL or ESC and a backslash.
fn match_string_sequence(rest: &[u8]) -> EscapeMatch {
    for (at, byte) in rest.iter().enumerate().skip(2).take(MAX_ESCAPE_BYTES) {
        match byte {
            0x07 => return EscapeMatch::Whole(at + 1),
            0x1b => {
                return match rest.get(at + 1) {
                    Some(b'\\') => EscapeMatch::Whole(at + 2),
                    None => EscapeMatch::Open,
                    Some(_) => EscapeMatch::Broken,
                };
            }
            _ => {}
        }
    }
    if rest.len() > MAX_ESCAPE_BYTES { EscapeMatch::Broken } else { EscapeMatch::Open }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, and the same when it comes byte by byte.
    fn cleaned(bytes: &[u8]) -> String {
        let whole = in_pieces(bytes, bytes.len().max(1));
        for size in 1..8 {
            assert_eq!(in_pieces(bytes, size), whole, "in pieces of {size}");
        }
        whole
    }

    fn in_pieces(bytes: &[u8], size: usize) -> String {
        let (mut cleaner, mut text) = (OutputSanitizer::default(), String::new());
        bytes.chunks(size).for_each(|piece| cleaner.feed(piece, &mut text));
        cleaner.finish(&mut text);
        text
    }

    #[test]
    fn shows_what_cannot_be_seen() {
        assert_eq!(cleaned(b"a\0b\xff\xfe c\x07"), "a\\x00b\\xff\\xfe c\\x07");
        assert_eq!(cleaned("né 世界 👩‍💻\n".as_bytes()), "né 世界 👩‍💻\n");
        assert_eq!(
            cleaned("a\u{202e}b\u{9b}2J\u{feff}\u{e0041}".as_bytes()),
            "a\\u{202e}b\\u{9b}2J\\u{feff}\\u{e0041}"
        );
        assert_eq!(cleaned(b"10%\r20%\r\nok\r"), "10%\n20%\r\nok\n");
        assert_eq!(cleaned(b"\xe4\xb8"), "\\xe4\\xb8");
    }

    #[test]
    fn escape_sequences_are_left_out() {
        assert_eq!(cleaned(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b(By\x1b=z"), "red xyz");
        assert_eq!(cleaned(b"\x1b]8;;https://evil\x1b\\ok\x1b]8;;\x1b\\ \x1b]52;c;aGk=\x07\x1bPq#0\x1b\\!"), "ok !");
        assert_eq!(cleaned(b"\x1b]no end"), "\\x1b]no end");
        assert_eq!(cleaned(b"\x1b[12\x01m"), "\\x1b[12\\x01m");
    }
}
