//! Truncation of long lines in search results.

use helve_contract::ports::MatchLine;

/// Lines with more characters than this are shortened to the part around their first match.
const LONG_LINE: usize = 2000;
/// How many characters of a shortened line are shown before the match, and in all.
const WINDOW: (usize, usize) = (250, 500);

/// The text of a line; for a long one the part around its first match, with the number of omitted bytes.
pub(super) fn line(hit: &MatchLine) -> String {
    let text = String::from_utf8_lossy(&hit.text);
    if hit.left_out == (0, 0) && text.chars().nth(LONG_LINE).is_none() {
        return text.into_owned();
    }
    let (before, shown, after) = window(hit);
    let mark = |bytes: usize| if bytes == 0 { String::new() } else { format!("[... {bytes} bytes]") };
    format!("{}{shown}{}", mark(before), mark(after))
}

/// The part of a line around its first match, and how many bytes are left out before and after it.
fn window(hit: &MatchLine) -> (usize, String, usize) {
    let (before, rest) = hit.text.split_at(hit.at.min(hit.text.len()));
    let (before, rest) = (String::from_utf8_lossy(before), String::from_utf8_lossy(rest));
    let from = before.char_indices().rev().nth(WINDOW.0 - 1).map_or(0, |(at, _)| at);
    let room = WINDOW.1 - before[from..].chars().count();
    let to = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
    let shown = format!("{}{}", &before[from..], &rest[..to]);
    (hit.left_out.0 + from, shown, hit.left_out.1 + rest.len() - to)
}

/// The form of 002 for a long line: its start, or the part around a later match.
pub(super) fn cut(hit: &MatchLine) -> String {
    let text = String::from_utf8_lossy(&hit.text);
    let Some((end, _)) = text.char_indices().nth(WINDOW.1) else { return text.into_owned() };
    if hit.left_out.0 == 0 && hit.at < end {
        return format!("{}... [truncated]", &text[..end]);
    }
    let (before, shown, after) = window(hit);
    let (start, end) = (if before > 0 { "... " } else { "" }, if after > 0 { "... [truncated]" } else { "" });
    format!("{start}{shown}{end}")
}
