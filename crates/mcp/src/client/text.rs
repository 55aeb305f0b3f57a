//! Makes untrusted text safe to show.

use helve_contract::{Invisible, invisible};

/// Bytes of a message that is only told.
const MAX_QUOTE_BYTES: usize = 2000;

/// A description: at most `most` characters, none of them invisible.
pub(crate) fn clean_description(text: &str, most: usize) -> String {
    text.chars().filter(|it| !is_invisible(*it)).take(most).collect()
}

/// Whether a character does something other than to be seen.
pub(crate) fn is_invisible(it: char) -> bool {
    !matches!(it, '\n' | '\t') && (it.is_control() || invisible(it).is_some())
}

/// Removes control characters that affect a terminal or the text direction; keeps the text.
pub(crate) fn strip_control(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '\n' | '\t' | '\r' => out.push(it),
            it if invisible(it) == Some(Invisible::Hidden) => {}
            it if it.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(it))),
            it => out.push(it),
        }
    }
    out
}

/// Quotes a server's message in one of Helve's.
pub(crate) fn quote_message(text: &str) -> String {
    let text = strip_control(text.trim());
    if text.len() <= MAX_QUOTE_BYTES {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_QUOTE_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_not_kept() {
        assert_eq!(
            clean_description("Reads\u{200b} a\u{e0041}\u{1b}[2J file.\nOnce\u{202e}.", 100),
            "Reads a[2J file.\nOnce."
        );
        assert_eq!(clean_description("abcdef", 3), "abc");
        assert_eq!(strip_control("a\u{1b}]52;c;x\u{7}\u{202e}b\tc"), "a\\x1b]52;c;x\\x07b\tc");
    }
}
