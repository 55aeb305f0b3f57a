//! The `Events` port: numbered streams of events in files, memory or a database.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{Stream, stream};

use crate::{
    Result,
    events::{EventRecord, NewEvent},
};

/// How many events [`follow`] reads at a time.
const PAGE: usize = 256;

/// Numbered streams of events. Appending the first event creates a stream. Every implementation passes the suite in
/// `crates/contract/tests/suites/events.rs`.
///
/// A number is a position: reading after the last number seen neither misses nor repeats an event.
#[async_trait]
pub trait Events: Send + Sync {
    /// Appends all events to a stream in order, or none of them. The store assigns numbers and times. Returns the
    /// number of the last event.
    async fn append(&self, stream: &str, events: Vec<NewEvent>) -> Result<u64>;

    /// The events with numbers above `after`, in order, at most `limit`. A bounded store may have dropped the oldest
    /// ones; the first number shows it.
    async fn read(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<EventRecord>>;

    /// The number of the last event; 0 if there is none.
    async fn last(&self, stream: &str) -> Result<u64>;

    /// Waits until the stream has an event with a number above `after`. Cancel safe.
    async fn wait(&self, stream: &str, after: u64) -> Result<()>;

    /// The last events in order, at most `limit`.
    async fn tail(&self, stream: &str, limit: usize) -> Result<Vec<EventRecord>> {
        let last = self.last(stream).await?;
        self.read(stream, last.saturating_sub(limit as u64), limit).await
    }
}

/// The events with numbers above `after`, followed by new ones as they arrive. The stream ends with an error.
pub fn follow(events: Arc<dyn Events>, stream: &str, after: u64) -> impl Stream<Item = Result<EventRecord>> + Send {
    let begin = Some((events, stream.to_owned(), after, Vec::new().into_iter()));
    stream::unfold(begin, |state| async move {
        let (events, name, mut after, mut page) = state?;
        loop {
            if let Some(record) = page.next() {
                let record: EventRecord = record;
                after = record.seq;
                return Some((Ok(record), Some((events, name, after, page))));
            }
            let more = match events.wait(&name, after).await {
                Ok(()) => events.read(&name, after, PAGE).await,
                Err(error) => Err(error),
            };
            match more {
                Ok(records) => page = records.into_iter(),
                Err(error) => return Some((Err(error), None)),
            }
        }
    })
}
