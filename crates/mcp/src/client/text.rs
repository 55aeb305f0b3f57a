//! A stranger's text, made fit to be shown.

/// Bytes of a message that is only told.
const REMARK: usize = 2000;

/// A description: at most `most` characters, none of them invisible.
pub(crate) fn clean(text: &str, most: usize) -> String {
    text.chars().filter(|it| !is_hidden(*it)).take(most).collect()
}

/// Whether a character does something other than to be seen.
pub(crate) fn is_hidden(it: char) -> bool {
    !matches!(it, '\n' | '\t')
        && (it.is_control()
            || matches!(it,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
                | '\u{feff}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'))
}

/// The words of an answer: nothing that moves a terminal or turns the text around; what is written stays.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '\n' | '\t' | '\r' => out.push(it),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e0fff}' => {}
            it if it.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(it))),
            it => out.push(it),
        }
    }
    out
}

/// A server's message inside one of ours.
pub(crate) fn remark(text: &str) -> String {
    let text = plain(text.trim());
    if text.len() <= REMARK {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(REMARK)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_not_kept() {
        assert_eq!(clean("Reads\u{200b} a\u{e0041}\u{1b}[2J file.\nOnce\u{202e}.", 100), "Reads a[2J file.\nOnce.");
        assert_eq!(clean("abcdef", 3), "abc");
        assert_eq!(plain("a\u{1b}]52;c;x\u{7}\u{202e}b\tc"), "a\\x1b]52;c;x\\x07b\tc");
    }
}
