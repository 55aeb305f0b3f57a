//! What every store does, whatever it is made of. A maker is a place; each store that it gives is another handle on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use helve_contract::{
    Error, Result,
    jiff::Timestamp,
    ports::{
        Clock, InboxItem, Lease, Message, MessagePart, MessageRole, SessionFilter, SessionRecord, SessionUpdate, Store,
        TokenUsage,
    },
};
use serde_json::json;

/// A place for records that goes away with this.
pub(crate) trait Maker: Default + Send + Sync + 'static {
    /// Another handle on the records of this place.
    fn store(&self) -> Arc<dyn Store>;
    /// A handle for another tenant.
    fn store_of(&self, tenant: &str) -> Arc<dyn Store>;
    /// The clock of every handle.
    fn clock(&self) -> &TestClock;
}

/// A clock that stands still until it is set.
#[derive(Default)]
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn set(&self, second: i64) {
        self.0.store(second, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        at(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) const LENGTH: Duration = Duration::from_secs(30);

/// A lease of the usual owner. Whoever holds it before loses it, if that is the usual owner too.
pub(crate) async fn lease(store: &(impl Store + ?Sized), id: &str) -> Lease {
    store.claim_session(id, "test", LENGTH).await.unwrap()
}

pub(crate) async fn begin(store: &(impl Store + ?Sized), record: &SessionRecord) -> Result<SessionRecord> {
    let lease = lease(store, &record.id).await;
    let begun = store.create_session(&lease, record).await;
    store.release_session(&lease).await.unwrap();
    begun
}

/// Adds messages under a lease of their own; waits while another one adds some.
pub(crate) async fn add(
    store: &(impl Store + ?Sized),
    id: &str,
    messages: &[Message],
    spent: TokenUsage,
) -> Result<u64> {
    loop {
        let owner = helve_contract::ids::new_id();
        let lease = match store.claim_session(id, &owner, LENGTH).await {
            Err(Error::SessionHeld(_)) => {
                tokio::task::yield_now().await;
                continue;
            }
            claimed => claimed?,
        };
        let added = store.append_messages(&lease, messages, spent).await;
        store.release_session(&lease).await?;
        return added.map(|it| it.last);
    }
}

/// Runs the suite for a maker.
macro_rules! suite {
    ($maker:ty: $($story:ident)*) => { $(
        #[tokio::test]
        async fn $story() {
            $crate::suite::$story::<$maker>().await;
        }
    )* };
}
pub(crate) use suite;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) fn session(id: &str) -> SessionRecord {
    SessionRecord {
        id: id.into(),
        label: None,
        parent: None,
        user: "ann".into(),
        agent: "main".into(),
        title: format!("about {id}"),
        dialect: "solo".into(),
        model: "m".into(),
        workspace: "/w".into(),
        messages: 0,
        spent: TokenUsage::default(),
        view_from: None,
        created: at(0),
        updated: at(0),
    }
}

pub(crate) fn said(text: &str, second: i64) -> Message {
    Message {
        seq: 0,
        role: MessageRole::User,
        parts: vec![MessagePart::Text { text: text.into() }],
        created: at(second),
    }
}

fn words(messages: &[Message]) -> Vec<String> {
    let part =
        |part: &MessagePart| if let MessagePart::Text { text } = part { text.clone() } else { format!("{part:?}") };
    messages.iter().map(|m| format!("{} {}", m.seq, m.parts.iter().map(part).collect::<String>())).collect()
}

async fn ids(store: &dyn Store, which: SessionFilter) -> (Vec<String>, u64) {
    let (found, total) = store.list_sessions(&which).await.unwrap();
    (found.into_iter().map(|it| it.id).collect(), total)
}

pub(crate) async fn keeps_a_conversation_as_it_was_told<M: Maker>() {
    let place = M::default();
    let store = place.store();
    let record = SessionRecord {
        parent: Some("nowhere".into()),
        spent: TokenUsage { prompt_tokens: 1, completion_tokens: 2, cost: 0.25, ..TokenUsage::default() },
        view_from: Some(7),
        label: Some("hook:build".into()),
        ..session("a")
    };
    place.clock().set(77);
    let begun = begin(&*store, &record).await.unwrap();
    let record = SessionRecord { created: at(77), updated: at(77), ..record };
    assert_eq!(begun, record);
    assert_eq!(store.get_session("a").await.unwrap(), Some(record.clone()));
    assert_eq!(place.store().get_session("a").await.unwrap(), Some(record.clone()));
    assert_eq!(store.get_session("b").await.unwrap(), None);
    assert_eq!(begin(&*store, &record).await.unwrap_err().to_string(), "there is already a conversation `a`");
}

pub(crate) async fn keeps_every_kind_of_part<M: Maker>() {
    let place = M::default();
    let store = place.store();
    begin(&*store, &session("a")).await.unwrap();
    let text = |text: &str| text.to_owned();
    let parts = vec![
        MessagePart::Text { text: text("ü\u{0}\n\u{1F600}") },
        MessagePart::Reasoning { thinking: text("hm") },
        MessagePart::Opaque {
            api: text("chat"),
            model: text("m"),
            data: serde_json::json!({ "signature": "s==", "n": [1.5, null] }),
        },
        MessagePart::ToolCall { id: text("1"), name: text("read"), input: text("{\"path\":"), finished: false },
        MessagePart::ToolResult { tool_call_id: text("1"), name: text("read"), content: text("no"), is_error: true },
        MessagePart::Binary { path: text("a.png"), mime_type: text("image/png"), data: text("AAAA") },
        MessagePart::Finish { reason: text("tool_use").into() },
    ];
    for role in [MessageRole::User, MessageRole::Assistant, MessageRole::Tool, MessageRole::System] {
        let message = Message { seq: 0, role, parts: parts.clone(), created: at(1) };
        place.clock().set(1);
        let seq = add(&*store, "a", std::slice::from_ref(&message), TokenUsage::default()).await.unwrap();
        let last = place.store().messages("a", None, 1).await.unwrap();
        assert_eq!(last, [Message { seq, ..message }]);
    }
}

pub(crate) async fn counts_what_is_said_and_spent<M: Maker>() {
    let place = M::default();
    let store = &*place.store();
    begin(store, &session("a")).await.unwrap();
    let spent = TokenUsage {
        prompt_tokens: 10,
        completion_tokens: 3,
        cost: 0.5,
        cache_read_tokens: 4,
        cache_write_tokens: 2,
        reasoning_tokens: 1,
    };
    place.clock().set(9);
    assert_eq!(add(store, "a", &[said("one", 5), said("two", 6)], spent).await.unwrap(), 2);
    // A clock that goes back does not make the session older, and a cost that is none costs nothing.
    place.clock().set(2);
    assert_eq!(add(store, "a", &[said("three", 5)], TokenUsage { cost: f64::NAN, ..spent }).await.unwrap(), 3);
    store.add_cost("a", spent).await.unwrap();
    let usage = store.usage("a", 10).await.unwrap();
    let taken: Vec<_> = usage.iter().map(|it| (it.at, it.spent)).collect();
    assert_eq!(taken, [(at(9), spent), (at(2), TokenUsage { cost: 0.0, ..spent })]);
    assert_eq!(store.usage("a", 1).await.unwrap(), usage[1..]);
    assert_eq!(store.usage("b", 9).await.unwrap(), []);
    let want = SessionRecord {
        messages: 3,
        spent: TokenUsage {
            prompt_tokens: 30,
            completion_tokens: 9,
            cost: 1.0,
            cache_read_tokens: 12,
            cache_write_tokens: 6,
            reasoning_tokens: 3,
        },
        updated: at(9),
        ..session("a")
    };
    assert_eq!(store.get_session("a").await.unwrap(), Some(want));
    let lost = add(store, "b", &[said("x", 0)], spent).await.unwrap_err();
    assert_eq!(lost.to_string(), "there is no conversation `b`");
    let lost = store.add_cost("b", spent).await.unwrap_err();
    assert_eq!(lost.to_string(), "there is no conversation `b`");
}

pub(crate) async fn gives_messages_in_pages_from_the_end<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    begin(store, &session("a")).await.unwrap();
    begin(store, &session("b")).await.unwrap();
    for n in 1..=5 {
        add(store, "a", &[said(&format!("a{n}"), n)], TokenUsage::default()).await.unwrap();
        add(store, "b", &[said(&format!("b{n}"), n)], TokenUsage::default()).await.unwrap();
    }
    let page = async |before, most| words(&store.messages("a", before, most).await.unwrap());
    assert_eq!(page(None, 2).await, ["4 a4", "5 a5"]);
    assert_eq!(page(Some(4), 2).await, ["2 a2", "3 a3"]);
    assert_eq!(page(Some(2), 2).await, ["1 a1"]);
    assert_eq!(page(Some(1), 2).await, [""; 0]);
    assert_eq!(page(None, 0).await, [""; 0]);
    assert_eq!(page(Some(u64::MAX), usize::MAX).await.len(), 5);
    assert!(store.messages("c", None, 9).await.unwrap().is_empty());
}

pub(crate) async fn takes_a_turn_back<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    begin(store, &session("a")).await.unwrap();
    add(store, "a", &[said("1", 1), said("2", 2), said("3", 3)], TokenUsage::default()).await.unwrap();
    let held = lease(store, "a").await;
    store.update_session(&held, &SessionUpdate { view_from: Some(2), ..SessionUpdate::default() }).await.unwrap();
    assert_eq!(store.truncate_messages(&held, 3).await.unwrap(), 1);
    assert_eq!(store.get_session("a").await.unwrap().unwrap().view_from, Some(2));
    assert_eq!(store.truncate_messages(&held, 2).await.unwrap(), 1);
    let left = store.get_session("a").await.unwrap().unwrap();
    assert_eq!((left.messages, left.view_from), (1, None));
    assert_eq!(store.truncate_messages(&held, 2).await.unwrap(), 0);
    store.release_session(&held).await.unwrap();
    assert_eq!(add(store, "a", &[said("again", 4)], TokenUsage::default()).await.unwrap(), 2);
    assert_eq!(words(&store.messages("a", None, 9).await.unwrap()), ["1 1", "2 again"]);
    let held = lease(store, "b").await;
    assert_eq!(store.truncate_messages(&held, 1).await.unwrap_err().to_string(), "there is no conversation `b`");
}

pub(crate) async fn lists_the_last_used_first<M: Maker>() {
    let place = M::default();
    let store = &*place.store();
    for (id, user, workspace, parent, used) in [
        ("a", "ann", "/w", None, 1),
        ("b", "bob", "/w", None, 5),
        ("c", "ann", "/v", None, 4),
        ("d", "ann", "/w", Some("a"), 3),
        ("e", "ann", "/w", None, 2),
    ] {
        let (user, workspace, parent) = (user.to_owned(), workspace.to_owned(), parent.map(str::to_owned));
        place.clock().set(used);
        begin(store, &SessionRecord { user, workspace, parent, ..session(id) }).await.unwrap();
    }
    let all = SessionFilter { limit: 10, ..SessionFilter::default() };
    let ann = SessionFilter { user: Some("ann".into()), ..all.clone() };
    let list = async |which| {
        let (ids, total) = ids(store, which).await;
        format!("{} of {total}", ids.concat())
    };
    assert_eq!(list(all.clone()).await, "bcdea of 5");
    assert_eq!(list(ann.clone()).await, "cdea of 4");
    assert_eq!(list(SessionFilter { limit: 2, offset: 1, ..ann.clone() }).await, "de of 4");
    assert_eq!(list(SessionFilter { limit: 0, ..ann.clone() }).await, " of 4");
    assert_eq!(list(SessionFilter { offset: u64::MAX, limit: u64::MAX, ..ann.clone() }).await, " of 4");
    assert_eq!(list(SessionFilter { top_level_only: true, ..ann.clone() }).await, "cea of 3");
    assert_eq!(list(SessionFilter { workspace: Some("/w".into()), ..ann }).await, "dea of 3");
    assert_eq!(list(SessionFilter { parent: Some("a".into()), ..all.clone() }).await, "d of 1");
    place.clock().set(99);
    add(store, "a", &[said("hello", 99)], TokenUsage::default()).await.unwrap();
    assert_eq!(list(all).await, "abcde of 5");
}

pub(crate) async fn says_anew_only_what_is_given<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    begin(store, &session("a")).await.unwrap();
    let held = lease(store, "a").await;
    store.update_session(&held, &SessionUpdate { title: Some("t".into()), ..SessionUpdate::default() }).await.unwrap();
    store
        .update_session(
            &held,
            &SessionUpdate { model: Some("n".into()), view_from: Some(3), ..SessionUpdate::default() },
        )
        .await
        .unwrap();
    let want = SessionRecord { title: "t".into(), model: "n".into(), view_from: Some(3), ..session("a") };
    assert_eq!(store.get_session("a").await.unwrap(), Some(want));
    let lost = store.update_session(&lease(store, "b").await, &SessionUpdate::default()).await.unwrap_err();
    assert_eq!(lost.to_string(), "there is no conversation `b`");
}

pub(crate) async fn discards_a_conversation_with_all_that_came_of_it<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    for (id, parent) in [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", None)] {
        begin(store, &SessionRecord { parent: parent.map(str::to_owned), ..session(id) }).await.unwrap();
        add(store, id, &[said("hello", 1)], TokenUsage::default()).await.unwrap();
        let held = lease(store, id).await;
        store.set_state(&held, "todo", json!(["x"])).await.unwrap();
        store.release_session(&held).await.unwrap();
    }
    assert!(store.delete_session("a").await.unwrap());
    assert!(!store.delete_session("a").await.unwrap());
    assert_eq!(ids(store, SessionFilter { limit: 9, ..SessionFilter::default() }).await, (vec!["d".to_owned()], 1));
    for (id, left) in [("a", 0), ("b", 0), ("c", 0), ("d", 1)] {
        assert_eq!(store.messages(id, None, 9).await.unwrap().len(), left);
        assert_eq!(store.get_state(id, "todo").await.unwrap().is_some(), left == 1);
    }
    // The id is free again, and the new session is empty.
    begin(store, &session("a")).await.unwrap();
    assert!(store.messages("a", None, 9).await.unwrap().is_empty());
}

pub(crate) async fn keeps_slates_apart<M: Maker>() {
    let place = M::default();
    let store = place.store();
    assert_eq!(store.get_state("a", "todo").await.unwrap(), None);
    let (a, b) = (lease(&*store, "a").await, lease(&*store, "b").await);
    for (second, lease, name, value) in [
        (1, &a, "todo", json!([1])),
        (2, &a, "pad", json!("p")),
        (3, &b, "todo", json!({"x": null})),
        (4, &a, "todo", json!([2])),
    ] {
        place.clock().set(second);
        store.set_state(lease, name, value).await.unwrap();
    }
    let other = place.store();
    let told = async |session, name| other.get_state(session, name).await.unwrap().map(|it| (it.value, it.updated));
    assert_eq!(told("a", "todo").await, Some((json!([2]), at(4))));
    assert_eq!(told("b", "todo").await, Some((json!({"x": null}), at(3))));
    assert!(store.delete_state(&a, "todo").await.unwrap());
    assert!(!store.delete_state(&a, "todo").await.unwrap());
    assert_eq!(told("a", "todo").await, None);
    assert_eq!(told("a", "pad").await, Some((json!("p"), at(2))));
}

/// Eight handles write at once, each into its own session and all into one: nobody is turned away.
pub(crate) async fn takes_eight_writers_at_once<M: Maker>() {
    const EACH: u64 = 25;
    let place = Arc::new(M::default());
    begin(&*place.store(), &session("all")).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let place = place.clone();
            tokio::spawn(async move {
                let (store, own) = (place.store(), format!("own{n}"));
                begin(&*store, &session(&own)).await.unwrap();
                for i in 1..=EACH {
                    let message = [said(&format!("{n}.{i}"), 1)];
                    assert_eq!(add(&*store, &own, &message, TokenUsage::default()).await.unwrap(), i);
                    add(&*store, "all", &message, TokenUsage::default()).await.unwrap();
                    assert_eq!(store.messages(&own, None, 1).await.unwrap()[0].seq, i);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let all = place.store().messages("all", None, 1000).await.unwrap();
    assert!(all.iter().map(|message| message.seq).eq(1..=8 * EACH));
    for n in 0..8 {
        let own = all.iter().map(|m| words(std::slice::from_ref(m))[0].split_once(' ').unwrap().1.to_owned());
        let own: Vec<_> = own.filter(|text| text.starts_with(&format!("{n}."))).collect();
        assert!(own.into_iter().eq((1..=EACH).map(|i| format!("{n}.{i}"))), "in the order of each writer");
    }
}

/// Whoever does not hold a session writes nothing to it, whatever the clock says, and everything else is for the holder.
pub(crate) async fn a_stale_lease_writes_nothing<M: Maker>() {
    let place = M::default();
    let store = &*place.store();
    begin(store, &session("a")).await.unwrap();
    for round in 0..1000 {
        place.clock().set(round * 100);
        let old = store.claim_session("a", "first", LENGTH).await.unwrap();
        assert_eq!(old.until, at(round * 100 + 30));
        let held = store.claim_session("a", "second", LENGTH).await.unwrap_err();
        assert!(matches!(&held, Error::SessionHeld(holder) if holder.since == at(round * 100)), "{held}");
        add_under(store, &old, "first").await.unwrap();
        // It sleeps beyond its lease. Nobody took it, so it goes on.
        place.clock().set(round * 100 + 40);
        add_under(store, &old, "late").await.unwrap();
        let old = if round % 2 == 0 { store.hold_session(&old, LENGTH).await.unwrap() } else { old };
        // It sleeps again, and another one takes over.
        place.clock().set(round * 100 + 80);
        let new = store.claim_session("a", "second", LENGTH).await.unwrap();
        assert!(new.epoch > old.epoch);
        let before = (store.get_session("a").await.unwrap(), store.get_state("a", "pad").await.unwrap());
        let lost = [
            add_under(store, &old, "stale").await.map(drop),
            store.append_messages(&old, &[], TokenUsage { cost: 1.0, ..TokenUsage::default() }).await.map(drop),
            store.truncate_messages(&old, 1).await.map(drop),
            store
                .update_session(&old, &SessionUpdate { title: Some("stale".into()), ..SessionUpdate::default() })
                .await,
            store.set_state(&old, "pad", json!("stale")).await,
            store.delete_state(&old, "pad").await.map(drop),
            store.create_session(&Lease { key: "b".into(), ..old.clone() }, &session("b")).await.map(drop),
            store.hold_session(&old, LENGTH).await.map(drop),
            store.release_session(&old).await,
        ];
        for (write, outcome) in lost.into_iter().enumerate() {
            assert!(matches!(outcome, Err(Error::LeaseLost(_))), "write {write} of round {round}: {outcome:?}");
        }
        assert_eq!((store.get_session("a").await.unwrap(), store.get_state("a", "pad").await.unwrap()), before);
        store.set_state(&new, "pad", json!(round)).await.unwrap();
        store.release_session(&new).await.unwrap();
    }
    assert_eq!(store.get_session("a").await.unwrap().unwrap().messages, 2000);
}

async fn add_under(store: &dyn Store, lease: &Lease, text: &str) -> Result<u64> {
    store.append_messages(lease, &[said(text, 0)], TokenUsage::default()).await.map(|it| it.last)
}

pub(crate) async fn the_holder_moves_in_what_others_left<M: Maker>() {
    let place = M::default();
    let store = &*place.store();
    let unknown = store.post("a", &InboxItem::text(MessageRole::User, "x")).await.unwrap_err();
    assert_eq!(unknown.to_string(), "there is no conversation `a`");
    begin(store, &session("a")).await.unwrap();
    let held = lease(store, "a").await;
    add_under(store, &held, "one").await.unwrap();
    // Nobody needs a lease to leave something.
    let other = place.store();
    other.post("a", &InboxItem::text(MessageRole::User, "two")).await.unwrap();
    other.post("a", &InboxItem::text(MessageRole::System, "three")).await.unwrap();
    assert_eq!(words(&store.messages("a", None, 9).await.unwrap()), ["1 one"]);
    let moved = store.take_inbox(&held).await.unwrap();
    assert_eq!((words(&moved.messages), moved.undone), (vec!["2 two".to_owned(), "3 three".to_owned()], false));
    assert_eq!(words(&store.messages("a", None, 9).await.unwrap()), ["1 one", "2 two", "3 three"]);
    other.post("a", &InboxItem::text(MessageRole::User, "wrong")).await.unwrap();
    other.post("a", &InboxItem::Undo { from: 3 }).await.unwrap();
    other.post("a", &InboxItem::text(MessageRole::User, "right")).await.unwrap();
    let stale = Lease { epoch: held.epoch - 1, ..held.clone() };
    assert!(matches!(store.take_inbox(&stale).await, Err(Error::LeaseLost(_))));
    let moved = store.take_inbox(&held).await.unwrap();
    assert_eq!((words(&moved.messages), moved.undone), (vec!["3 right".to_owned()], true));
    assert_eq!(words(&store.messages("a", None, 9).await.unwrap()), ["1 one", "2 two", "3 right"]);
    assert!(store.take_inbox(&held).await.unwrap().messages.is_empty());
    assert_eq!(store.get_session("a").await.unwrap().unwrap().messages, 3);
}

pub(crate) async fn nobody_removes_a_session_that_is_held<M: Maker>() {
    let place = M::default();
    let store = &*place.store();
    begin(store, &session("a")).await.unwrap();
    let held = lease(store, "a").await;
    let holder = store.session_holder("a").await.unwrap().unwrap();
    assert_eq!((holder.pid, holder.since, holder.until), (std::process::id(), at(0), at(30)));
    let error = store.delete_session("a").await.unwrap_err().to_string();
    let want = format!(
        "session a is in use by process {} on {} since 2027-01-15T08:00:00Z. Wait until its turn ends or stop that \
         process, then retry",
        holder.pid, holder.host
    );
    assert_eq!(error, want);
    store.release_session(&held).await.unwrap();
    assert_eq!(store.session_holder("a").await.unwrap(), None);
    assert!(store.delete_session("a").await.unwrap());
}

pub(crate) async fn tenants_see_nothing_of_each_other<M: Maker>() {
    let place = M::default();
    let (ours, theirs) = (&*place.store(), &*place.store_of("other"));
    begin(ours, &session("a")).await.unwrap();
    add(ours, "a", &[said("ours", 0)], TokenUsage::default()).await.unwrap();
    assert_eq!(theirs.get_session("a").await.unwrap(), None);
    assert_eq!(theirs.list_sessions(&SessionFilter { limit: 9, ..SessionFilter::default() }).await.unwrap().1, 0);
    assert!(theirs.messages("a", None, 9).await.unwrap().is_empty());
    // The same id, held by both at once.
    let (held, other) = (lease(ours, "a").await, theirs.claim_session("a", "other", LENGTH).await.unwrap());
    theirs.create_session(&other, &session("a")).await.unwrap();
    add_under(theirs, &other, "theirs").await.unwrap();
    ours.set_state(&held, "pad", json!(1)).await.unwrap();
    assert_eq!(theirs.get_state("a", "pad").await.unwrap(), None);
    let note = helve_contract::ports::NewNote { text: "ferns like shade".into(), ..Default::default() };
    let saved = ours.save_note("ann", &note).await.unwrap();
    assert_eq!(theirs.notes("ann", 0, 9).await.unwrap().1, 0);
    assert!(!theirs.delete_note("ann", &saved.id).await.unwrap());
    let question = helve_contract::ports::MemoryQuery {
        text: "shade".into(),
        user: Some("ann".into()),
        limit: 5,
        ..Default::default()
    };
    assert!(theirs.search_memory(&question).await.unwrap().is_empty());
    assert_eq!(ours.search_memory(&question).await.unwrap().len(), 1);
    assert_eq!(theirs.update_note("ann", &saved.id, &note).await.unwrap(), None);
    assert!(!theirs.release_note("ann", &saved.id).await.unwrap());
    let mark = helve_contract::ports::FileRevision { path: "MEMORY.md".into(), revision: "1".into() };
    ours.sync_files("ann", "/w", std::slice::from_ref(&mark)).await.unwrap();
    ours.index_file("ann", "/w", &mark, "The cat eats twice a day.").await.unwrap();
    let cat = helve_contract::ports::MemoryQuery { text: "cat eats".into(), workspace: Some("/w".into()), ..question };
    assert!(theirs.search_memory(&cat).await.unwrap().is_empty());
    assert!(!ours.search_memory(&cat).await.unwrap().is_empty());
    let unread = theirs.sync_files("ann", "/w", std::slice::from_ref(&mark)).await.unwrap();
    assert_eq!(unread, ["MEMORY.md"], "the other tenant has not read the file");
    // What is sent, counted and held under the same id stays with its tenant.
    theirs.post("a", &InboxItem::text(MessageRole::User, "for theirs")).await.unwrap();
    assert_eq!(ours.take_inbox(&held).await.unwrap().messages, []);
    assert_eq!(theirs.take_inbox(&other).await.unwrap().messages.len(), 1);
    let spent = TokenUsage { prompt_tokens: 7, ..TokenUsage::default() };
    let answer = Message { role: MessageRole::Assistant, ..said("answer", 0) };
    theirs.append_messages(&other, &[answer], spent).await.unwrap();
    assert!(ours.usage("a", 9).await.unwrap().iter().all(|it| it.spent == TokenUsage::default()));
    assert_eq!(ours.get_session("a").await.unwrap().unwrap().spent, TokenUsage::default());
    begin(ours, &session("only ours")).await.unwrap();
    lease(ours, "only ours").await;
    assert_eq!(theirs.session_holder("only ours").await.unwrap(), None);
    let labelled = SessionRecord { label: Some("hook:build".into()), ..session("labelled") };
    begin(ours, &labelled).await.unwrap();
    let which = SessionFilter { label: Some("hook:build".into()), limit: 9, ..SessionFilter::default() };
    assert_eq!((ours.list_sessions(&which).await.unwrap().1, theirs.list_sessions(&which).await.unwrap().1), (1, 0));
    theirs.release_session(&other).await.unwrap();
    assert!(!theirs.delete_session("labelled").await.unwrap());
    assert!(theirs.delete_session("a").await.unwrap());
    assert_eq!(words(&ours.messages("a", None, 9).await.unwrap()), ["1 ours"]);
}

/// Keeps the place together with a store of it, for a story that needs one handle only.
trait Kept: Maker {
    fn store_kept(self) -> (Self, Arc<dyn Store>) {
        let store = self.store();
        (self, store)
    }
}

impl<M: Maker> Kept for M {}
