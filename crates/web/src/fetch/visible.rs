//! Text of strangers, without what nobody sees: such characters carry words to a model past the eyes of people.

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
            // A soft hyphen and the marks of direction are used by typesetters, and say nothing.
            (Some(Invisible::Mark), _) => continue,
            // So is a place where a line may end, in scripts without blanks.
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
