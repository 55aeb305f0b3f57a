//! The `Documents` port: PDF files and images. Implementations parse them in a restricted child process.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use crate::{Call, Error, Media, Result};

/// Reads untrusted PDF files and images.
#[async_trait]
pub trait Documents: Send + Sync {
    /// The text of some pages of a PDF, counted from 1. `None` means all. More than 20 at once is an error that
    /// contains the page count.
    async fn pdf(&self, call: &Call, bytes: Vec<u8>, pages: Option<RangeInclusive<u32>>) -> Result<PdfPages>;

    /// Decodes an image to check it, and shrinks it if it exceeds the size that models accept.
    async fn image(&self, call: &Call, bytes: Vec<u8>) -> Result<Image>;
}

/// Pages of a PDF as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdfPages {
    /// The number and text of each requested page.
    pub pages: Vec<(u32, String)>,
    /// The total number of pages.
    pub total: u32,
}

/// A decoded image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The image that the model gets.
    pub media: Media,
    /// Width and height of the original.
    pub original_size: (u32, u32),
    /// Width and height of the image that the model gets.
    pub size: (u32, u32),
}

/// No documents except text.
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
