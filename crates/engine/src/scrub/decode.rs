//! Decodes texts: escapes, base64, hexadecimal, character codes, compressed data, joined fields and shell variables.
//! [`decoded`] does one step; the search for secrets repeats it.

use std::{collections::HashMap, io::Read, iter::Peekable, str::Chars};

use flate2::read::{GzDecoder, ZlibDecoder};
use serde_json::Value;

/// The shortest run of base64 letters that is decoded.
const MIN_BASE64: usize = 8;
/// The shortest run of hexadecimal digits that is decoded.
const MIN_HEX: usize = 16;
/// The fewest numbers that are taken for a text.
const MIN_NUMBERS: usize = 8;
/// The shortest part of decoded bytes that is taken for text.
const MIN_SEGMENT: usize = 4;
/// The most starts within one run of base64 letters that are tried.
const MAX_STARTS: usize = 12;
/// The most bytes that compressed data may expand to.
const MAX_INFLATED: u64 = 64 << 10;
/// JSON inside a text is parsed up to this size.
const MAX_JSON: usize = 256 << 10;

/// Everything that a text decodes to in one step. Texts without encoded parts give nothing.
pub(super) fn decoded(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(unescaped(text));
    all.extend(from_quoted_printable(text));
    all.extend(from_base64(text));
    all.extend(from_hex(text));
    all.extend(from_numbers(text));
    all.extend(joined_fields(text));
    all.extend(joined_json(text));
    all.extend(with_variables(text));
    all
}

/// Whether a text has a run that may be base64 or hexadecimal.
pub(super) fn has_long_run(text: &str) -> bool {
    text.split(|it: char| !is_base64(it)).any(|run| run.len() >= MIN_HEX)
}

/// The text with each Latin letter moved by 13 places.
pub(super) fn rot13(text: &str) -> String {
    let turned = |it: char, first: u8| char::from((it as u8 - first + 13) % 26 + first);
    let letter = |it: char| match it {
        'a'..='z' => turned(it, b'a'),
        'A'..='Z' => turned(it, b'A'),
        it => it,
    };
    text.chars().map(letter).collect()
}

/// Percent coding, the escapes of JSON, C and shells, and the character references of HTML.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains(['%', '\\', '&']) {
        return None;
    }
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    let mut is_changed = false;
    while let Some(&byte) = bytes.get(at) {
        let found = match byte {
            b'%' => escape(&bytes[at + 1..], b"u", Some(2)),
            b'\\' => escape(&bytes[at + 1..], b"uUx", None),
            b'&' => reference(&bytes[at + 1..]),
            _ => None,
        };
        if let Some((letter, length)) = found {
            match letter {
                // `%C3%BC` is one character in two bytes.
                Letter::Byte(byte) => out.push(byte),
                Letter::Char(letter) => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
            at += 1 + length;
            is_changed = true;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    is_changed.then(|| String::from_utf8_lossy(&out).into_owned())
}

enum Letter {
    Byte(u8),
    Char(char),
}

/// An escape behind its first character: the letter, and how many bytes it takes.
fn escape(rest: &[u8], names: &[u8], bare_hex: Option<usize>) -> Option<(Letter, usize)> {
    let first = *rest.first()?;
    if names.contains(&first) {
        if rest.get(1) == Some(&b'{') {
            let length = rest.iter().take(10).position(|it| *it == b'}')?;
            return Some((Letter::Char(char::from_u32(number(&rest[2..length], 16)?)?), length + 1));
        }
        let most = match first {
            b'x' => 2,
            b'U' => 8,
            _ => 4,
        };
        let digits = rest[1..].iter().take(most).take_while(|it| it.is_ascii_hexdigit()).count();
        if first == b'u' && digits < 4 {
            return None;
        }
        let code = number(&rest[1..=digits], 16)?;
        let letter = if first == b'x' { Letter::Byte(code as u8) } else { Letter::Char(char::from_u32(code)?) };
        return Some((letter, digits + 1));
    }
    if let Some(length) = bare_hex {
        return Some((Letter::Byte(number(rest.get(..length)?, 16)? as u8), length));
    }
    // Octal, as C and `printf` read it: `\150`, `\0150`.
    let most = if first == b'0' { 4 } else { 3 };
    let digits = rest.iter().take(most).take_while(|it| (b'0'..=b'7').contains(it)).count();
    let code = number(rest.get(..digits).filter(|it| it.len() > 1)?, 8)?;
    Some((Letter::Byte(u8::try_from(code).ok()?), digits))
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok().filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, radix).ok()
}

/// The names of HTML for the signs of ASCII; letters and digits have none.
#[rustfmt::skip]
const REFERENCES: &[(&str, char)] = &[
    ("excl", '!'), ("quot", '"'), ("num", '#'), ("dollar", '$'), ("percnt", '%'), ("amp", '&'), ("apos", '\''),
    ("lpar", '('), ("rpar", ')'), ("ast", '*'), ("midast", '*'), ("plus", '+'), ("comma", ','), ("hyphen", '-'),
    ("dash", '-'), ("period", '.'), ("sol", '/'), ("colon", ':'), ("semi", ';'), ("lt", '<'), ("equals", '='),
    ("gt", '>'), ("quest", '?'), ("commat", '@'), ("lsqb", '['), ("lbrack", '['), ("bsol", '\\'), ("rsqb", ']'),
    ("rbrack", ']'), ("Hat", '^'), ("lowbar", '_'), ("UnderBar", '_'), ("grave", '`'), ("lcub", '{'), ("lbrace", '{'),
    ("verbar", '|'), ("vert", '|'), ("rcub", '}'), ("rbrace", '}'), ("nbsp", ' '), ("Tab", '\t'), ("NewLine", '\n'),
];

/// A character reference of HTML behind its `&`. The semicolon may be missing.
fn reference(rest: &[u8]) -> Option<(Letter, usize)> {
    let with_semicolon = |length: usize| length + usize::from(rest.get(length) == Some(&b';'));
    if rest.first() == Some(&b'#') {
        let is_hex = matches!(rest.get(1), Some(b'x' | b'X'));
        let (start, radix) = if is_hex { (2, 16) } else { (1, 10) };
        let is_digit = |it: &&u8| if is_hex { it.is_ascii_hexdigit() } else { it.is_ascii_digit() };
        let digits = rest.get(start..)?.iter().take(8).take_while(is_digit).count();
        let letter = char::from_u32(number(&rest[start..start + digits], radix)?)?;
        return Some((Letter::Char(letter), with_semicolon(start + digits)));
    }
    let length = rest.iter().take(10).take_while(|it| it.is_ascii_alphabetic()).count();
    let name = std::str::from_utf8(&rest[..length]).ok()?;
    let (_, letter) = REFERENCES.iter().find(|(known, _)| *known == name)?;
    (rest.get(length) == Some(&b';')).then_some((Letter::Char(*letter), length + 1))
}

/// Quoted-printable: `=68`, and lines that end in `=`.
fn from_quoted_printable(text: &str) -> Option<String> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    let mut is_changed = false;
    if !text.contains('=') {
        return None;
    }
    while let Some(&byte) = bytes.get(at) {
        let code = (byte == b'=').then(|| bytes.get(at + 1..at + 3)).flatten();
        let soft_break = match bytes.get(at + 1..) {
            Some([b'\n', ..]) => 2,
            Some([b'\r', b'\n', ..]) => 3,
            _ => 0,
        };
        if let Some(code) = code.and_then(|it| number(it, 16)) {
            out.push(code as u8);
            (at, is_changed) = (at + 3, true);
        } else if byte == b'=' && soft_break > 0 {
            (at, is_changed) = (at + soft_break, true);
        } else {
            out.push(byte);
            at += 1;
        }
    }
    is_changed.then(|| String::from_utf8_lossy(&out).into_owned())
}

fn is_base64(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+/-_".contains(letter)
}

/// Runs of base64 letters, of both alphabets, read from each of the four places that a group may begin at, and from
/// behind each sign that may also separate the parts of an address. One text for each place.
fn from_base64(text: &str) -> Vec<String> {
    let mut outs = vec![Vec::new(); 4 + MAX_STARTS];
    let mut inflated = Vec::new();
    for run in text.split(|it: char| !is_base64(it)).filter(|run| run.len() >= MIN_BASE64) {
        let behind = run.match_indices(['/', '-', '_', '+']).map(|(at, _)| at + 1).filter(|at| *at >= 4);
        for (start, out) in (0..4).chain(behind).zip(&mut outs) {
            let bytes = base64_bytes(run.get(start..).unwrap_or_default());
            inflated.extend(inflate(&bytes));
            push_segments(out, &bytes);
        }
    }
    outs.into_iter().chain(inflated).filter_map(text_of).collect()
}

fn base64_bytes(run: &str) -> Vec<u8> {
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::with_capacity(run.len() * 3 / 4));
    for letter in run.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

/// Runs of hexadecimal digits, from their first and from their second digit.
fn from_hex(text: &str) -> Vec<String> {
    let mut outs = vec![Vec::new(); 2];
    let mut inflated = Vec::new();
    for run in text.as_bytes().split(|it| !it.is_ascii_hexdigit()).filter(|run| run.len() >= MIN_HEX) {
        for (start, out) in outs.iter_mut().enumerate() {
            let bytes: Vec<u8> = run[start..].chunks_exact(2).filter_map(|it| Some(number(it, 16)? as u8)).collect();
            inflated.extend(inflate(&bytes));
            push_segments(out, &bytes);
        }
    }
    outs.into_iter().chain(inflated).filter_map(text_of).collect()
}

/// Lists of character codes: decimal, `0x68`, and groups of eight binary digits.
fn from_numbers(text: &str) -> Vec<String> {
    let (mut decimal, mut hex, mut binary) = (Vec::new(), Vec::new(), Vec::new());
    let words = text.as_bytes().split(|it| !it.is_ascii_alphanumeric());
    for word in words {
        for digits in word.split(|it| !it.is_ascii_digit()).filter(|it| (2..=3).contains(&it.len())) {
            decimal.extend(number(digits, 10).and_then(|it| u8::try_from(it).ok()).filter(|it| is_printable(*it)));
        }
        if let Some(digits) = word.strip_prefix(b"0x").filter(|it| it.len() == 2) {
            hex.extend(number(digits, 16).map(|it| it as u8));
        }
        if word.len() % 8 == 0 && word.iter().all(|it| matches!(it, b'0' | b'1')) {
            binary.extend(word.chunks(8).filter_map(|it| Some(number(it, 2)? as u8)));
        }
    }
    [decimal, hex, binary].into_iter().filter(|it| it.len() >= MIN_NUMBERS).filter_map(text_of).collect()
}

/// The values of the fields of a query, a form, headers or shell assignments, put together.
fn joined_fields(text: &str) -> Option<String> {
    if !text.contains(['=', ':']) {
        return None;
    }
    let (mut out, mut count, mut is_value) = (String::new(), 0, false);
    for part in text.split(|it: char| it.is_whitespace() || "&;,?#|()".contains(it)) {
        let value = part.split_once('=').map(|(_, value)| value).or(is_value.then_some(part));
        if let Some(value) = value.filter(|it| !it.is_empty()) {
            out.push_str(value);
            count += 1;
        }
        is_value = part.ends_with(':');
    }
    (count > 1).then_some(out)
}

/// The texts inside JSON, put together.
fn joined_json(text: &str) -> Option<String> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) || text.len() > MAX_JSON {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok()?;
    Some(joined_leaves(&value))
}

/// All texts and numbers in a value, put together in their order.
pub(super) fn joined_leaves(value: &Value) -> String {
    fn push(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => out.push_str(text),
            Value::Number(number) => out.push_str(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|it| push(it, out)),
            Value::Object(map) => map.values().for_each(|it| push(it, out)),
            _ => {}
        }
    }
    let mut out = String::new();
    push(value, &mut out);
    out
}

/// A command line with the values of its own variables in their places.
fn with_variables(text: &str) -> Option<String> {
    if !text.contains('$') {
        return None;
    }
    let mut values: HashMap<&str, &str> = HashMap::new();
    for word in text.split(|it: char| it.is_whitespace() || ";&|()`".contains(it)) {
        for (at, _) in word.match_indices('=') {
            let name = &word[word[..at].trim_end_matches(is_name).len()..at];
            if !name.is_empty() {
                values.insert(name, word[at + 1..].trim_matches(['"', '\'']));
            }
        }
    }
    if values.is_empty() {
        return None;
    }
    let (mut out, mut letters) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(letter) = letters.next() {
        if letter != '$' {
            out.push(letter);
            continue;
        }
        letters.next_if_eq(&'{');
        let name = take_name(&mut letters);
        letters.next_if_eq(&'}');
        out.push_str(values.get(name.as_str()).copied().unwrap_or_default());
    }
    Some(out)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn take_name(letters: &mut Peekable<Chars<'_>>) -> String {
    std::iter::from_fn(|| letters.next_if(|it| is_name(*it))).collect()
}

/// The bytes of gzip or zlib data, up to a limit.
fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // What comes before an error counts: the end of the data may be missing.
    _ = match bytes {
        [0x1f, 0x8b, ..] => GzDecoder::new(bytes).take(MAX_INFLATED).read_to_end(&mut out),
        [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => ZlibDecoder::new(bytes).take(MAX_INFLATED).read_to_end(&mut out),
        _ => return None,
    };
    Some(out)
}

fn is_printable(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte)
}

/// Appends the parts of decoded bytes that are text. Zero bytes are left out, because UTF-16 has them between letters.
fn push_segments(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|it| *it != 0).collect();
    for segment in bytes.split(|it| !is_printable(*it) && !it.is_ascii_whitespace()) {
        if segment.len() >= MIN_SEGMENT {
            out.extend_from_slice(segment);
        }
    }
}

fn text_of(bytes: Vec<u8>) -> Option<String> {
    (bytes.len() >= MIN_SEGMENT).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
