//! A fast JSON writer. A reply may contain megabytes of text and is written twice, for the model and for the record. A
//! general serializer checks each byte separately.

use std::fmt::Write as _;

use serde::Serialize;

/// Writes the fields of an object one after another.
#[derive(Debug)]
pub struct ObjectWriter(Vec<u8>);

impl ObjectWriter {
    /// An object without fields, written after some leading bytes.
    #[must_use]
    pub fn with_prefix(mut bytes: Vec<u8>) -> Self {
        bytes.push(b'{');
        Self(bytes)
    }

    /// Writes a string.
    #[must_use]
    pub fn string(mut self, key: &'static str, text: &str) -> Self {
        self.key(key);
        push_json_string(&mut self.0, text);
        self
    }

    /// Writes a string, if there is one.
    #[must_use]
    pub fn optional_string(self, key: &'static str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.string(key, text),
            None => self,
        }
    }

    /// Writes a value that is already JSON.
    #[must_use]
    pub fn raw(mut self, key: &'static str, json: &[u8]) -> Self {
        self.key(key);
        self.0.extend_from_slice(json);
        self
    }

    /// Writes a value with `write`, which takes the bytes so far and returns them with its JSON appended.
    #[must_use]
    pub fn raw_with(mut self, key: &'static str, write: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        self.key(key);
        Self(write(self.0))
    }

    /// Writes any serializable value. A map with keys that are not strings becomes `null`.
    #[must_use]
    pub fn value(mut self, key: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        self.key(key);
        let start = self.0.len();
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.0.truncate(start);
            self.0.extend_from_slice(b"null");
        }
        self
    }

    /// Closes the object and returns the bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    /// Field names are constants in the source and need no escapes.
    fn key(&mut self, key: &'static str) {
        debug_assert_eq!(unescaped_prefix_len(key.as_bytes()), key.len(), "{key}");
        self.0.reserve(key.len() + 4);
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

/// Appends a text as a quoted JSON string.
pub fn push_json_string(out: &mut Vec<u8>, text: &str) {
    // Ordinary text has one or two escapes per line.
    out.reserve(text.len() + text.len() / 16 + 16);
    out.push(b'"');
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let plain = unescaped_prefix_len(rest);
        out.extend_from_slice(&rest[..plain]);
        let Some(byte) = rest.get(plain) else { break };
        match byte {
            b'"' => out.extend_from_slice(br#"\""#),
            b'\\' => out.extend_from_slice(br"\\"),
            b'\n' => out.extend_from_slice(br"\n"),
            b'\r' => out.extend_from_slice(br"\r"),
            b'\t' => out.extend_from_slice(br"\t"),
            0x08 => out.extend_from_slice(br"\b"),
            0x0c => out.extend_from_slice(br"\f"),
            other => {
                let mut escaped = String::with_capacity(6);
                _ = write!(escaped, "\\u{other:04x}");
                out.extend_from_slice(escaped.as_bytes());
            }
        }
        rest = &rest[plain + 1..];
    }
    out.push(b'"');
}

/// The length of the prefix without a quote, a backslash or a control character. It skips whole blocks first, then
/// eight bytes at a time. The lowest set bit in `found` marks the first such byte.
fn unescaped_prefix_len(text: &[u8]) -> usize {
    let strange = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // No early exit, so that the compiler can vectorise the loop.
    let is_plain = |block: &&[u8; 32]| !block.iter().fold(false, |found, byte| found | strange(byte));
    let passed = text.as_chunks::<32>().0.iter().take_while(is_plain).count() * 32;
    let text = &text[passed..];
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHEST: u64 = ONES << 7;
    let less = |word: u64, than: u8| word.wrapping_sub(ONES * u64::from(than)) & !word;
    let (words, last) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = less(word ^ (ONES * u64::from(b'"')), 1);
        let slash = less(word ^ (ONES * u64::from(b'\\')), 1);
        let found = (less(word, 0x20) | quote | slash) & HIGHEST;
        if found != 0 {
            return passed + at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    passed + text.len() - last.len() + last.iter().position(strange).unwrap_or(last.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_follow_one_another() {
        let bytes = ObjectWriter::with_prefix(b"x=".to_vec())
            .string("a", "1\n")
            .optional_string("none", None)
            .optional_string("b", Some(""))
            .raw("c", b"[true]")
            .value("d", &Some(1.5))
            .finish();
        assert_eq!(String::from_utf8(bytes).unwrap(), r#"x={"a":"1\n","b":"","c":[true],"d":1.5}"#);
        assert_eq!(ObjectWriter::with_prefix(Vec::new()).finish(), b"{}");
    }

    proptest! {
        #[test]
        fn a_text_is_written_as_others_write_it(text in "(\\PC|[\\x00-\\x1f\"\\\\é☃]|[a-z]{20,50}){0,40}") {
            let mut bytes = Vec::new();
            push_json_string(&mut bytes, &text);
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }
}
