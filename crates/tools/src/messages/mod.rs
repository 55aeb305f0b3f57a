//! Messages and files to and from people.

mod attachment_save;
mod message;
mod send_media;

pub use attachment_save::{AttachmentSaveOutput, AttachmentSaveTool};
pub use message::{MessageOutput, MessageTool};
pub use send_media::{MediaType, SendMediaOutput, SendMediaTool};
