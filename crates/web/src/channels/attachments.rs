//! Files that came with the user's last message, by session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{
    Error, Media, Result,
    ports::{Attachment, AttachmentLimits},
};
use serde::{Deserialize, Serialize};

/// A file in a JSON body. Further fields are ignored, also a type: it comes from the bytes.
#[derive(Deserialize, Serialize)]
pub struct EncodedAttachment {
    /// Its name.
    pub name: String,
    /// The bytes, in base64.
    pub data: String,
}

impl From<&Attachment> for EncodedAttachment {
    fn from(file: &Attachment) -> Self {
        Self { name: file.name.clone(), data: STANDARD.encode(&file.media.bytes) }
    }
}

impl EncodedAttachment {
    /// Checks the limits, before anything is decoded.
    pub fn check(files: &[Self], limits: AttachmentLimits) -> Result<()> {
        limits.check(files.iter().map(|it| it.data.trim_end_matches('=').len() as u64 * 3 / 4))
    }

    /// The file itself. An error is for whoever sent it.
    pub fn decode(self) -> Result<Attachment> {
        let bytes = STANDARD.decode(self.data.trim());
        let bytes = bytes.map_err(|_| Error::failed("an attachment's `data` is not base64"))?;
        Ok(Attachment::new(&self.name, bytes))
    }
}

/// The files of a user's turn. The session's driver sets them at its start; clones share them.
#[derive(Clone, Default)]
pub struct Attachments(Arc<Mutex<HashMap<String, Vec<Attachment>>>>);

impl Attachments {
    /// Replaces the files with those of the turn that starts now.
    pub fn set(&self, session: &str, files: Vec<Attachment>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.is_empty() {
            all.remove(session);
        } else {
            all.insert(session.to_owned(), files);
        }
    }

    /// The file of this number.
    #[must_use]
    pub fn get(&self, session: &str, index: usize) -> Option<Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(session)?.get(index).map(|it| it.media.clone())
    }
}
