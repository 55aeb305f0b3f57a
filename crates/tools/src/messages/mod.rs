//! Messages and files, to people and from them.

mod attachment_save;
mod message;
mod send_media;

pub use attachment_save::{AttachmentSave, Saved};
pub use message::{Message, Sent};
pub use send_media::{MediaSent, MediaType, SendMedia};
