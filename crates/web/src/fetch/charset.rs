//! Decodes bytes: byte order mark, header, declaration in the page, then a guess.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// How far a page is searched for what it says of itself.
const SNIFF_BYTES: usize = 4096;

/// The text, and the name of its charset where that is not UTF-8.
pub(super) fn decode(bytes: &[u8], header: Option<&str>) -> (String, Option<&'static str>) {
    let encoding = Encoding::for_bom(bytes)
        .map(|(it, _)| it)
        .or_else(|| header.and_then(from_header))
        .or_else(|| from_meta(bytes));
    let encoding = encoding.unwrap_or_else(|| guess(bytes));
    let (text, encoding, _) = encoding.decode(bytes);
    (text.into_owned(), (encoding != UTF_8).then(|| encoding.name()))
}

/// `text/html; charset="x"`.
fn from_header(header: &str) -> Option<&'static Encoding> {
    let said = header.split(';').skip(1).find_map(|it| {
        let (name, value) = it.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then_some(value)
    })?;
    Encoding::for_label(said.trim().trim_matches(['"', '\'']).as_bytes())
}

/// `<meta charset=x>`, `<meta … content="…; charset=x">` or `<?xml … encoding="x"?>` near the beginning.
fn from_meta(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SNIFF_BYTES)]).to_ascii_lowercase();
    let xml = head
        .trim_start()
        .strip_prefix("<?xml")
        .and_then(|it| it.split("?>").next())
        .and_then(|it| attribute_value(it, "encoding"));
    let said = xml.or_else(|| {
        head.split("<meta").skip(1).find_map(|it| attribute_value(it.split('>').next().unwrap_or(it), "charset"))
    })?;
    let found = Encoding::for_label(said.as_bytes())?;
    // A page whose declaration was readable as ASCII is not UTF-16, whatever it declares.
    Some(if found == UTF_16LE || found == UTF_16BE { UTF_8 } else { found })
}

/// What stands after `name=` in a piece of markup.
fn attribute_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text[text.find(name)? + name.len()..].trim_start().strip_prefix('=')?.trim_start();
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(['"', '\'', ';', ' ', '/', '>']).unwrap_or(rest.len());
    Some(rest[..end].trim()).filter(|it| !it.is_empty())
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(bytes).is_ok() {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_say_the_charset_counts_in_its_order() {
        for (bytes, header, text, name) in [
            (&b"caf\xc3\xa9"[..], None, "café", None),
            (b"\xef\xbb\xbfcaf\xc3\xa9", Some("text/html; charset=latin1"), "café", None),
            (b"\xff\xfeh\0i\0", None, "hi", Some("UTF-16LE")),
            (b"caf\xe9", Some("text/html;Charset=\"ISO-8859-1\""), "café", Some("windows-1252")),
            (b"<meta charset='windows-1251'>\xcf", None, "<meta charset='windows-1251'>П", Some("windows-1251")),
            (
                b"<meta http-equiv=x content=\"text/html; charset=shift_jis\">\x82\xa0",
                None,
                "<meta http-equiv=x content=\"text/html; charset=shift_jis\">あ",
                Some("Shift_JIS"),
            ),
            (
                b"<?xml version='1.0' encoding='iso-8859-1'?>\xe9",
                None,
                "<?xml version='1.0' encoding='iso-8859-1'?>é",
                Some("windows-1252"),
            ),
            (b"<meta charset=utf-16>x", None, "<meta charset=utf-16>x", None),
            (b"caf\xe9 au lait", None, "café au lait", Some("windows-1252")),
            (b"x", Some("text/plain; charset=klingon"), "x", None),
        ] {
            assert_eq!(decode(bytes, header), (text.to_owned(), name));
        }
    }
}
