//! The transcript file of an agent, written while it works.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    sync::{Mutex, PoisonError},
};

use helve_contract::Session;

use crate::AgentEvent;

/// The most that is written of one agent.
const MAX_BYTES: usize = 16 << 20;
/// The most that is written of one reply.
const MAX_REPLY_CHARS: usize = 2000;

/// The file that tells what an agent does. Where there is no directory for it, nothing is written.
pub(super) struct Transcript {
    /// The file as the parent's model can name it.
    pub(super) display_path: Option<String>,
    file: Mutex<Option<(File, usize)>>,
}

impl Transcript {
    /// A file in the directory of the parent's session that holds whole outputs. A resumed agent goes on in its own.
    pub(super) fn open(parent: &Session, id: &str) -> Self {
        let root = parent.workspace.roots().iter().find(|root| root.name.as_deref() == Some("spill"));
        let opened = root.and_then(|root| {
            let path = root.dir.join(format!("agent-{id}.txt"));
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).mode(0o600).open(&path).ok()?;
            let written = file.metadata().map_or(0, |it| usize::try_from(it.len()).unwrap_or(usize::MAX));
            Some((parent.workspace.display_path(&path), (file, written)))
        });
        let (shown, file) = opened.map_or((None, None), |(shown, file)| (Some(shown), Some(file)));
        Self { display_path: shown, file: Mutex::new(file) }
    }

    /// Writes down what happened.
    pub(super) fn record(&self, event: &AgentEvent) {
        match event {
            AgentEvent::Text(piece) => self.write(piece),
            AgentEvent::ToolCallStarted { name, input, .. } => self.write(&format!("\n[{name} {}]\n", shorten(input))),
            AgentEvent::ToolCallFinished { reply, .. } => self.write(&format!("{}\n", shorten(&reply.text))),
            AgentEvent::Notice(text) => self.write(&format!("\n[{text}]\n")),
            _ => {}
        }
    }

    /// Writes a piece, as long as there is room.
    pub(super) fn write(&self, text: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, written)) = file.as_mut()
            && *written + text.len() <= MAX_BYTES
            && file.write_all(text.as_bytes()).is_ok()
        {
            *written += text.len();
        }
    }
}

fn shorten(text: &str) -> &str {
    text.char_indices().nth(MAX_REPLY_CHARS).map_or(text, |(at, _)| &text[..at])
}
