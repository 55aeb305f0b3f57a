//! Text of strangers, without what nobody sees: such characters carry words to a model past the eyes of people.

/// The text without them, and how many there were that nobody uses to write.
pub(super) fn visible(text: String) -> (String, usize) {
    if text.is_ascii() && !text.bytes().any(|it| it.is_ascii_control() && !matches!(it, b'\n' | b'\t')) {
        return (text, 0);
    }
    let (mut out, mut hidden) = (String::with_capacity(text.len()), 0);
    let mut before = ' ';
    for it in text.chars() {
        match it {
            '\r' => continue,
            // A soft hyphen and the marks of direction are used by typesetters, and say nothing.
            '\u{ad}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{feff}' => continue,
            '\u{200b}' if !before.is_ascii() => continue,
            // Joiners and selectors belong to letters and signs of other scripts; a row of them belongs to nothing.
            '\u{200c}' | '\u{200d}' if !before.is_ascii() && !matches!(before, '\u{200c}' | '\u{200d}') => {}
            '\u{fe00}'..='\u{fe0f}' if !before.is_ascii() && !matches!(before, '\u{fe00}'..='\u{fe0f}') => {}
            '\n' | '\t' => {}
            _ if is_hidden(it) => {
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

fn is_hidden(it: char) -> bool {
    it.is_control()
        || matches!(it,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
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
            let (text, hidden) = visible(text);
            assert_eq!((text.as_str(), hidden), expected);
        }
    }
}
