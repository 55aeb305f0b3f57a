//! Pages as text: HTML in, Markdown or plain text out. Runs in the limited child only.
//!
//! - `tame`: takes away what nests too deep, before anything is parsed.
//! - `page`: the article or the whole, and its title.
//! - `write`: elements to lines.
//! - `inline`: what stands inside a line.
//! - `table`: tables.

mod inline;
mod page;
mod table;
mod tame;
mod write;

pub(crate) use page::{HtmlPage, render_page};

use serde::{Deserialize, Serialize};

/// What the text is made like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HtmlTextStyle {
    /// Markdown.
    Markdown,
    /// Text for reading: links as `text (address)`, images as `[Image: …]`.
    Text,
}

/// How much of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HtmlPart {
    /// The article, where there is one.
    Main,
    /// Everything.
    Whole,
}
