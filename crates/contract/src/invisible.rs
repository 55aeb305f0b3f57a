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

/// Reads a text character by character and tells which of them are invisible without a reason.
///
/// A joiner has a reason after a letter or sign of another script, and after a digit that it makes into a key (`1️⃣`). A
/// zero-width joiner also has one after the selector of such a sign (`🏳️‍🌈`). A joiner after ASCII text or after another
/// invisible character hides something.
///
/// ```
/// use helve_contract::{Invisible, InvisibleScan};
///
/// let mut scan = InvisibleScan::default();
/// let found: Vec<_> = "🏳️‍🌈a\u{200d}".chars().filter_map(|it| scan.next(it)).collect();
/// assert_eq!(found, [Invisible::Joiner]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct InvisibleScan {
    /// The last two characters, the last one first.
    before: [char; 2],
}

impl InvisibleScan {
    /// Takes the next character of the text: what kind of invisible character it is, if it is one without a reason.
    pub fn next(&mut self, it: char) -> Option<Invisible> {
        let [last, earlier] = self.before;
        self.before = [it, last];
        let kind = invisible(it)?;
        let joins = is_base(last) || (it == '\u{200d}' && matches!(last, '\u{fe0e}' | '\u{fe0f}') && is_base(earlier));
        (kind != Invisible::Joiner || !joins).then_some(kind)
    }
}

/// Whether a joiner after this character has a meaning.
fn is_base(it: char) -> bool {
    let is_keycap = matches!(it, '0'..='9' | '#' | '*');
    (is_keycap || !it.is_ascii()) && invisible(it).is_none_or(|kind| kind == Invisible::Mark) && !it.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joiners_need_something_to_join() {
        let stray = |text: &str| {
            let mut scan = InvisibleScan::default();
            text.chars().filter(|it| scan.next(*it).is_some()).count()
        };
        for text in ["👩‍💻", "1️⃣", "می‌خواهم", "🏳️‍🌈", "❤️‍🔥", "👁️‍🗨️", "雪\u{fe00}", "क्‍ष"]
        {
            assert_eq!(stray(text), 0, "{text}");
        }
        for text in
            ["a\u{200d}", " \u{fe0f}", "\u{200d}", "雪\u{200d}\u{200d}", "雪\u{fe00}\u{fe01}", "\u{fe0f}\u{200d}"]
        {
            assert!(stray(text) > 0, "{text:?}");
        }
        // Selectors and joiners that take turns carry bits, and no sign needs them.
        assert_eq!(stray(&format!("雪{}", "\u{fe0f}\u{200d}".repeat(8))), 14);
    }
}
