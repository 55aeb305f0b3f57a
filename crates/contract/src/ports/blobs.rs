//! The `Blobs` port: content stored by its hash, such as attachments and undo data.

use std::{collections::HashSet, fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// The largest blob, in bytes.
pub const MAX_BLOB: u64 = 256 << 20;

/// Chunks of a blob, in order.
pub type BlobStream<'a> = BoxStream<'a, Result<Vec<u8>>>;

/// Content addressed by its hash. A handle belongs to one tenant and cannot read blobs of other tenants.
///
/// Blobs are immutable. The content is on disk when [`put`](Self::put) returns; a failed put stores nothing. Blobs have
/// no owner: [`remove_unreferenced`](Self::remove_unreferenced) removes those that were not used for some time.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Whether this store accepts blobs.
    fn is_available(&self) -> bool {
        true
    }
    /// Stores content. Equal content is one blob, and counts as used now. [`Error::BlobTooLarge`]: the content exceeds
    /// [`MAX_BLOB`] or the limit of this store.
    async fn put(&self, bytes: Vec<u8>) -> Result<BlobId>;
    /// Stores content that arrives in chunks, without holding all of it in memory.
    async fn put_stream(&self, pieces: BlobStream<'_>) -> Result<BlobId>;
    /// Reads content and verifies its hash. `None`: no such blob. [`Error::BlobDamaged`]: the hash does not match.
    async fn get(&self, id: &BlobId) -> Result<Option<Vec<u8>>>;
    /// Reads content in chunks. Only the end of the stream confirms the content: for a damaged blob the last item is
    /// [`Error::BlobDamaged`], and the caller must discard the earlier chunks.
    async fn get_stream(&self, id: &BlobId) -> Result<Option<BlobStream<'static>>>;
    /// Whether the blob exists. Does not read its content.
    async fn has(&self, id: &BlobId) -> Result<bool> {
        Ok(self.size(id).await?.is_some())
    }
    /// The size in bytes. `None`: no such blob.
    async fn size(&self, id: &BlobId) -> Result<Option<u64>>;
    /// Marks a blob as used now. `false`: no such blob.
    async fn touch(&self, id: &BlobId) -> Result<bool>;
    /// Removes blobs that are not in `referenced` and were not put or touched for `unused_for`. Returns the number
    /// removed.
    async fn remove_unreferenced(&self, referenced: &HashSet<BlobId>, unused_for: Duration) -> Result<u64>;
}

/// The SHA-256 of a blob's content.
///
/// ```
/// use helve_contract::ports::BlobId;
///
/// let id = BlobId::of(b"abc");
/// assert!(id.to_string().starts_with("ba7816bf") && id.to_string().parse() == Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobId([u8; 32]);

impl BlobId {
    /// The id of this content.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The id of content with a known hash.
    #[must_use]
    pub const fn from_hash(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobId({self})")
    }
}

/// The text is not a SHA-256 in 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a blob's id has 64 lower-case hexadecimal digits")]
pub struct InvalidBlobId;

impl FromStr for BlobId {
    type Err = InvalidBlobId;

    fn from_str(text: &str) -> Result<Self, InvalidBlobId> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(InvalidBlobId),
        };
        let text: &[u8; 64] = text.as_bytes().try_into().map_err(|_| InvalidBlobId)?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(hash))
    }
}

impl TryFrom<String> for BlobId {
    type Error = InvalidBlobId;

    fn try_from(text: String) -> Result<Self, InvalidBlobId> {
        text.parse()
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.to_string()
    }
}

/// Stores nothing, for sessions without a state directory.
pub struct NoBlobs;

#[async_trait]
impl Blobs for NoBlobs {
    fn is_available(&self) -> bool {
        false
    }
    async fn put(&self, _: Vec<u8>) -> Result<BlobId> {
        Err(Error::failed("this session stores no files, so this cannot be kept"))
    }
    async fn put_stream(&self, _: BlobStream<'_>) -> Result<BlobId> {
        self.put(Vec::new()).await
    }
    async fn get(&self, _: &BlobId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    async fn get_stream(&self, _: &BlobId) -> Result<Option<BlobStream<'static>>> {
        Ok(None)
    }
    async fn size(&self, _: &BlobId) -> Result<Option<u64>> {
        Ok(None)
    }
    async fn touch(&self, _: &BlobId) -> Result<bool> {
        Ok(false)
    }
    async fn remove_unreferenced(&self, _: &HashSet<BlobId>, _: Duration) -> Result<u64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_lower_case_digits_are_an_id() {
        let id = BlobId::of(b"abc");
        assert_eq!(id.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(serde_json::from_value::<BlobId>(serde_json::to_value(id).unwrap()).unwrap(), id);
        let text = id.to_string();
        for wrong in ["", "../x", &text[1..], &text.to_uppercase(), &format!("{text}0"), &text.replace('b', "ß")] {
            assert_eq!(wrong.parse::<BlobId>(), Err(InvalidBlobId), "{wrong}");
        }
    }
}
