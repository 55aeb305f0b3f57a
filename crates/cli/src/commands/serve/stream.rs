//! `/events`: live events as JSON lines or server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use helve_contract::{CancellationToken, events::KEEPALIVE};
use helve_mcp::HttpReply;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{StatusCode, body::Frame};
use serde_json::json;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

use super::{hub::EventBus, say};

/// The keep-alive interval, so that no proxy closes the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How events are told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFormat {
    /// A line of JSON each.
    NdJson,
    /// As a browser's `EventSource` reads them.
    Sse,
}

/// Somebody who listens.
pub(super) struct EventSubscriber {
    pub(super) event_bus: Arc<EventBus>,
    pub(super) manner: StreamFormat,
    /// The number of the last event that was heard.
    pub(super) after: u64,
    /// Whether to wait for more.
    pub(super) follow: bool,
    /// The server is to end.
    pub(super) shutdown: CancellationToken,
    pub(super) _place: OwnedSemaphorePermit,
}

impl EventSubscriber {
    /// The response that goes on until one side leaves.
    pub(super) fn into_response(self) -> HttpReply {
        let kind = match self.manner {
            StreamFormat::NdJson => "application/x-ndjson",
            StreamFormat::Sse => "text/event-stream",
        };
        // The first bytes confirm the connection at once.
        let frames = stream::unfold((self, true), |(mut listener, first)| async move {
            let bytes = if first { listener.keepalive_frame() } else { listener.next().await? };
            Some((Ok::<_, Infallible>(Frame::data(bytes)), (listener, false)))
        });
        say::with_content_type(StatusCode::OK, kind, StreamBody::new(frames).boxed_unsync())
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut bell = self.event_bus.subscribe();
        self.event_bus.mark_watched();
        loop {
            if let Some((number, event)) = self.event_bus.next_after(self.after) {
                self.after = number;
                return Some(self.frame(number, &event));
            }
            if !self.follow {
                return None;
            }
            tokio::select! {
                rung = bell.changed() => rung.ok()?,
                () = self.shutdown.cancelled() => return None,
                () = sleep(HEARTBEAT) => return Some(self.keepalive_frame()),
            }
        }
    }

    fn frame(&self, number: u64, event: &[u8]) -> Bytes {
        let event = String::from_utf8_lossy(event);
        match self.manner {
            StreamFormat::NdJson => format!("{event}\n"),
            StreamFormat::Sse => format!("id: {number}\ndata: {event}\n\n"),
        }
        .into()
    }

    /// Sends a keep-alive.
    fn keepalive_frame(&self) -> Bytes {
        match self.manner {
            StreamFormat::NdJson => format!("{}\n", json!({ "type": KEEPALIVE, "at": self.event_bus.last_number() })),
            StreamFormat::Sse => ": keepalive\n\n".to_owned(),
        }
        .into()
    }
}
