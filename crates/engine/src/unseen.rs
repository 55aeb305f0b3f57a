//! Escapes invisible characters in replies: terminal sequences, direction overrides, zero-width letters.
//!
//! They are shown as `\x1b` or `\u{202e}`, so that people and models read the same. Legitimate ones stay: joiners and
//! selectors between letters of other scripts, a form feed.

use std::borrow::Cow;

use helve_contract::{Invisible, InvisibleScan, Reply, ReplyFormat};
use serde_json::Value;

/// Escapes invisible characters in a reply. Returns the original text if it changed.
pub(crate) fn escape_invisible(reply: &mut Reply) -> Option<String> {
    let changed = reply.data.as_mut().is_some_and(escape_value);
    let before = match (&reply.data, reply.format) {
        (Some(data), ReplyFormat::Json) if changed => Some(std::mem::replace(&mut reply.text, data.to_string())),
        (Some(_), ReplyFormat::Json) => None,
        _ => match escape_text(&reply.text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(shown) => Some(std::mem::replace(&mut reply.text, shown)),
        },
    };
    let mut around = false;
    for line in [&mut reply.before, &mut reply.after].into_iter().chain(&mut reply.model_notes) {
        if let Cow::Owned(shown) = escape_text(line) {
            *line = shown;
            around = true;
        }
    }
    if before.is_some() || around {
        reply.notes.push(r"characters that cannot be seen are shown as \x1b or \u{202e}".into());
    }
    before
}

fn escape_value(it: &mut Value) -> bool {
    match it {
        Value::String(string) => match escape_text(string) {
            Cow::Borrowed(_) => false,
            Cow::Owned(shown) => {
                *string = shown;
                true
            }
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, it| escape_value(it) | any),
        Value::Object(map) => map.values_mut().fold(false, |any, it| escape_value(it) | any),
        _ => false,
    }
}

/// The text with invisible characters escaped; borrowed if there are none.
pub(crate) fn escape_text(text: &str) -> Cow<'_, str> {
    if is_printable_ascii(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut out: Option<String> = None;
    let mut scan = InvisibleScan::default();
    for (at, it) in text.char_indices() {
        let first = at == 0 && it == '\u{feff}';
        if is_invisible(&mut scan, it) && !first {
            let out = out.get_or_insert_with(|| text[..at].to_owned());
            match u32::from(it) {
                code @ ..0x80 => out.push_str(&format!("\\x{code:02x}")),
                _ => out.extend(it.escape_unicode()),
            }
        } else if let Some(out) = &mut out {
            out.push(it);
        }
    }
    out.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Whether the text is printable ASCII. No early exit inside a chunk, so that the compiler can vectorise it.
fn is_printable_ascii(text: &[u8]) -> bool {
    let plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r' | 0x0c);
    text.chunks(256).all(|piece| piece.iter().fold(true, |all, byte| all & plain(*byte)))
}

/// The offset in the raw text for an offset in the escaped text.
pub(crate) fn raw_offset(raw: &str, shown: usize) -> usize {
    if is_printable_ascii(raw.as_bytes()) {
        return raw.floor_char_boundary(shown);
    }
    let (mut scan, mut length) = (InvisibleScan::default(), 0);
    for (at, it) in raw.char_indices() {
        if length >= shown {
            return at;
        }
        let first = at == 0 && it == '\u{feff}';
        length += match u32::from(it) {
            _ if !is_invisible(&mut scan, it) || first => it.len_utf8(),
            ..0x80 => "\\x00".len(),
            _ => it.escape_unicode().count(),
        };
    }
    raw.len()
}

fn is_invisible(scan: &mut InvisibleScan, it: char) -> bool {
    match (scan.next(it), it) {
        (Some(kind), _) => kind != Invisible::Mark,
        (None, '\n' | '\t' | '\r' | '\u{c}') => false,
        (None, it) => it.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_hides_and_writing_stays() {
        for (given, shown) in [
            ("plain\r\n\ttext\u{c}", "plain\r\n\ttext\u{c}"),
            ("grün 雪 می‌خواهم 👩‍💻 ❤️ 1️⃣ 🏳️‍🌈", "grün 雪 می‌خواهم 👩‍💻 ❤️ 1️⃣ 🏳️‍🌈"),
            ("\u{feff}bom", "\u{feff}bom"),
            ("a\x1b]52;c;eA==\x07b", r"a\x1b]52;c;eA==\x07b"),
            ("\x1b[2J\u{9b}6n\x08\0", r"\x1b[2J\u{9b}6n\x08\x00"),
            ("a\u{202e}b\u{2066}c", r"a\u{202e}b\u{2066}c"),
            ("x\u{200b}y\u{200d}z", r"x\u{200b}y\u{200d}z"),
            ("go\u{e0067}\u{e006f}", r"go\u{e0067}\u{e006f}"),
            ("雪\u{fe00}\u{fe01}", "雪\u{fe00}\\u{fe01}"),
        ] {
            assert_eq!(escape_text(given), shown);
        }
    }

    #[test]
    fn data_stays_data_and_the_text_as_it_was_is_kept() {
        let mut reply = Reply::json(json!({ "a": ["x\x1b[2J"], "b": 1 }));
        let before = escape_invisible(&mut reply).unwrap();
        assert_eq!(reply.data, Some(json!({ "a": ["x\\x1b[2J"], "b": 1 })));
        assert_eq!(serde_json::from_str::<Value>(&reply.text).unwrap(), json!({ "a": ["x\\x1b[2J"], "b": 1 }));
        assert!(before.contains(r"\u001b[2J"), "{before}");
        let mut reply = Reply::from("seen");
        assert_eq!((escape_invisible(&mut reply), reply.notes.len()), (None, 0));
    }
}
