//! Attachments: files that a user sends with a message, and their limits.

use serde::{Deserialize, Serialize};

use super::{BlobId, Blobs};
use crate::{Error, Media, Result, sniff_mime};

/// The maximum length of a name, in characters.
const MAX_NAME: usize = 120;

/// A file that a user sent with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, without directories and control characters.
    pub name: String,
    /// Type and bytes.
    pub media: Media,
}

impl Attachment {
    /// Creates an attachment with a sanitised name. The type comes from the bytes, because senders may state a wrong
    /// one.
    ///
    /// ```
    /// use helve_contract::ports::Attachment;
    ///
    /// let file = Attachment::new("../../notes.md", b"# Notes".to_vec());
    /// assert_eq!((file.name.as_str(), file.media.mime.as_str()), ("notes.md", "text/markdown"));
    /// ```
    #[must_use]
    pub fn new(name: &str, bytes: Vec<u8>) -> Self {
        let name = sanitise(name);
        Self { media: Media { mime: sniff_mime(&name, &bytes).to_owned(), bytes }, name }
    }

    /// Name, type and size: `photo.png (image/png, 1234 bytes)`.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} ({}, {} bytes)", self.name, self.media.mime, self.media.bytes.len())
    }
}

/// An attachment whose content is a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAttachment {
    /// Its name, without directories and control characters.
    pub name: String,
    /// Its type.
    pub mime: String,
    /// Its size in bytes.
    pub size: u64,
    /// The id of its content.
    pub blob: BlobId,
}

impl StoredAttachment {
    /// The key in the session state that lists the files of the current turn.
    pub const SLATE: &'static str = "attachments";

    /// Stores the content of files, without a second copy in memory.
    pub async fn store(blobs: &dyn Blobs, files: Vec<Attachment>) -> Result<Vec<Self>> {
        let mut stored = Vec::with_capacity(files.len());
        for Attachment { name, media } in files {
            let size = media.bytes.len() as u64;
            let blob = blobs.put(media.bytes).await?;
            stored.push(Self { name, mime: media.mime, size, blob });
        }
        Ok(stored)
    }
}

/// The last component of a path, reduced to visible characters that are safe in one line of text.
fn sanitise(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).find(|it| !it.trim().is_empty()).unwrap_or_default();
    let is_safe = |it: &char| it.is_alphanumeric() || matches!(it, ' ' | '.' | '-' | '_' | '(' | ')' | '+' | ',' | '@');
    let safe: String = last.chars().map(|it| if is_safe(&it) { it } else { '_' }).collect();
    let safe = safe.trim().trim_start_matches('.');
    let count = safe.chars().count();
    let name: String = match safe.rsplit_once('.').filter(|(_, ending)| count > MAX_NAME && ending.len() < 16) {
        Some((stem, ending)) => {
            let stem: String = stem.chars().take(MAX_NAME - ending.chars().count() - 1).collect();
            format!("{stem}.{ending}")
        }
        None => safe.chars().take(MAX_NAME).collect(),
    };
    if name.trim_matches(['_', ' ', '.']).is_empty() { "file".to_owned() } else { name }
}

/// Limits for the number and size of a message's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachmentLimits {
    /// The maximum number of files.
    pub files: usize,
    /// The maximum size of all files together, in bytes.
    pub bytes: usize,
}

impl AttachmentLimits {
    /// For files that are read from this machine.
    pub const LOCAL: Self = Self { files: 16, bytes: 50 << 20 };
    /// For files that arrive over HTTP with a token.
    pub const UPLOAD: Self = Self { files: 16, bytes: 20 << 20 };
    /// For files that arrive by a webhook.
    pub const WEBHOOK: Self = Self { files: 16, bytes: 5 << 20 };

    /// Checks sizes in bytes, in the order of the files. The error names the exceeded limit.
    pub fn check(self, sizes: impl IntoIterator<Item = u64>) -> Result<()> {
        let (mut files, mut bytes) = (0, 0_u64);
        for size in sizes {
            files += 1;
            bytes = bytes.saturating_add(size);
        }
        if files > self.files {
            return Err(Error::failed(format!(
                "{files} attachments are too many: one message takes {} at most. Send the rest with the next message",
                self.files
            )));
        }
        if bytes > self.bytes as u64 {
            return Err(Error::failed(format!(
                "the attachments have {bytes} bytes: one message takes {} MiB at most. Send smaller or fewer files",
                self.bytes >> 20
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sanitised() {
        for (given, name) in [
            ("notes.md", "notes.md"),
            ("/etc/passwd", "passwd"),
            ("C:\\Users\\me\\a b.txt", "a b.txt"),
            ("../..", "file"),
            (".bashrc", "bashrc"),
            ("", "file"),
            ("a\nb\u{202e}c\u{1b}[31m.txt", "a_b_c__31m.txt"),
            ("Übersicht (1).pdf", "Übersicht (1).pdf"),
            ("dir/", "dir"),
        ] {
            assert_eq!(sanitise(given), name, "{given:?}");
        }
        let long = sanitise(&format!("{}.tar", "x".repeat(500)));
        assert!(long.strip_suffix(".tar").is_some() && long.chars().count() == MAX_NAME, "{long}");
        assert_eq!(sanitise(&"ü".repeat(500)).chars().count(), MAX_NAME);
    }

    #[test]
    fn the_type_comes_from_the_bytes() {
        assert_eq!(Attachment::new("a.txt", b"\x89PNG\r\n\x1a\n".to_vec()).media.mime, "image/png");
        assert_eq!(Attachment::new("a.png", b"words".to_vec()).media.mime, "text/plain");
        assert_eq!(Attachment::new("a.png", vec![0xff, 0, 1]).media.mime, "application/octet-stream");
    }

    #[test]
    fn limits_name_themselves() {
        let limits = AttachmentLimits { files: 2, bytes: 1 << 20 };
        assert!(limits.check([1 << 19, 1 << 19]).is_ok());
        let told = |sizes: &[u64]| limits.check(sizes.iter().copied()).unwrap_err().to_string();
        assert!(told(&[1, 1, 1]).contains("3 attachments are too many: one message takes 2"));
        assert!(told(&[1 << 20, 1]).contains("1048577 bytes: one message takes 1 MiB"));
        assert!(told(&[u64::MAX, u64::MAX]).contains("takes 1 MiB"));
    }
}
