//! Removes invisible characters from untrusted text: they carry text to a model that people do not see.

use helve_contract::{Invisible, InvisibleScan};

/// The text without them, and how many there were that nobody uses to write.
pub(super) fn strip_invisible(text: String) -> (String, usize) {
    if text.is_ascii() && !text.bytes().any(|it| it.is_ascii_control() && !matches!(it, b'\n' | b'\t')) {
        return (text, 0);
    }
    let (mut out, mut hidden) = (String::with_capacity(text.len()), 0);
    let (mut scan, mut before) = (InvisibleScan::default(), ' ');
    for it in text.chars() {
        match (scan.next(it), it) {
            (_, '\r' | '\u{feff}') => continue,
            // Typesetters use soft hyphens and direction marks; they carry no meaning.
            (Some(Invisible::Mark), _) => continue,
            // Scripts without spaces use it as a line break opportunity.
            (_, '\u{200b}') if !before.is_ascii() => continue,
            (None, '\n' | '\t') => {}
            (found, it) if found.is_some() || it.is_control() => {
                hidden += 1;
                continue;
            }
            _ => {}
        }
        out.push(it);
        before = it;
    }
    (out, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_words_go_and_scripts_stay() {
        let tags: String = "go".chars().map(|it| char::from_u32(0xe0000 + u32::from(it)).unwrap()).collect();
        for (text, expected) in [
            ("plain\n\ttext".to_owned(), ("plain\n\ttext", 0)),
            (format!("a{tags}b"), ("ab", 2)),
            ("x\u{200b}\u{200c}y\u{202e}z\u{1b}[31m".to_owned(), ("xyz[31m", 4)),
            ("می‌خواهم".to_owned(), ("می‌خواهم", 0)),
            ("👩‍💻 soft\u{ad}ly\r\n".to_owned(), ("👩‍💻 softly\n", 0)),
        ] {
            let (text, hidden) = strip_invisible(text);
            assert_eq!((text.as_str(), hidden), expected);
        }
    }
}
