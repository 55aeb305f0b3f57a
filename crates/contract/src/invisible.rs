//! The one table of characters that a reader does not see but that change how a text is read.

/// A character that leaves no mark of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invisible {
    /// Joins or selects the form of the character before it; a part of many scripts and of emoji.
    Joiner,
    /// A direction mark or a soft hyphen, which ordinary text of some scripts contains.
    Mark,
    /// Zero-width space, a change of direction, a tag, a filler: nothing that a text needs.
    Hidden,
}

/// What kind of invisible character this is; `None` for all others. Control characters are not in the table: ask
/// [`char::is_control`].
///
/// ```
/// use helve_contract::{Invisible, invisible};
///
/// assert_eq!(invisible('\u{202e}'), Some(Invisible::Hidden));
/// assert_eq!(invisible('\u{200d}'), Some(Invisible::Joiner));
/// assert_eq!(invisible('a'), None);
/// ```
#[must_use]
pub fn invisible(it: char) -> Option<Invisible> {
    match it {
        ' '..='~' => None,
        '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => Some(Invisible::Joiner),
        '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{ad}' => Some(Invisible::Mark),
        '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => Some(Invisible::Hidden),
        _ => None,
    }
}

/// Whether a joiner after this character has a meaning: it follows a letter or sign of another script, or a digit that
/// it makes into a key (`1️⃣`). A joiner after ASCII text or after another invisible character hides something.
#[must_use]
pub fn joins(before: char) -> bool {
    let is_keycap = matches!(before, '0'..='9' | '#' | '*');
    (is_keycap || !before.is_ascii())
        && !matches!(before, '\u{200b}'..='\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{2060}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joiners_need_something_to_join() {
        assert!(joins('👩') && joins('1') && joins('م'));
        assert!(!joins('a') && !joins(' ') && !joins('\u{200d}'));
    }
}
