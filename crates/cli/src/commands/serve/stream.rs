//! `/events`: what happens, as it happens; lines of JSON, or events for a browser.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use helve_contract::{CancellationToken, events::KEEPALIVE};
use helve_mcp::HttpReply;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{StatusCode, body::Frame};
use serde_json::json;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

use super::{hub::Hub, say};

/// A word now and then, so that nobody between us takes the connection for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How events are told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// A line of JSON each.
    Lines,
    /// As a browser's `EventSource` reads them.
    Events,
}

/// Somebody who listens.
pub(super) struct Listener {
    pub(super) hub: Arc<Hub>,
    pub(super) manner: Manner,
    /// The number of the last event that was heard.
    pub(super) after: u64,
    /// Whether to wait for more.
    pub(super) follow: bool,
    /// The server is to end.
    pub(super) closing: CancellationToken,
    pub(super) _place: OwnedSemaphorePermit,
}

impl Listener {
    /// The response that goes on until one side leaves.
    pub(super) fn reply(self) -> HttpReply {
        let kind = match self.manner {
            Manner::Lines => "application/x-ndjson",
            Manner::Events => "text/event-stream",
        };
        // The first word tells at once that somebody is here.
        let frames = stream::unfold((self, true), |(mut listener, first)| async move {
            let bytes = if first { listener.word() } else { listener.next().await? };
            Some((Ok::<_, Infallible>(Frame::data(bytes)), (listener, false)))
        });
        say::typed(StatusCode::OK, kind, StreamBody::new(frames).boxed_unsync())
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut bell = self.hub.bell();
        self.hub.look();
        loop {
            if let Some((number, event)) = self.hub.after(self.after) {
                self.after = number;
                return Some(self.told(number, &event));
            }
            if !self.follow {
                return None;
            }
            tokio::select! {
                rung = bell.changed() => rung.ok()?,
                () = self.closing.cancelled() => return None,
                () = sleep(HEARTBEAT) => return Some(self.word()),
            }
        }
    }

    fn told(&self, number: u64, event: &[u8]) -> Bytes {
        let event = String::from_utf8_lossy(event);
        match self.manner {
            Manner::Lines => format!("{event}\n"),
            Manner::Events => format!("id: {number}\ndata: {event}\n\n"),
        }
        .into()
    }

    /// Says that there is nothing to say.
    fn word(&self) -> Bytes {
        match self.manner {
            Manner::Lines => format!("{}\n", json!({ "type": KEEPALIVE, "at": self.hub.last() })),
            Manner::Events => ": keepalive\n\n".to_owned(),
        }
        .into()
    }
}
