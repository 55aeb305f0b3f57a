//! The suite for implementations of the `Events` port. Tests of other crates include this file as a module.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use helve_contract::{
    Event,
    events::{EventOrigin, EventRecord, EventSource, ForgeStarted, NewEvent},
    ports::{Events, follow},
};

/// A temporary event store; dropping it removes the data.
pub(crate) trait Maker: Default + Send + Sync + 'static {
    /// Another handle on the store, as another process would have.
    fn events(&self) -> Arc<dyn Events>;
}

/// Runs the suite for an implementation.
macro_rules! suite {
    ($maker:ty) => {
        $crate::events_suite::suite! { $maker:
            numbers_begin_at_one_and_have_no_gaps
            streams_are_numbered_apart
            every_event_comes_back_as_it_was_written
            a_reader_that_resumes_misses_nothing_and_reads_nothing_twice
            the_tail_is_the_last_events_in_order
            two_writers_leave_no_gap_and_keep_their_order
            a_follower_gets_what_was_there_and_what_comes
            waiting_ends_with_the_next_event_only
        }
    };
    ($maker:ty: $($story:ident)*) => { $(
        #[tokio::test]
        async fn $story() {
            $crate::events_suite::$story::<$maker>().await;
        }
    )* };
}
pub(crate) use suite;

fn event(run: impl ToString) -> NewEvent {
    ForgeStarted { run: run.to_string() }.into()
}

fn name(record: &EventRecord) -> String {
    match &record.event {
        Event::ForgeStarted(it) => it.run.clone(),
        other => other.name().to_owned(),
    }
}

fn seqs(records: &[EventRecord]) -> Vec<u64> {
    records.iter().map(|it| it.seq).collect()
}

pub(crate) async fn numbers_begin_at_one_and_have_no_gaps<M: Maker>() {
    let maker = M::default();
    let events = maker.events();
    assert_eq!(events.last("s").await.unwrap(), 0);
    assert_eq!(events.read("s", 0, 10).await.unwrap(), []);
    assert_eq!(events.append("s", vec![event(1)]).await.unwrap(), 1);
    assert_eq!(events.append("s", vec![event(2), event(3)]).await.unwrap(), 3);
    // A second handle continues the numbers, and the first one continues after it.
    assert_eq!(maker.events().append("s", vec![event(4)]).await.unwrap(), 4);
    assert_eq!(events.append("s", vec![event(5)]).await.unwrap(), 5);
    let all = events.read("s", 0, 10).await.unwrap();
    assert_eq!(seqs(&all), [1, 2, 3, 4, 5]);
    assert_eq!(all.iter().map(name).collect::<Vec<_>>(), ["1", "2", "3", "4", "5"]);
    assert!(all.is_sorted_by(|a, b| a.timestamp <= b.timestamp), "{all:?}");
    let ids: std::collections::BTreeSet<_> = all.iter().map(|it| &it.id).collect();
    assert_eq!(ids.len(), all.len());
    assert_eq!((events.last("s").await.unwrap(), maker.events().last("s").await.unwrap()), (5, 5));
    assert_eq!(events.append("s", Vec::new()).await.unwrap(), 5);
}

pub(crate) async fn streams_are_numbered_apart<M: Maker>() {
    let maker = M::default();
    let events = maker.events();
    events.append("a", vec![event("a1")]).await.unwrap();
    events.append("b", vec![event("b1"), event("b2")]).await.unwrap();
    events.append("a", vec![event("a2")]).await.unwrap();
    let of = |stream| {
        let events = events.clone();
        async move { events.read(stream, 0, 10).await.unwrap().iter().map(name).collect::<Vec<_>>() }
    };
    assert_eq!((of("a").await, of("b").await), (vec!["a1".into(), "a2".into()], vec!["b1".into(), "b2".into()]));
    assert_eq!((events.last("a").await.unwrap(), events.last("b").await.unwrap()), (2, 2));
    assert_eq!(events.last("c").await.unwrap(), 0);
}

pub(crate) async fn every_event_comes_back_as_it_was_written<M: Maker>() {
    let maker = M::default();
    let events = maker.events();
    let samples: Vec<EventRecord> =
        include_str!("../fixtures/events.ndjson").lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let mut sent: Vec<NewEvent> = samples
        .iter()
        .map(|it| NewEvent {
            event: it.event.clone(),
            task: it.task.clone(),
            attempt: it.attempt.clone(),
            source: None,
            unknown: it.unknown.clone(),
        })
        .collect();
    let origin = EventOrigin { id: "evt".into(), seq: 7, stream: "r".into(), timestamp: "T".into() };
    sent[0].source = Some(EventSource { dialect: "solo".into(), record: Some(origin) });
    events.append("s", sent.clone()).await.unwrap();
    let read = events.read("s", 0, usize::MAX).await.unwrap();
    let back: Vec<NewEvent> = read
        .into_iter()
        .map(|it| NewEvent {
            event: it.event,
            task: it.task,
            attempt: it.attempt,
            source: it.source,
            unknown: it.unknown,
        })
        .collect();
    assert_eq!(back, sent);
}

pub(crate) async fn a_reader_that_resumes_misses_nothing_and_reads_nothing_twice<M: Maker>() {
    let maker = M::default();
    let (writer, mut reader) = (maker.events(), maker.events());
    let (mut after, mut seen) = (0, Vec::new());
    for round in 0..20_u64 {
        writer.append("s", (0..round % 5).map(event).collect()).await.unwrap();
        writer.append("other", vec![event("x")]).await.unwrap();
        // Some readers restart from their position, like a restarted process.
        if round % 3 == 0 {
            reader = maker.events();
        }
        let page = reader.read("s", after, 2).await.unwrap();
        after = page.last().map_or(after, |it| it.seq);
        seen.extend(seqs(&page));
    }
    loop {
        let page = reader.read("s", after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        seen.extend(seqs(&page));
    }
    assert_eq!(seen, (1..=writer.last("s").await.unwrap()).collect::<Vec<_>>());
    // An earlier position gives the same events again.
    assert_eq!(seqs(&reader.read("s", 3, 2).await.unwrap()), [4, 5]);
}

pub(crate) async fn the_tail_is_the_last_events_in_order<M: Maker>() {
    let maker = M::default();
    let events = maker.events();
    assert_eq!(events.tail("s", 3).await.unwrap(), []);
    events.append("s", (0..10).map(event).collect()).await.unwrap();
    assert_eq!(seqs(&events.tail("s", 3).await.unwrap()), [8, 9, 10]);
    assert_eq!(events.tail("s", 20).await.unwrap().len(), 10);
}

pub(crate) async fn two_writers_leave_no_gap_and_keep_their_order<M: Maker>() {
    let maker = M::default();
    let write = |who: &'static str| {
        let events = maker.events();
        tokio::spawn(async move {
            for at in 0..50 {
                // Both events of an append are adjacent.
                events.append("s", vec![event(format!("{who}{at}")), event(format!("{who}{at}'"))]).await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    let (a, b) = (write("a"), write("b"));
    a.await.unwrap();
    b.await.unwrap();
    let all = maker.events().read("s", 0, 1000).await.unwrap();
    assert_eq!(seqs(&all), (1..=200).collect::<Vec<_>>());
    for who in ["a", "b"] {
        let own: Vec<String> = all.iter().map(name).filter(|it| it.starts_with(who)).collect();
        let wanted: Vec<String> = (0..50).flat_map(|at| [format!("{who}{at}"), format!("{who}{at}'")]).collect();
        assert_eq!(own, wanted);
    }
    for pair in all.chunks(2) {
        assert_eq!(format!("{}'", name(&pair[0])), name(&pair[1]));
    }
}

pub(crate) async fn a_follower_gets_what_was_there_and_what_comes<M: Maker>() {
    let maker = M::default();
    let (writer, reader) = (maker.events(), maker.events());
    writer.append("s", (1..=3).map(event).collect()).await.unwrap();
    let work = tokio::spawn(async move {
        for at in 4..=30 {
            writer.append("s", vec![event(at)]).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let seen: Vec<_> = follow(reader, "s", 1).take(29).map(|it| it.unwrap().seq).collect().await;
    work.await.unwrap();
    assert_eq!(seen, (2..=30).collect::<Vec<_>>());
}

pub(crate) async fn waiting_ends_with_the_next_event_only<M: Maker>() {
    let maker = M::default();
    let (writer, reader) = (maker.events(), maker.events());
    writer.append("s", vec![event(1)]).await.unwrap();
    reader.wait("s", 0).await.unwrap();
    let mut waits = tokio::spawn(async move { reader.wait("s", 1).await });
    writer.append("other", vec![event("x"), event("y"), event("z")]).await.unwrap();
    // An event of another stream does not end the wait.
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waits).await;
    assert!(early.is_err(), "{early:?}");
    writer.append("s", vec![event(2)]).await.unwrap();
    waits.await.unwrap().unwrap();
}
