//! The protocol between parent and child: a length-prefixed JSON head, then bytes to the end.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::html::{HtmlPart, HtmlTextStyle};

/// The first argument of a child, and the sign for the program to become one.
pub(super) const PARSER_ARG: &str = "__helve-parse-document";
/// A head that is longer than this is not one of ours.
pub(super) const MAX_HEAD_BYTES: usize = 32 << 20;

/// What the parent asks; the document follows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ParseRequest {
    /// The text of pages, first and last, counted from 1.
    Pdf { pages: Option<(u32, u32)> },
    /// An image that a model can take.
    Picture,
    /// A page of the web as text; the page is UTF-8.
    Page { url: String, style: HtmlTextStyle, part: HtmlPart },
}

/// What the child answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ParseResponse {
    /// Number and text of each page.
    Pdf { pages: Vec<(u32, String)>, total: u32 },
    /// The image as it was sent is fine.
    Same { mime: String, size: (u32, u32) },
    /// A new image follows.
    Made { mime: String, original: (u32, u32), shown: (u32, u32) },
    /// The page's text follows.
    Page { title: String, article: bool, notes: Vec<String> },
    /// It cannot be read, and why.
    Refused(String),
}

/// The head as it goes over the pipe.
pub(super) fn encode_head(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes()[..], &json].concat())
}

/// Takes a head from the front of what came over the pipe, and leaves the bytes behind it.
pub(super) fn split<T: DeserializeOwned>(all: &[u8]) -> Option<(T, &[u8])> {
    let (length, rest) = all.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_HEAD_BYTES {
        return None;
    }
    let (json, bytes) = rest.split_at_checked(length)?;
    Some((serde_json::from_slice(json).ok()?, bytes))
}

/// Reads everything, up to a limit.
pub(super) fn read_all(from: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.take(limit).read_to_end(&mut all)?;
    Ok(all)
}

/// Writes an answer and the bytes that follow it.
pub(super) fn send(mut to: impl Write, answer: &ParseResponse, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&encode_head(answer)?)?;
    to.write_all(bytes)?;
    to.flush()
}
