//! Detects the encoding and byte order mark of a file, or why it is not text.
//!
//! [`DecodedText`] maps characters to bytes, so that a change of the text becomes a change of a few bytes.

use std::{borrow::Cow, fmt, ops::Range};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, EncoderResult, Encoding, GB18030, GBK, IBM866, ISO_8859_2, ISO_8859_4, ISO_8859_5,
    ISO_8859_6, ISO_8859_7, ISO_8859_8, KOI8_U, SHIFT_JIS, WINDOWS_874, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252,
    WINDOWS_1253, WINDOWS_1254, WINDOWS_1255, WINDOWS_1256, WINDOWS_1257, WINDOWS_1258,
};

/// How characters are written as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8.
    Utf8,
    /// UTF-16, low byte first.
    Utf16Le,
    /// UTF-16, high byte first.
    Utf16Be,
    /// One of the older encodings, all of which hold ASCII.
    Legacy(&'static Encoding),
}

/// How a file of text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextFormat {
    /// How characters are written as bytes.
    pub charset: Charset,
    /// Bytes of the byte-order mark at its beginning: 0, 2 or 3.
    pub bom: usize,
    /// Some bytes are not in the encoding; they are read as U+FFFD.
    pub damaged: bool,
}

impl TextFormat {
    /// Plain UTF-8, as nearly every file is.
    pub const UTF8: Self = Self { charset: Charset::Utf8, bom: 0, damaged: false };

    /// What a reader should be told, when the file is not plain UTF-8.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        match (self.charset, self.bom, self.damaged) {
            (Charset::Utf8, 0, false) => None,
            (Charset::Utf8, _, false) => Some("encoding: UTF-8 with BOM".to_owned()),
            (_, _, true) => Some(format!("encoding: {}, with bytes that are not, shown as \u{fffd}", self.charset)),
            (Charset::Legacy(_), ..) => Some(format!("encoding: {} (guessed)", self.charset)),
            (_, 0, _) => Some(format!("encoding: {} without BOM", self.charset)),
            _ => Some(format!("encoding: {} with BOM", self.charset)),
        }
    }
}

impl fmt::Display for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16 LE",
            Self::Utf16Be => "UTF-16 BE",
            Self::Legacy(it) if *it == WINDOWS_1252 => "Windows-1252 (Latin-1)",
            Self::Legacy(it) => it.name(),
        })
    }
}

/// Detects the format from the start of a file (or all of it); the error says what else it is.
pub fn detect(head: &[u8], whole: bool) -> Result<TextFormat, String> {
    match head {
        [0xef, 0xbb, 0xbf, ..] => {
            let damaged = !is_utf8(&head[3..], whole);
            return Ok(TextFormat { charset: Charset::Utf8, bom: 3, damaged });
        }
        [0xff, 0xfe, 0, 0, _, _, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => return Err("UTF-32 text".to_owned()),
        [0xff, 0xfe, ..] => return Ok(TextFormat { charset: Charset::Utf16Le, bom: 2, damaged: false }),
        [0xfe, 0xff, ..] => return Ok(TextFormat { charset: Charset::Utf16Be, bom: 2, damaged: false }),
        _ => {}
    }
    if let Some(what) = file_type(head) {
        return Err(what.to_owned());
    }
    if let Some(at) = memchr::memchr(0, head) {
        let charset = obvious_utf16(head, whole).ok_or_else(|| format!("data with a NUL byte at {at}"))?;
        return Ok(TextFormat { charset, bom: 0, damaged: false });
    }
    if is_utf8(head, whole) {
        return Ok(TextFormat::UTF8);
    }
    let noise = head.iter().filter(|it| matches!(it, 0..=6 | 14..=26 | 28..=31 | 127)).count();
    if noise * 20 > head.len() {
        return Err("data that is in no known encoding".to_owned());
    }
    let (good, bad) = utf8_census(head, whole);
    if good >= bad {
        return Ok(TextFormat { charset: Charset::Utf8, bom: 0, damaged: true });
    }
    Ok(TextFormat { charset: Charset::Legacy(guess_legacy(head, whole)), bom: 0, damaged: false })
}

fn is_utf8(bytes: &[u8], whole: bool) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // The last character may be cut in half where the head ends.
        Err(error) => !whole && error.error_len().is_none(),
    }
}

/// How many characters beyond ASCII are right UTF-8, and how many bytes are not.
fn utf8_census(bytes: &[u8], whole: bool) -> (usize, usize) {
    let mut counts = (0, 0);
    for chunk in bytes.utf8_chunks() {
        counts.0 += chunk.valid().bytes().filter(|byte| *byte >= 0xc0).count();
        counts.1 += chunk.invalid().len();
    }
    if !whole && counts.1 > 0 && std::str::from_utf8(bytes).is_err_and(|it| it.error_len().is_none()) {
        counts.1 -= 1;
    }
    counts
}

/// UTF-16 without a mark, where it is plain to see: zeros on one side only, and nothing but sensible characters.
fn obvious_utf16(head: &[u8], whole: bool) -> Option<Charset> {
    if whole && !head.len().is_multiple_of(2) {
        return None;
    }
    let head = &head[..head.len() & !1];
    let mut zeros = (0, 0);
    for pair in head.chunks_exact(2) {
        zeros.0 += usize::from(pair[0] == 0);
        zeros.1 += usize::from(pair[1] == 0);
    }
    let (charset, count) = match zeros {
        (0, count @ 1..) => (Charset::Utf16Le, count),
        (count @ 1.., 0) => (Charset::Utf16Be, count),
        _ => return None,
    };
    let units = head.chunks_exact(2).map(|pair| utf16_unit(charset, pair));
    let mut bad = 0;
    for it in char::decode_utf16(units) {
        match it {
            Ok(it) if it.is_control() && !matches!(it, '\t' | '\n' | '\r' | '\u{c}') => return None,
            Ok('\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}') | Err(_) => bad += 1,
            Ok(_) => {}
        }
    }
    // A pair that is cut where the head ends is the one thing that may be wrong.
    (bad <= 1 && count * 5 >= head.len()).then_some(charset)
}

fn utf16_unit(charset: Charset, pair: &[u8]) -> u16 {
    let pair = [pair[0], pair[1]];
    if charset == Charset::Utf16Be { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
}

/// Guesses the legacy encoding; in doubt windows-1252.
fn guess_legacy(head: &[u8], whole: bool) -> &'static Encoding {
    let end = if whole { head.len() } else { memchr::memrchr(b'\n', head).map_or(0, |it| it + 1) };
    if let Some(encoding) = [SHIFT_JIS, EUC_JP].into_iter().find(|it| is_japanese(&head[..end], it)) {
        return encoding;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(head, whole);
    let guess = detector.guess(None, Utf8Detection::Deny);
    let wide = [SHIFT_JIS, EUC_JP, EUC_KR, BIG5, GBK, GB18030];
    let foreign = [
        WINDOWS_1251,
        KOI8_U,
        IBM866,
        ISO_8859_5,
        WINDOWS_1253,
        ISO_8859_7,
        WINDOWS_1255,
        ISO_8859_8,
        WINDOWS_1256,
        ISO_8859_6,
        WINDOWS_874,
    ];
    let latin = [WINDOWS_1250, ISO_8859_2, WINDOWS_1254, WINDOWS_1257, ISO_8859_4, WINDOWS_1258];
    let fits = if wide.contains(&guess) {
        guess.decode_without_bom_handling_and_without_replacement(&head[..end]).is_some()
    } else if foreign.contains(&guess) {
        // Words of another script are runs of high bytes; a lone one is an accent in a western text.
        has_byte_runs(head)
    } else {
        latin.contains(&guess) && head.iter().filter(|byte| **byte >= 0x80).count() >= 12
    };
    if fits { guess } else { WINDOWS_1252 }
}

/// Whether the bytes are clearly Japanese in an encoding: they contain kana and no half-width characters.
fn is_japanese(bytes: &[u8], encoding: &'static Encoding) -> bool {
    let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes) else { return false };
    let wide = text.chars().filter(|it| !it.is_ascii()).count();
    let syllables = text.chars().filter(|it| matches!(it, '\u{3041}'..='\u{30fe}')).count();
    let narrow = text.chars().filter(|it| matches!(it, '\u{80}'..='\u{2ff}' | '\u{ff61}'..='\u{ff9f}')).count();
    syllables >= 2 && syllables * 5 >= wide && narrow * 10 <= wide
}

/// Whether most high bytes stand three or more together.
fn has_byte_runs(head: &[u8]) -> bool {
    let (mut all, mut together) = (0, 0);
    for run in head.chunk_by(|a, b| (*a >= 0x80) == (*b >= 0x80)).filter(|run| run[0] >= 0x80) {
        all += run.len();
        together += if run.len() >= 3 { run.len() } else { 0 };
    }
    together * 10 >= all * 6
}

/// What a file is, by the bytes that it begins with.
pub fn file_type(head: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 31] = [
        (b"\x7fELF", "ELF program or library"),
        (b"PK\x03\x04", "zip archive (or a document or package in one)"),
        (b"PK\x05\x06", "empty zip archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"BZh", "bzip2 data"),
        (b"\xfd7zXZ\x00", "xz data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"7z\xbc\xaf\x27\x1c", "7z archive"),
        (b"Rar!\x1a\x07", "rar archive"),
        (b"\x89PNG\r\n\x1a\n", "PNG picture"),
        (b"\xff\xd8\xff", "JPEG picture"),
        (b"GIF87a", "GIF picture"),
        (b"GIF89a", "GIF picture"),
        (b"II*\x00", "TIFF picture"),
        (b"MM\x00*", "TIFF picture"),
        (b"SQLite format 3\x00", "SQLite database"),
        (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
        (b"\xcf\xfa\xed\xfe", "Mach-O program"),
        (b"\x00asm", "WebAssembly module"),
        (b"ID3", "MP3 sound"),
        (b"OggS", "Ogg sound or film"),
        (b"fLaC", "FLAC sound"),
        (b"\x1aE\xdf\xa3", "Matroska film"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office document"),
        (b"wOFF", "web font"),
        (b"wOF2", "web font"),
        (b"\x00\x01\x00\x00\x00", "TrueType font"),
        (b"OTTO\x00", "OpenType font"),
        (b"!<arch>\n", "ar archive"),
        (b"MZ\x90\x00", "Windows program"),
        (b"\x93NUMPY", "NumPy array"),
    ];
    let text =
        |head: &[u8]| head.iter().take(512).all(|byte| (0x20..0x7f).contains(byte) || matches!(byte, 9 | 10 | 13));
    match head {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => return Some("WebP picture"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => return Some("WAV sound"),
        [_, _, _, _, b'f', b't', b'y', b'p', ..] if !text(head) => return Some("MP4 or HEIC media"),
        _ => {}
    }
    let found = MAGIC.iter().find(|(start, _)| head.starts_with(start)).map(|(_, what)| *what)?;
    // `BZh` or `ID3` may well begin a text.
    (!text(head)).then_some(found)
}

/// Whether this begins one of the images that models take.
pub fn is_image(head: &[u8]) -> bool {
    matches!(file_type(head), Some("PNG picture" | "JPEG picture" | "GIF picture" | "WebP picture"))
}

/// Whether a PDF file starts here. Its signature may be anywhere in the first 1024 bytes, but text that mentions it
/// is text.
pub fn is_pdf(head: &[u8]) -> bool {
    let first = &head[..head.len().min(1024)];
    head.starts_with(b"%PDF-")
        || (memchr::memmem::find(first, b"%PDF-").is_some() && (first.contains(&0) || !is_utf8(first, false)))
}

/// The text of a piece of a file that begins and ends at a character, without its mark.
pub fn decode(bytes: &[u8], charset: Charset) -> Cow<'_, str> {
    match charset {
        // The lossy way looks at every character, and almost nothing is damaged.
        Charset::Utf8 => str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed),
        Charset::Legacy(encoding) => encoding.decode_without_bom_handling(bytes).0,
        Charset::Utf16Le | Charset::Utf16Be => {
            let units = bytes.chunks_exact(2).map(|pair| utf16_unit(charset, pair));
            char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>().into()
        }
    }
}

/// The bytes of a text, or the first character that the encoding does not have.
pub fn encode(text: &str, charset: Charset) -> Result<Vec<u8>, char> {
    match charset {
        Charset::Utf8 => Ok(text.as_bytes().to_vec()),
        Charset::Utf16Le => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        Charset::Utf16Be => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        Charset::Legacy(encoding) => {
            let mut encoder = encoding.new_encoder();
            let size = encoder.max_buffer_length_from_utf8_without_replacement(text.len());
            let mut bytes = Vec::with_capacity(size.unwrap_or(text.len() * 4) + 16);
            match encoder.encode_from_utf8_to_vec_without_replacement(text, &mut bytes, true) {
                (EncoderResult::InputEmpty, _) => Ok(bytes),
                (EncoderResult::Unmappable(it), _) => Err(it),
                (EncoderResult::OutputFull, _) => Err(char::REPLACEMENT_CHARACTER),
            }
        }
    }
}

/// A file's text, and which bytes each character came from.
#[derive(Debug)]
pub struct DecodedText<'a> {
    /// The text, without the byte-order mark.
    pub text: Cow<'a, str>,
    /// How it is written.
    pub format: TextFormat,
    bytes: &'a [u8],
    /// Offset in the text and in the bytes of places that correspond, in order; about one a line.
    marks: Vec<(usize, usize)>,
}

impl<'a> DecodedText<'a> {
    /// Reads all of a file.
    #[must_use]
    pub fn new(bytes: &'a [u8], format: TextFormat) -> Self {
        let body = &bytes[format.bom.min(bytes.len())..];
        if format.charset == Charset::Utf8
            && let Ok(text) = std::str::from_utf8(body)
        {
            return Self { text: text.into(), format, bytes, marks: Vec::new() };
        }
        let mut text = String::with_capacity(body.len() + body.len() / 8);
        let mut marks = Vec::new();
        let mut at = format.bom;
        while at < bytes.len() {
            let length = decode_char(&bytes[at..], format.charset, &mut text);
            at += length;
            if text.ends_with('\n') || marks.last().is_none_or(|(_, mark)| at - mark >= 4096) {
                marks.push((text.len(), at));
            }
        }
        Self { text: text.into(), format, bytes, marks }
    }

    /// The bytes of a piece of the text; `None` where its ends are not between two characters of the file.
    #[must_use]
    pub fn bytes_of(&self, range: Range<usize>) -> Option<Range<usize>> {
        Some(self.byte_at(range.start)?..self.byte_at(range.end)?)
    }

    fn byte_at(&self, offset: usize) -> Option<usize> {
        if let (Cow::Borrowed(_), []) = (&self.text, self.marks.as_slice()) {
            return (offset <= self.text.len()).then_some(self.format.bom + offset);
        }
        let after = self.marks.partition_point(|(text, _)| *text <= offset);
        let (mut text, mut at) = if after == 0 { (0, self.format.bom) } else { self.marks[after - 1] };
        let mut scratch = String::new();
        while text < offset && at < self.bytes.len() {
            scratch.clear();
            at += decode_char(&self.bytes[at..], self.format.charset, &mut scratch);
            text += scratch.len();
        }
        (text == offset).then_some(at)
    }
}

/// Reads the next character into `text` and says how many bytes it takes. A byte that is in no character is U+FFFD.
fn decode_char(bytes: &[u8], charset: Charset, text: &mut String) -> usize {
    match charset {
        _ if bytes.is_empty() => 0,
        Charset::Utf8 | Charset::Legacy(_) if bytes[0] < 0x80 => {
            text.push(char::from(bytes[0]));
            1
        }
        Charset::Utf8 | Charset::Legacy(_) => {
            for length in 1..=bytes.len().min(4) {
                let good = match charset {
                    Charset::Legacy(encoding) => {
                        encoding.decode_without_bom_handling_and_without_replacement(&bytes[..length])
                    }
                    _ => std::str::from_utf8(&bytes[..length]).ok().map(Cow::Borrowed),
                };
                if let Some(good) = good.filter(|it| !it.is_empty()) {
                    text.push_str(&good);
                    return length;
                }
            }
            text.push(char::REPLACEMENT_CHARACTER);
            1
        }
        Charset::Utf16Le | Charset::Utf16Be => {
            let units = bytes.chunks_exact(2).take(2).map(|pair| utf16_unit(charset, pair));
            let it = match char::decode_utf16(units).next() {
                Some(Ok(it)) => it,
                Some(Err(_)) => char::REPLACEMENT_CHARACTER,
                None => {
                    text.push(char::REPLACEMENT_CHARACTER);
                    return 1;
                }
            };
            text.push(it);
            it.len_utf16() * 2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: &[u8]) -> String {
        match detect(bytes, true) {
            Ok(format) => format!("{} | {}", format.note().unwrap_or_default(), DecodedText::new(bytes, format).text),
            Err(what) => format!("binary: {what}"),
        }
    }

    #[test]
    fn tells_how_a_file_is_written() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        let table: [(&[u8], &str); 21] = [
            (b"", " | "),
            ("caf\u{e9}".as_bytes(), " | café"),
            (b"\xef\xbb\xbfa", "encoding: UTF-8 with BOM | a"),
            (b"\xff\xfea\0\n\0", "encoding: UTF-16 LE with BOM | a\n"),
            (b"\xfe\xff\0a", "encoding: UTF-16 BE with BOM | a"),
            (&utf16("one\ntwo\n"), "encoding: UTF-16 LE without BOM | one\ntwo\n"),
            (b"the caf\xe9 is na\xefve\n", "encoding: Windows-1252 (Latin-1) (guessed) | the café is naïve\n"),
            (b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0!\n", "encoding: windows-1251 (guessed) | Привет, мир!\n"),
            (
                b"\x82\xb1\x82\xea\x82\xcd\x93\xfa\x96\x7b\x8c\xea\x82\xc5\x82\xb7\x81B\n",
                "encoding: Shift_JIS (guessed) | これは日本語です。\n",
            ),
            ("naïve café, élan".as_bytes(), " | naïve café, élan"),
            (
                b"na\xc3\xafve caf\xc3\xa9 \xe9 x",
                "encoding: UTF-8, with bytes that are not, shown as \u{fffd} | naïve café \u{fffd} x",
            ),
            (b"\xc4\xe3\xba\xc3\xa3\xac\xca\xc0\xbd\xe7\xa1\xa3\n", "encoding: GBK (guessed) | 你好，世界。\n"),
            (b"\xbe\xc8\xb3\xe7\xc7\xcf\xbc\xbc\xbf\xe4\n", "encoding: EUC-KR (guessed) | 안녕하세요\n"),
            (b"\xa4\xb3\xa4\xec\xa4\xcf\xc6\xfc\xcb\xdc\xb8\xec\n", "encoding: EUC-JP (guessed) | これは日本語\n"),
            (b"Stra\xdfe, \xc4pfel, \xfcber\n", "encoding: Windows-1252 (Latin-1) (guessed) | Straße, Äpfel, über\n"),
            (
                b"price: 5 \x80 \x96 \x93quoted\x94\n",
                "encoding: Windows-1252 (Latin-1) (guessed) | price: 5 € – “quoted”\n",
            ),
            (b"x = '\xb0C'\n", "encoding: Windows-1252 (Latin-1) (guessed) | x = '°C'\n"),
            (b"\x7fELF\x02\x01\x01\0", "binary: ELF program or library"),
            (b"PK\x03\x04\x14\0", "binary: zip archive (or a document or package in one)"),
            (b"one\0two", "binary: data with a NUL byte at 3"),
            (b"ID3 tags are explained here\n", " | ID3 tags are explained here\n"),
        ];
        for (bytes, want) in table {
            assert_eq!(seen(bytes), want, "{bytes:x?}");
        }
    }

    #[test]
    fn a_pdf_is_known_by_its_mark_and_text_about_it_is_text() {
        assert!(is_pdf(b"%PDF-1.7\n"));
        assert!(is_pdf(b"\0\0junk%PDF-1.4"));
        assert!(!is_pdf(b"// the mark is `%PDF-`\n"));
    }

    #[test]
    fn characters_know_their_bytes() {
        let bytes = b"\x82\xb1\\\x82\xea\n\xff\x95\x5c!";
        let decoded =
            DecodedText::new(bytes, TextFormat { charset: Charset::Legacy(SHIFT_JIS), bom: 0, damaged: false });
        assert_eq!(decoded.text, "こ\\れ\n\u{fffd}表!");
        let at = decoded.text.find('表').unwrap();
        assert_eq!(decoded.bytes_of(at..at + 3), Some(7..9));
        assert_eq!(decoded.bytes_of(1..3), None);
    }
}
