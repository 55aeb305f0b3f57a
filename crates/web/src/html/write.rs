//! Elements to lines: headings, paragraphs, lists, quotes, code.

use dom_query::NodeRef;
use url::Url;

use super::{
    HtmlTextStyle,
    inline::{InlineBuffer, longest_run},
};

/// Lists and quotes are set in so far and no further.
const MAX_INDENT: usize = 12;

/// Writes elements as text.
pub(super) struct HtmlWriter<'a> {
    pub(super) style: HtmlTextStyle,
    pub(super) base: Option<&'a Url>,
}

/// Where in the page we are.
#[derive(Clone, Default)]
pub(super) struct BlockContext {
    /// How many lists and quotes are around.
    depth: usize,
    /// A link around whole blocks.
    link: Option<String>,
}

impl<'a> HtmlWriter<'a> {
    pub(super) fn new(style: HtmlTextStyle, base: Option<&'a Url>) -> Self {
        Self { style, base }
    }

    /// Everything in a node.
    pub(super) fn write(&self, node: &NodeRef<'_>) -> String {
        let mut text = self.blocks(node, &BlockContext::default()).join("\n\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The blocks in a node: what stands between blank lines.
    pub(super) fn blocks(&self, node: &NodeRef<'_>, place: &BlockContext) -> Vec<String> {
        let (mut out, mut line) = (Vec::new(), InlineBuffer::default());
        for child in node.children_it(false) {
            self.child(&child, place, &mut out, &mut line);
        }
        self.flush(&mut out, &mut line, place);
        out
    }

    fn child(&self, child: &NodeRef<'_>, place: &BlockContext, out: &mut Vec<String>, line: &mut InlineBuffer) {
        let Some(tag) = name(child) else { return self.inline(child, line) };
        if is_skipped(child, &tag) {
            return;
        }
        if !is_block(&tag) {
            if !has_block(child) {
                return self.inline(child, line);
            }
            // A link or a span around whole blocks.
            self.flush(out, line, place);
            let link = (*tag == *"a").then(|| child.attr("href").and_then(|it| self.absolute_url(&it))).flatten();
            let place = BlockContext { link: link.or_else(|| place.link.clone()), ..place.clone() };
            return out.extend(self.blocks(child, &place));
        }
        self.flush(out, line, place);
        match &*tag {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = usize::from(tag.as_bytes()[1] - b'0');
                let text = self.line(child).replace("  \n", " ").replace('\n', " ");
                if !text.is_empty() {
                    out.push(format!("{} {}", "#".repeat(level), self.wrap_in_link(text, place)));
                }
            }
            "p" | "summary" | "figcaption" | "legend" | "address" if !has_block(child) => {
                let text = self.line(child);
                self.paragraph(text, out, place);
            }
            "hr" => out.push("---".into()),
            "pre" | "listing" | "xmp" | "plaintext" => out.extend(code_block(child)),
            "blockquote" => out.extend(indent_blocks(&self.nested_blocks(child, place), place, "> ", "> ")),
            "ul" | "ol" | "menu" | "dir" => out.extend(self.list(child, place, &tag)),
            "dl" => out.extend(self.definitions(child, place)),
            "table" => self.table(child, place, out),
            _ => out.extend(self.blocks(child, place)),
        }
    }

    fn flush(&self, out: &mut Vec<String>, line: &mut InlineBuffer, place: &BlockContext) {
        self.paragraph(line.finish(), out, place);
    }

    fn paragraph(&self, text: String, out: &mut Vec<String>, place: &BlockContext) {
        if !text.is_empty() {
            out.push(self.wrap_in_link(escape_block_start(text, self.style), place));
        }
    }

    /// The text, as the link that is around it, if one is.
    fn wrap_in_link(&self, text: String, place: &BlockContext) -> String {
        match &place.link {
            Some(href) if !text.contains("](") => self.linked(&text, href),
            _ => text,
        }
    }

    fn nested_blocks(&self, node: &NodeRef<'_>, place: &BlockContext) -> Vec<String> {
        self.blocks(node, &BlockContext { depth: place.depth + 1, ..place.clone() })
    }

    fn list(&self, node: &NodeRef<'_>, place: &BlockContext, tag: &str) -> Option<String> {
        let mut number = node.attr("start").and_then(|it| it.trim().parse::<i64>().ok()).unwrap_or(1).max(0);
        let (mut items, mut loose) = (Vec::new(), false);
        for item in node.children_it(false).filter(NodeRef::is_element) {
            let Some(tag_of_item) = name(&item) else { continue };
            if is_skipped(&item, &tag_of_item) {
                continue;
            }
            let blocks = match &*tag_of_item {
                "li" => self.nested_blocks(&item, place),
                // Some pages put lists right into lists, or wrap their items.
                _ => {
                    let mut wrapped = Vec::new();
                    self.child(
                        &item,
                        &BlockContext { depth: place.depth + 1, ..place.clone() },
                        &mut wrapped,
                        &mut InlineBuffer::default(),
                    );
                    wrapped
                }
            };
            if blocks.is_empty() {
                continue;
            }
            loose |= blocks.len() > 2 || blocks.iter().any(|it| it.starts_with("```"));
            let marker = if tag == "ol" { format!("{number}. ") } else { "- ".to_owned() };
            number += 1;
            let tight = blocks.len() == 2 && is_list(&blocks[1]);
            let indent = " ".repeat(marker.len());
            items.extend(
                indent_blocks(&blocks, place, &marker, &indent)
                    .map(|it| if tight { it.replacen("\n\n", "\n", 1) } else { it }),
            );
        }
        (!items.is_empty()).then(|| items.join(if loose { "\n\n" } else { "\n" }))
    }

    fn definitions(&self, node: &NodeRef<'_>, place: &BlockContext) -> Vec<String> {
        let mut out = Vec::new();
        for item in node.children_it(false).filter(NodeRef::is_element) {
            match name(&item).as_deref() {
                Some("dt") => {
                    let mut inner = self.blocks(&item, place);
                    if let ([only], HtmlTextStyle::Markdown) = (&mut inner[..], self.style)
                        && !only.contains(['*', '\n', '#'])
                    {
                        *only = format!("**{only}**");
                    }
                    out.extend(inner);
                }
                Some("dd") => out.extend(indent_blocks(&self.nested_blocks(&item, place), place, ": ", "  ")),
                Some(_) => out.extend(self.definitions(&item, place)),
                None => {}
            }
        }
        out
    }
}

fn code_block(node: &NodeRef<'_>) -> Option<String> {
    let text = raw_text(node);
    let text = text.trim_end().trim_start_matches(['\n', '\r']);
    if text.trim().is_empty() {
        return None;
    }
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    Some(format!("{fence}{}\n{text}\n{fence}", language(node)))
}

/// What nobody sees on the page, or what is no text.
pub(super) fn is_skipped(node: &NodeRef<'_>, tag: &str) -> bool {
    matches!(
        tag,
        "script"
            | "style"
            | "noscript"
            | "template"
            | "head"
            | "svg"
            | "canvas"
            | "iframe"
            | "object"
            | "embed"
            | "audio"
            | "video"
            | "select"
            | "input"
            | "textarea"
            | "button"
            | "datalist"
            | "map"
            | "title"
            | "meta"
            | "link"
            | "noframes"
    ) || node.has_attr("hidden")
        || node.attr("style").is_some_and(|it| style_hides(&it))
        || (node.attr("aria-hidden").is_some_and(|it| &*it == "true")
            && tag != "img"
            && !node.has_class("fallback-image"))
}

/// Whether a style hides what it is on.
fn style_hides(style: &str) -> bool {
    let style: String = style.chars().filter(|it| !it.is_whitespace()).collect::<String>().to_ascii_lowercase();
    style.split(';').any(|rule| {
        let rule = rule.strip_suffix("!important").unwrap_or(rule);
        matches!(
            rule,
            "display:none"
                | "visibility:hidden"
                | "visibility:collapse"
                | "opacity:0"
                | "font-size:0"
                | "font-size:0px"
        )
    })
}

/// Blocks with a marker before the first line and something before each other.
fn indent_blocks(blocks: &[String], place: &BlockContext, first: &str, then: &str) -> Option<String> {
    if blocks.is_empty() {
        return None;
    }
    let text = blocks.join("\n\n");
    if place.depth >= MAX_INDENT {
        return Some(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let before = if at == 0 { first } else { then };
        out.push_str(if line.is_empty() { before.trim_end() } else { before });
        out.push_str(line);
    }
    Some(out)
}

fn is_list(block: &str) -> bool {
    let rest = block.trim_start_matches(|it: char| it.is_ascii_digit());
    block.starts_with("- ") || (rest.len() < block.len() && rest.starts_with(". "))
}

/// A paragraph that would be read as a heading, a list or a quote says that it is none.
fn escape_block_start(text: String, style: HtmlTextStyle) -> String {
    if style == HtmlTextStyle::Text {
        return text;
    }
    let first = text.split(' ').next().unwrap_or_default();
    let odd = match first {
        "#" | "##" | "###" | "####" | "-" | "+" | "*" | ">" => true,
        it => {
            it.strip_suffix('.')
                .is_some_and(|it| !it.is_empty() && it.len() < 10 && it.bytes().all(|it| it.is_ascii_digit()))
                && text.len() > first.len()
        }
    };
    match odd {
        true if first.ends_with('.') => format!("{}\\{}", &first[..first.len() - 1], &text[first.len() - 1..]),
        true => format!("\\{text}"),
        false => text,
    }
}

/// An element's name; nothing for text and comments.
pub(super) fn name(node: &NodeRef<'_>) -> Option<Box<str>> {
    node.qual_name_ref().map(|it| Box::from(&*it.local))
}

pub(super) fn is_block(tag: &str) -> bool {
    matches!(
        tag,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "center"
            | "dd"
            | "details"
            | "dialog"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "hr"
            | "html"
            | "legend"
            | "li"
            | "listing"
            | "main"
            | "menu"
            | "nav"
            | "ol"
            | "p"
            | "plaintext"
            | "pre"
            | "search"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "td"
            | "tfoot"
            | "th"
            | "thead"
            | "tr"
            | "ul"
            | "xmp"
            | "caption"
    )
}

/// Whether there is a block somewhere inside.
pub(super) fn has_block(node: &NodeRef<'_>) -> bool {
    node.descendants_it().any(|it| name(&it).is_some_and(|it| is_block(&it)))
}

/// The text as it stands in the page, line breaks and all.
pub(super) fn raw_text(node: &NodeRef<'_>) -> String {
    fn gather(node: &NodeRef<'_>, out: &mut String) {
        for child in node.children_it(false) {
            match name(&child).as_deref() {
                Some("br") => out.push('\n'),
                Some("script" | "style" | "button") => {}
                Some(tag) => {
                    let block = matches!(tag, "div" | "p" | "li" | "tr");
                    if block && !out.is_empty() && !out.ends_with('\n') {
                        out.push('\n');
                    }
                    gather(&child, out);
                    if block && !out.ends_with('\n') {
                        out.push('\n');
                    }
                }
                None if child.is_text() => out.push_str(&child.text()),
                None => {}
            }
        }
    }
    let mut out = String::new();
    gather(node, &mut out);
    out
}

/// The language of a block of code, as pages say it: `language-rust`, `lang-py`, `highlight-source-js`, `brush: java`.
fn language(node: &NodeRef<'_>) -> String {
    let inner = node.first_element_child().filter(|it| it.has_name("code"));
    let places = [inner, Some(*node), node.parent()];
    for class in places.into_iter().flatten().filter_map(|it| it.class()) {
        for word in class.split_whitespace() {
            let said = ["language-", "lang-", "highlight-source-"].iter().find_map(|it| word.strip_prefix(it));
            let plain = |it: &&str| {
                !it.is_empty()
                    && it.len() < 20
                    && it.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '#' | '-'))
            };
            if let Some(said) = said.filter(plain) {
                return said.to_ascii_lowercase();
            }
        }
    }
    String::new()
}
