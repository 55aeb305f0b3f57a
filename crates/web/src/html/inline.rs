//! What stands inside a line: words, emphasis, code, links, images.

use dom_query::NodeRef;

use super::{
    HtmlTextStyle,
    write::{HtmlWriter, is_skipped, name, raw_text},
};

impl HtmlWriter<'_> {
    /// The inline content of a node, in one line but for line breaks that the page asks for.
    pub(super) fn line(&self, node: &NodeRef<'_>) -> String {
        let mut line = InlineBuffer::default();
        for child in node.children_it(false) {
            self.inline(&child, &mut line);
        }
        line.finish()
    }

    pub(super) fn inline(&self, node: &NodeRef<'_>, line: &mut InlineBuffer) {
        if node.is_text() {
            line.push_text(&node.text());
            return;
        }
        let Some(tag) = name(node) else { return };
        if is_skipped(node, &tag) {
            return;
        }
        match &*tag {
            "br" => line.break_here(self.style),
            "img" => self.image(node, line),
            "a" => self.link(node, line),
            "b" | "strong" if self.style == HtmlTextStyle::Markdown => self.emphasis(node, line, "**"),
            "i" | "em" | "cite" | "dfn" if self.style == HtmlTextStyle::Markdown => self.emphasis(node, line, "*"),
            "del" | "s" | "strike" if self.style == HtmlTextStyle::Markdown => self.emphasis(node, line, "~~"),
            "code" | "kbd" | "samp" | "tt" => {
                let text = raw_text(node).split_whitespace().collect::<Vec<_>>().join(" ");
                let (before, after) = edge_spaces(&node.text());
                line.push_with_spaces(before, &code_span(&text), after);
            }
            "q" => {
                line.raw("“");
                self.children(node, line);
                line.raw("”");
            }
            "td" | "th" | "p" | "div" | "li" | "dd" | "dt" | "section" | "article" | "h1" | "h2" | "h3" | "h4" => {
                line.push_space();
                self.children(node, line);
                line.push_space();
            }
            _ => self.children(node, line),
        }
    }

    fn children(&self, node: &NodeRef<'_>, line: &mut InlineBuffer) {
        for child in node.children_it(false) {
            self.inline(&child, line);
        }
    }

    /// Emphasis goes around words, never around blanks.
    fn emphasis(&self, node: &NodeRef<'_>, line: &mut InlineBuffer, mark: &str) {
        let inner = self.line(node);
        let (before, after) = edge_spaces(&node.text());
        if inner.is_empty() || inner.contains('\n') || inner.starts_with(mark) || line.inside == Some(mark.len()) {
            return line.push_with_spaces(before, &inner, after);
        }
        line.push_with_spaces(before, &format!("{mark}{inner}{mark}"), after);
    }

    fn link(&self, node: &NodeRef<'_>, line: &mut InlineBuffer) {
        let inner = self.line(node);
        let (before, after) = edge_spaces(&node.text());
        let href = node.attr("href").and_then(|it| self.absolute_url(&it));
        match href {
            Some(href) if !inner.is_empty() => line.push_with_spaces(before, &self.linked(&inner, &href), after),
            _ => line.push_with_spaces(before, &inner, after),
        }
    }

    /// Words that lead somewhere.
    pub(super) fn linked(&self, text: &str, href: &str) -> String {
        match self.style {
            HtmlTextStyle::Markdown => format!("[{}]({})", text.replace('\n', " "), escape_link_target(href)),
            HtmlTextStyle::Text if text == href || href.strip_prefix("mailto:") == Some(text) => text.to_owned(),
            HtmlTextStyle::Text => format!("{text} ({href})"),
        }
    }

    fn image(&self, node: &NodeRef<'_>, line: &mut InlineBuffer) {
        let alt = node.attr("alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        let source = ["src", "data-src"].iter().filter_map(|it| node.attr(it)).find_map(|it| self.absolute_url(&it));
        match (self.style, source) {
            (HtmlTextStyle::Text, _) if !alt.is_empty() => line.push_spaced(&format!("[Image: {alt}]")),
            (HtmlTextStyle::Markdown, Some(source)) => {
                line.push_spaced(&format!("![{}]({})", alt.replace(['[', ']'], ""), escape_link_target(&source)));
            }
            (HtmlTextStyle::Markdown, None) if !alt.is_empty() => line.push_spaced(&format!("[Image: {alt}]")),
            _ => {}
        }
    }

    /// An address on the web, in full. What runs, stays on the page or is the content itself leads nowhere.
    pub(super) fn absolute_url(&self, href: &str) -> Option<String> {
        let href: String = href.trim().chars().filter(|it| !it.is_control()).collect();
        if href.is_empty() || href.starts_with('#') || href.len() > 4096 {
            return None;
        }
        let full = match (self.base, url::Url::parse(&href)) {
            (_, Ok(url)) => url,
            (Some(base), Err(_)) => base.join(&href).ok()?,
            (None, Err(_)) => return Some(href),
        };
        matches!(full.scheme(), "http" | "https" | "mailto").then(|| full.to_string())
    }
}

/// An address as Markdown takes it between brackets.
fn escape_link_target(href: &str) -> String {
    let mut open = 0_i32;
    let balanced = href.chars().all(|it| {
        open += i32::from(it == '(') - i32::from(it == ')');
        open >= 0
    }) && open == 0;
    if href.contains([' ', '<', '>']) || !balanced {
        return href
            .replace(' ', "%20")
            .replace('<', "%3C")
            .replace('>', "%3E")
            .replace('(', "%28")
            .replace(')', "%29");
    }
    href.to_owned()
}

/// Code in a line; the fence is longer than any run of backticks inside.
pub(super) fn code_span(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// How many backticks stand together at most.
pub(super) fn longest_run(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or(0)
}

/// Whether a text begins and ends with a blank.
fn edge_spaces(text: &str) -> (bool, bool) {
    (text.starts_with(char::is_whitespace), text.ends_with(char::is_whitespace))
}

/// A line while it is written: blanks are folded into one.
#[derive(Default)]
pub(super) struct InlineBuffer {
    text: String,
    /// A blank is due before the next word.
    blank: bool,
    inside: Option<usize>,
}

impl InlineBuffer {
    /// Words of the page, their blanks folded.
    fn push_text(&mut self, text: &str) {
        if text.starts_with(is_space) {
            self.blank = true;
        }
        let mut first = true;
        for word in text.split(is_space).filter(|it| !it.is_empty()) {
            if !first {
                self.blank = true;
            }
            first = false;
            self.raw(word);
        }
        if text.ends_with(is_space) {
            self.blank = true;
        }
    }

    /// As it is, after the blank that is due.
    fn raw(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.blank && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push(' ');
        }
        self.blank = false;
        self.text.push_str(text);
    }

    fn push_with_spaces(&mut self, before: bool, text: &str, after: bool) {
        self.blank |= before;
        self.raw(text);
        self.blank |= after;
    }

    /// With blanks around it.
    fn push_spaced(&mut self, text: &str) {
        self.push_with_spaces(true, text, true);
    }

    fn push_space(&mut self) {
        self.blank = true;
    }

    fn break_here(&mut self, style: HtmlTextStyle) {
        if self.text.is_empty() {
            return;
        }
        self.blank = false;
        let kept = self.text.trim_end_matches(' ').len();
        self.text.truncate(kept);
        if !self.text.ends_with('\n') {
            self.text.push_str(if style == HtmlTextStyle::Markdown { "  \n" } else { "\n" });
        }
    }

    /// The line, and a fresh one.
    pub(super) fn finish(&mut self) -> String {
        self.blank = false;
        std::mem::take(&mut self.text).trim().to_owned()
    }
}

/// Blanks that a browser folds; a no-break space is kept for the eye only, and folded as well.
fn is_space(it: char) -> bool {
    it.is_whitespace()
}
