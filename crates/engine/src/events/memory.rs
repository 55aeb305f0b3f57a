//! Streams of events in memory, for tests and for the events that a server sends to its clients.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use helve_contract::{
    Error, Result, async_trait,
    events::{EventRecord, NewEvent},
    ports::Events,
};
use tokio::sync::watch;

use super::{event_id, timestamp_now};

/// Streams of events that end with the process. The oldest events of a stream make room for new ones above a limit.
pub struct MemoryEvents {
    streams: Mutex<HashMap<String, Kept>>,
    changed: watch::Sender<()>,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Kept {
    /// With the size of each in bytes of JSON.
    records: VecDeque<(EventRecord, usize)>,
    bytes: usize,
    /// How many there were before the first that is kept.
    dropped: u64,
}

impl Default for MemoryEvents {
    fn default() -> Self {
        Self::with_limits(usize::MAX, usize::MAX)
    }
}

impl MemoryEvents {
    /// Keeps at most so many events, and so many bytes of JSON, of each stream. The last event always stays.
    pub fn with_limits(max_events: usize, max_bytes: usize) -> Self {
        Self { streams: Mutex::default(), changed: watch::Sender::new(()), max_events, max_bytes }
    }

    /// [`Events::append`] without waiting.
    pub fn append_now(&self, stream: &str, events: Vec<NewEvent>) -> Result<u64> {
        let ids = events.iter().map(|_| event_id()).collect::<std::io::Result<Vec<_>>>();
        let ids = ids.map_err(|error| Error::Internal(error.into()))?;
        let mut streams = self.lock();
        let kept = streams.entry(stream.to_owned()).or_default();
        for (id, event) in ids.into_iter().zip(events) {
            kept.push(EventRecord::new(id, stream, kept.last() + 1, timestamp_now(), event));
            kept.make_room(self.max_events, self.max_bytes);
        }
        let last = kept.last();
        drop(streams);
        self.changed.send_replace(());
        Ok(last)
    }

    /// [`Events::read`] without waiting.
    pub fn read_now(&self, stream: &str, after: u64, limit: usize) -> Vec<EventRecord> {
        let streams = self.lock();
        let Some(kept) = streams.get(stream) else { return Vec::new() };
        let skip = after.saturating_sub(kept.dropped).min(kept.records.len() as u64) as usize;
        kept.records.range(skip..).take(limit).map(|(record, _)| record.clone()).collect()
    }

    /// [`Events::last`] without waiting.
    pub fn last_now(&self, stream: &str) -> u64 {
        self.lock().get(stream).map_or(0, Kept::last)
    }

    /// Changes with each append, to any stream.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn last(&self) -> u64 {
        self.dropped + self.records.len() as u64
    }

    fn push(&mut self, record: EventRecord) {
        let size = record.to_json().len();
        self.bytes += size;
        self.records.push_back((record, size));
    }

    fn make_room(&mut self, max_events: usize, max_bytes: usize) {
        while self.records.len() > 1 && (self.records.len() > max_events || self.bytes > max_bytes) {
            let Some((_, size)) = self.records.pop_front() else { return };
            self.bytes -= size;
            self.dropped += 1;
        }
    }
}

#[async_trait]
impl Events for MemoryEvents {
    async fn append(&self, stream: &str, events: Vec<NewEvent>) -> Result<u64> {
        self.append_now(stream, events)
    }

    async fn read(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<EventRecord>> {
        Ok(self.read_now(stream, after, limit))
    }

    async fn last(&self, stream: &str) -> Result<u64> {
        Ok(self.last_now(stream))
    }

    async fn wait(&self, stream: &str, after: u64) -> Result<()> {
        let mut changed = self.subscribe();
        while self.last_now(stream) <= after {
            changed.changed().await.map_err(|error| Error::Internal(error.into()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::events::ForgeStarted;

    use super::*;

    #[test]
    fn the_oldest_make_room_and_numbers_go_on() {
        let events = MemoryEvents::with_limits(3, usize::MAX);
        let event = || NewEvent::from(ForgeStarted { run: "r".into() });
        (0..5).for_each(|_| _ = events.append_now("s", vec![event()]).unwrap());
        let seqs = |after| events.read_now("s", after, 10).iter().map(|it| it.seq).collect::<Vec<_>>();
        assert_eq!((seqs(0), seqs(4), seqs(5), seqs(9)), (vec![3, 4, 5], vec![5], vec![], vec![]));
        let small = MemoryEvents::with_limits(10, 1);
        small.append_now("s", vec![event(), event()]).unwrap();
        assert_eq!(small.read_now("s", 0, 10).len(), 1, "the last one stays");
    }
}
