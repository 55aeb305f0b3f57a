//! The port for numbered streams of events: files, memory, a database.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{Stream, stream};

use crate::{
    Result,
    events::{EventRecord, NewEvent},
};

/// How many events [`follow`] reads at a time.
const PAGE: usize = 256;

/// Numbered streams of events. A stream begins with its first event. Every implementation passes the suite in
/// `crates/contract/tests/suites/events.rs`.
///
/// A number is a position: whoever reads after the last number that it has seen misses nothing and reads nothing twice.
#[async_trait]
pub trait Events: Send + Sync {
    /// Appends events to a stream: all of them, one after another, or none. The store gives numbers and times. Returns
    /// the number of the last one.
    async fn append(&self, stream: &str, events: Vec<NewEvent>) -> Result<u64>;

    /// The events with numbers above `after`, in order, at most `limit` of them. A store with a limit may have dropped the
    /// oldest ones; the first number says so.
    async fn read(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<EventRecord>>;

    /// The number of the last event, 0 where there is none.
    async fn last(&self, stream: &str) -> Result<u64>;

    /// Waits until the stream has an event with a number above `after`. Cancelling the wait loses nothing.
    async fn wait(&self, stream: &str, after: u64) -> Result<()>;

    /// The last events in order, at most `limit` of them.
    async fn tail(&self, stream: &str, limit: usize) -> Result<Vec<EventRecord>> {
        let last = self.last(stream).await?;
        self.read(stream, last.saturating_sub(limit as u64), limit).await
    }
}

/// The events of a stream with numbers above `after`, and then each new one as it comes. The stream ends with an error.
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
