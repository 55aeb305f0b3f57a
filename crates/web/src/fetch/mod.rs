//! Pages: from a URL to text for a model.
//!
//! - `body`: what a body is, by its header and its first bytes.
//! - `charset`: bytes to characters.
//! - `visible`: removes invisible characters.
//! - `fetcher`: the way from the address to the text.

mod body;
mod charset;
mod fetcher;
mod visible;

pub use fetcher::PageFetcher;
