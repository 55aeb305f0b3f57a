//! Pages: from an address to text that a model can read.
//!
//! - `body`: what a body is, by its header and its first bytes.
//! - `charset`: bytes to characters.
//! - `visible`: characters that nobody sees are taken out.
//! - `fetcher`: the way from the address to the text.

mod body;
mod charset;
mod fetcher;
mod visible;

pub use fetcher::PageFetcher;
