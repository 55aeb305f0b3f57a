//! A log channel: one JSON line per message, to standard output, standard error or a file.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
};

use async_trait::async_trait;
use helve_contract::{Call, Error, Result, ports::OutgoingFile};
use serde_json::{Value, json};

use super::outlets::Channel;

pub(super) struct LogSender {
    name: String,
    to: LogTarget,
}

#[derive(Clone)]
enum LogTarget {
    Stdout,
    Stderr,
    File(PathBuf),
}

impl LogSender {
    pub(super) fn to(name: &str, text: &str) -> Self {
        let to = match text {
            "stdout" => LogTarget::Stdout,
            "stderr" => LogTarget::Stderr,
            path => LogTarget::File(path.into()),
        };
        Self { name: name.to_owned(), to }
    }

    async fn write(&self, call: &Call, to: &str, what: (&str, Value)) -> Result<()> {
        let mut line = json!({
            "time": call.now().to_string(),
            "channel": self.name,
            "to": to,
            "session": call.session.id,
            "call": call.id,
        });
        line[what.0] = what.1;
        let (line, place) = (format!("{line}\n"), self.to.clone());
        let written = tokio::task::spawn_blocking(move || write_line(&place, line.as_bytes())).await;
        written.map_err(|error| Error::Internal(error.into()))?.map_err(|error| {
            Error::failed(format!(
                "nothing was sent: the log could not be written ({error}); ask the user to look at it"
            ))
        })
    }
}

/// One `write` per line, so that lines of several processes do not mix.
fn write_line(to: &LogTarget, line: &[u8]) -> io::Result<()> {
    match to {
        LogTarget::Stdout => io::stdout().lock().write_all(line),
        LogTarget::Stderr => io::stderr().lock().write_all(line),
        LogTarget::File(path) => {
            use std::os::unix::fs::OpenOptionsExt as _;
            OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(line)
        }
    }
}

#[async_trait]
impl Channel for LogSender {
    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()> {
        self.write(call, to, ("content", text.into())).await
    }

    async fn send_media(&self, call: &Call, to: &str, file: &OutgoingFile) -> Result<()> {
        let media = json!({
            "name": file.name,
            "type": file.kind,
            "mime_type": file.media.mime,
            "bytes": file.media.bytes.len(),
            "caption": file.caption,
        });
        self.write(call, to, ("media", media)).await
    }
}
