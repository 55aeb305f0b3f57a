//! Reading of files that are not text. Makers parse them in a limited child process.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use crate::{Call, Error, Media, Result};

/// Reads PDF files and pictures that nobody vouches for.
#[async_trait]
pub trait Documents: Send + Sync {
    /// The text of some pages of a PDF, counted from 1. `None` asks for all; more than 20 at once is an error that
    /// says how many there are.
    async fn pdf(&self, call: &Call, bytes: Vec<u8>, pages: Option<RangeInclusive<u32>>) -> Result<PdfPages>;

    /// A picture, checked by decoding it, and made smaller where it is larger than models take.
    async fn image(&self, call: &Call, bytes: Vec<u8>) -> Result<Image>;
}

/// Pages of a PDF as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdfPages {
    /// Number and text of each page asked for.
    pub pages: Vec<(u32, String)>,
    /// How many pages there are in all.
    pub total: u32,
}

/// A picture that decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What the model gets.
    pub media: Media,
    /// Width and height of the original.
    pub original_size: (u32, u32),
    /// Width and height of what the model gets.
    pub size: (u32, u32),
}

/// No documents but text.
pub struct NoDocuments;

#[async_trait]
impl Documents for NoDocuments {
    async fn pdf(&self, _: &Call, _: Vec<u8>, _: Option<RangeInclusive<u32>>) -> Result<PdfPages> {
        Err(Error::failed("PDF files cannot be read in this session"))
    }
    async fn image(&self, _: &Call, _: Vec<u8>) -> Result<Image> {
        Err(Error::failed("pictures cannot be read in this session"))
    }
}
