//! The table of characters that are invisible but change how a text is read.

/// The kinds of invisible characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invisible {
    /// Joins or modifies the character before it; common in many scripts and in emoji.
    Joiner,
    /// A direction mark or a soft hyphen, which some scripts use in ordinary text.
    Mark,
    /// A zero-width space, direction override, tag or filler: no text needs it.
    Hidden,
}

/// The kind of an invisible character; `None` for all others. Control characters are not in the table: use
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

/// Scans a text and reports invisible characters that have no legitimate purpose.
///
/// A joiner is legitimate after a letter or symbol of a non-Latin script, and after a digit that it turns into a keycap
/// (`1️⃣`). A zero-width joiner is also legitimate after the selector of such a symbol (`🏳️‍🌈`). A joiner after ASCII
/// text or after another invisible character hides something.
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
    /// The last two characters, the latest first.
    before: [char; 2],
}

impl InvisibleScan {
    /// Takes the next character and returns its kind, if it is invisible without a legitimate purpose.
    pub fn next(&mut self, it: char) -> Option<Invisible> {
        let [last, earlier] = self.before;
        self.before = [it, last];
        let kind = invisible(it)?;
        let joins = is_base(last) || (it == '\u{200d}' && matches!(last, '\u{fe0e}' | '\u{fe0f}') && is_base(earlier));
        (kind != Invisible::Joiner || !joins).then_some(kind)
    }
}

/// Whether a joiner is legitimate after this character.
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
        // Alternating selectors and joiners can encode bits; no symbol needs them.
        assert_eq!(stray(&format!("雪{}", "\u{fe0f}\u{200d}".repeat(8))), 14);
    }
}
