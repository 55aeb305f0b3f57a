//! Takes away tags that nest deeper than any page for people does. A parser's work grows with the square of the depth,
//! and what walks the tree afterwards needs a stack; browsers stop at 512 too.

use std::borrow::Cow;

/// The deepest that elements stay elements; their text stays anyway.
const MAX_DEPTH: usize = 512;
/// Elements that close by themselves, or never open: they do not add up.
const NON_NESTING_ELEMENTS: &[&str] = &[
    "p", "li", "dt", "dd", "td", "th", "tr", "tbody", "thead", "tfoot", "option", "optgroup", "colgroup", "rb", "rt",
    "rtc", "rp", "html", "head", "body", "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta",
    "source", "track", "wbr", "param", "keygen", "frame", "image",
];
/// Elements whose content is no markup.
const RAW_TEXT_ELEMENTS: &[&str] =
    &["script", "style", "textarea", "title", "xmp", "noembed", "noframes", "iframe", "noscript"];

/// The page, with deep tags gone. Whether something was.
pub(super) fn limit_depth(html: &str) -> (Cow<'_, str>, bool) {
    let (mut depth, mut skipped, mut kept) = (0_usize, 0_usize, 0_usize);
    let mut out: Option<String> = None;
    let mut at = 0;
    while let Some(tag) = next_tag(html, at) {
        at = tag.end;
        let raw = RAW_TEXT_ELEMENTS.iter().any(|it| tag.name.eq_ignore_ascii_case(it));
        if raw && !tag.closes {
            at = skip_raw_text(html, tag.end, tag.name);
            continue;
        }
        if raw || NON_NESTING_ELEMENTS.iter().any(|it| tag.name.eq_ignore_ascii_case(it)) {
            continue;
        }
        let drop = match (tag.closes, skipped, depth) {
            (true, 1.., _) => {
                skipped -= 1;
                true
            }
            (true, 0, _) => {
                depth = depth.saturating_sub(1);
                false
            }
            (false, _, MAX_DEPTH..) => {
                skipped += 1;
                true
            }
            (false, ..) => {
                depth += 1;
                false
            }
        };
        if drop {
            let out = out.get_or_insert_default();
            out.push_str(&html[kept..tag.start]);
            kept = tag.end;
        }
    }
    match out {
        None => (Cow::Borrowed(html), false),
        Some(mut out) => {
            out.push_str(&html[kept..]);
            (Cow::Owned(out), true)
        }
    }
}

struct HtmlTag<'a> {
    start: usize,
    end: usize,
    name: &'a str,
    closes: bool,
}

/// The next tag from here, comments left out. What never ends is no tag.
fn next_tag(html: &str, mut at: usize) -> Option<HtmlTag<'_>> {
    let bytes = html.as_bytes();
    loop {
        let start = at + html.get(at..)?.find('<')?;
        let rest = &html[start..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            at = start + 4 + comment.find("-->")? + 3;
            continue;
        }
        let closes = bytes.get(start + 1) == Some(&b'/');
        let from = start + 1 + usize::from(closes);
        if !bytes.get(from).is_some_and(u8::is_ascii_alphabetic) {
            at = start + 1;
            continue;
        }
        let length = bytes[from..].iter().position(|it| it.is_ascii_whitespace() || matches!(it, b'>' | b'/'))?;
        let end = tag_end(bytes, from + length)?;
        return Some(HtmlTag { start, end, name: &html[from..from + length], closes });
    }
}

/// Where a tag ends; a `>` in quotes does not count.
fn tag_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'')
                if bytes[from..at].iter().rev().find(|it| !it.is_ascii_whitespace()) == Some(&b'=') =>
            {
                quote = Some(*byte);
            }
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    None
}

/// Past the end tag of an element whose content is no markup.
fn skip_raw_text(html: &str, from: usize, name: &str) -> usize {
    let bytes = html.as_bytes();
    let mut at = from;
    while let Some(found) = html.get(at..).and_then(|it| it.find("</")) {
        let start = at + found + 2;
        at = start;
        if bytes.get(start..start + name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes())) {
            return at + name.len();
        }
    }
    html.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_for_people_is_left_alone() {
        let page = "<!doctype html><p>a<p>b<ul><li>c<li>d</ul><script>'<div>'.repeat(9)</script><!-- <b> --><a title='>'>x</a>";
        assert_eq!(limit_depth(page), (Cow::Borrowed(page), false));
        let flat = "<p>x<li>y".repeat(10_000);
        assert!(!limit_depth(&flat).1);
    }

    #[test]
    fn deep_tags_go_and_their_text_stays() {
        let page = format!("{}deep{}<p>after", "<div>".repeat(100_000), "</div>".repeat(100_000));
        let (tame, changed) = limit_depth(&page);
        let expected = format!("{}deep{}<p>after", "<div>".repeat(512), "</div>".repeat(512));
        assert_eq!((&*tame, changed), (&*expected, true));
    }

    #[test]
    fn ends_on_what_never_ends() {
        for page in ["<", "<div", "<div a='", "<!--", "<script>", "</", "<a b=\">", "é<ü>"] {
            assert_eq!(limit_depth(page), (Cow::Borrowed(page), false));
        }
    }
}
