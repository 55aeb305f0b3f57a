//! Attached files as message parts: a list of all, then images and texts.

use std::{fmt::Write as _, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{
    Call, Result, Session,
    ports::{Attachment, MessagePart, StoredAttachment},
};
use helve_engine::Engine;

/// The first line of the part that lists the files of a message. Parts after it are their contents.
pub const ATTACHED: &str = "[Files attached to this message]";
/// Bytes of a text file that the model sees.
const MAX_TEXT: usize = 64 << 10;
/// Bytes of an image that is sent as it is, where it cannot be decoded and made smaller.
const MAX_IMAGE: usize = 4 << 20;

/// The parts of a message for these files. The list comes first, so that names, types and sizes stay with the
/// session.
pub(crate) async fn parts(engine: &Engine, session: &Arc<Session>, files: &[Attachment]) -> Vec<MessagePart> {
    if files.is_empty() {
        return Vec::new();
    }
    let mut list = ATTACHED.to_owned();
    let mut contents = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let (part, shown) = content(engine, session, index, file).await;
        _ = write!(list, "\n{index}: {}; {shown}", file.describe());
        contents.extend(part);
    }
    std::iter::once(MessagePart::Text { text: list }).chain(contents).collect()
}

/// Stores the files of a turn as blobs. Where nothing is stored they stay in memory, and end with the process.
pub(crate) async fn store(session: &Session, files: Vec<Attachment>) -> Result<Vec<StoredAttachment>> {
    let ports = &session.ports;
    let is_stored = session.stores_attachments() && ports.channels.takes_attachments();
    let (in_memory, to_store) = if is_stored { (Vec::new(), files) } else { (files, Vec::new()) };
    let stored = StoredAttachment::store(&*ports.blobs, to_store).await?;
    ports.channels.set_attachments(&session.id, in_memory);
    Ok(stored)
}

/// What the model sees of a file, and the same in words.
async fn content(
    engine: &Engine,
    session: &Arc<Session>,
    index: usize,
    file: &Attachment,
) -> (Option<MessagePart>, &'static str) {
    let id = format!("attachment-{index}");
    let origin = format!("the attached file {}", file.name);
    if is_image(&file.media.mime) {
        let call = Call::new(&id, session.clone());
        let decoded = session.ports.documents.image(&call, file.media.bytes.clone()).await;
        let media = match decoded {
            Ok(picture) => picture.media,
            Err(_) if file.media.bytes.len() <= MAX_IMAGE => file.media.clone(),
            Err(_) => return (None, "the image cannot be shown"),
        };
        session.taint.add_origin(&origin);
        let data = STANDARD.encode(&media.bytes);
        return (
            Some(MessagePart::Binary { path: file.name.clone(), mime_type: media.mime, data }),
            "the image is below",
        );
    }
    let Ok(text) = std::str::from_utf8(&file.media.bytes) else { return (None, "the content is not shown") };
    if text.trim().is_empty() {
        return (None, "the file is empty");
    }
    let head = truncate(text, MAX_TEXT);
    let text = engine.tag_untrusted(session, &id, &origin, head.0);
    (Some(MessagePart::Text { text }), if head.1 { "the first 64 KiB are below" } else { "the text is below" })
}

/// The beginning of a text within this many bytes, and whether something is left out.
fn truncate(text: &str, most: usize) -> (&str, bool) {
    if text.len() <= most {
        return (text, false);
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let head = &text[..end];
    // Whole lines, where that keeps at least half.
    (head.rfind('\n').filter(|at| *at >= most / 2).map_or(head, |at| &head[..at]), true)
}

fn is_image(mime: &str) -> bool {
    matches!(mime, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

#[cfg(test)]
mod tests {
    use super::truncate;

    #[test]
    fn a_long_text_keeps_whole_lines_or_whole_characters() {
        assert_eq!(truncate("one\ntwo", 10), ("one\ntwo", false));
        assert_eq!(truncate("one two\nthree four", 12), ("one two", true));
        assert_eq!(truncate("a\nbcdefghijklm", 8), ("a\nbcdefg", true));
        assert_eq!(truncate("ääää", 5), ("ää", true));
    }
}
