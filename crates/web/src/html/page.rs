//! A page: its title, and the article or the whole of it as text.

use dom_query::Document;
use dom_smoothie::{Config, Readability};
use url::Url;

use super::{HtmlPart, HtmlTextStyle, tame::limit_depth, write::HtmlWriter};

/// More elements than this are no page for people, and are not searched for an article.
const MAX_ELEMENTS: usize = 200_000;
/// An article that is shorter than this is likely none, if there is far more around it.
const MIN_ARTICLE_CHARS: usize = 250;

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HtmlPage {
    pub(crate) title: String,
    pub(crate) text: String,
    /// Whether only the article is in the text.
    pub(crate) article: bool,
    pub(crate) notes: Vec<String>,
}

/// Reads a page.
pub(crate) fn render_page(html: &str, url: &str, style: HtmlTextStyle, part: HtmlPart) -> HtmlPage {
    let (html, deep) = limit_depth(html);
    let base = Url::parse(url).ok();
    let mut notes = Vec::new();
    if deep {
        notes.push("elements that nest more than 512 deep were taken out of their places".to_owned());
    }
    let document = Document::from(&*html);
    let title = title(&document);
    if part == HtmlPart::Main
        && let Some((found, text)) = extract_article(&html, base.as_ref(), style)
    {
        let long = text.chars().count() >= MIN_ARTICLE_CHARS;
        if long || render_whole(&document, base.as_ref(), style).chars().count() < 8 * MIN_ARTICLE_CHARS {
            let title = if found.is_empty() { title } else { found };
            return HtmlPage { title, text, article: true, notes };
        }
    }
    HtmlPage { title, text: render_whole(&document, base.as_ref(), style), article: false, notes }
}

fn extract_article(html: &str, base: Option<&Url>, style: HtmlTextStyle) -> Option<(String, String)> {
    let config = Config { keep_classes: true, max_elements_to_parse: MAX_ELEMENTS, ..Config::default() };
    let mut reader = Readability::new(html, base.map(Url::as_str), Some(config)).ok()?;
    let article = reader.parse().ok()?;
    let content = Document::fragment(article.content);
    let text = HtmlWriter::new(style, base).write(&content.root());
    (!text.trim().is_empty()).then(|| (single_line(&article.title), text))
}

fn render_whole(document: &Document, base: Option<&Url>, style: HtmlTextStyle) -> String {
    // A page may say that its links start elsewhere.
    let said = document.base_uri();
    let base = match (base, said) {
        (Some(base), Some(said)) => base.join(&said).ok(),
        (base, _) => base.cloned(),
    };
    let root = document.body().unwrap_or_else(|| document.root());
    HtmlWriter::new(style, base.as_ref()).write(&root)
}

fn title(document: &Document) -> String {
    let found = document.select_single("head > title");
    let found = if found.exists() { found } else { document.select_single("title") };
    single_line(&found.text())
}

/// One line of it, without blanks around.
fn single_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(500).collect()
}
