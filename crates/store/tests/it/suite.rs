//! What every store does, whatever it is made of. A maker is a place; each store that it gives is another handle on it.

use std::sync::Arc;

use helve_contract::{
    jiff::Timestamp,
    ports::{Message, Part, Retitle, SessionRecord, Speaker, Spent, Store, Which},
};
use serde_json::json;

/// A place for records that goes away with this.
pub(crate) trait Maker: Default + Send + Sync + 'static {
    /// Another handle on the records of this place.
    fn store(&self) -> Arc<dyn Store>;
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
        parent: None,
        user: "ann".into(),
        agent: "main".into(),
        title: format!("about {id}"),
        dialect: "solo".into(),
        model: "m".into(),
        workspace: "/w".into(),
        messages: 0,
        spent: Spent::default(),
        view_from: None,
        created: at(0),
        updated: at(0),
    }
}

pub(crate) fn said(text: &str, second: i64) -> Message {
    Message { seq: 0, role: Speaker::User, parts: vec![Part::Text { text: text.into() }], created: at(second) }
}

fn words(messages: &[Message]) -> Vec<String> {
    let part = |part: &Part| if let Part::Text { text } = part { text.clone() } else { format!("{part:?}") };
    messages.iter().map(|m| format!("{} {}", m.seq, m.parts.iter().map(part).collect::<String>())).collect()
}

async fn ids(store: &dyn Store, which: Which) -> (Vec<String>, u64) {
    let (found, total) = store.conversations(&which).await.unwrap();
    (found.into_iter().map(|it| it.id).collect(), total)
}

pub(crate) async fn keeps_a_conversation_as_it_was_told<M: Maker>() {
    let place = M::default();
    let store = place.store();
    let record = SessionRecord {
        parent: Some("nowhere".into()),
        spent: Spent { prompt_tokens: 1, completion_tokens: 2, cost: 0.25, ..Spent::default() },
        view_from: Some(7),
        created: "2026-01-02T03:04:05.678901Z".parse().unwrap(),
        updated: "2026-01-02T03:04:06Z".parse().unwrap(),
        ..session("a")
    };
    store.begin(&record).await.unwrap();
    assert_eq!(store.conversation("a").await.unwrap(), Some(record.clone()));
    assert_eq!(place.store().conversation("a").await.unwrap(), Some(record.clone()));
    assert_eq!(store.conversation("b").await.unwrap(), None);
    assert_eq!(store.begin(&record).await.unwrap_err().to_string(), "there is already a conversation `a`");
}

pub(crate) async fn keeps_every_kind_of_part<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.begin(&session("a")).await.unwrap();
    let text = |text: &str| text.to_owned();
    let parts = vec![
        Part::Text { text: text("ü\u{0}\n\u{1F600}") },
        Part::Reasoning { thinking: text("hm") },
        Part::ToolCall { id: text("1"), name: text("read"), input: text("{\"path\":"), finished: false },
        Part::ToolResult { tool_call_id: text("1"), name: text("read"), content: text("no"), is_error: true },
        Part::Binary { path: text("a.png"), mime_type: text("image/png"), data: text("AAAA") },
        Part::Finish { reason: text("tool_use") },
    ];
    for role in [Speaker::User, Speaker::Assistant, Speaker::Tool, Speaker::System] {
        let message = Message { seq: 0, role, parts: parts.clone(), created: at(1) };
        let seq = store.append("a", std::slice::from_ref(&message), Spent::default()).await.unwrap();
        let last = place.store().messages("a", None, 1).await.unwrap();
        assert_eq!(last, [Message { seq, ..message }]);
    }
}

pub(crate) async fn counts_what_is_said_and_spent<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    store.begin(&session("a")).await.unwrap();
    let spent = Spent { prompt_tokens: 10, completion_tokens: 3, cost: 0.5, ..Spent::default() };
    assert_eq!(store.append("a", &[said("one", 5), said("two", 9)], spent).await.unwrap(), 2);
    // A message that is told late does not make the conversation older, and a cost that is none costs nothing.
    assert_eq!(store.append("a", &[said("three", 2)], Spent { cost: f64::NAN, ..spent }).await.unwrap(), 3);
    assert_eq!(store.append("a", &[], spent).await.unwrap(), 3);
    let usage = store.usage("a", 10).await.unwrap();
    let taken: Vec<_> = usage.iter().map(|it| (it.at, it.spent)).collect();
    assert_eq!(taken, [(said("one", 5).created, spent), (said("three", 2).created, Spent { cost: 0.0, ..spent })]);
    assert_eq!(store.usage("a", 1).await.unwrap(), usage[1..]);
    assert_eq!(store.usage("b", 9).await.unwrap(), []);
    let want = SessionRecord {
        messages: 3,
        spent: Spent { prompt_tokens: 30, completion_tokens: 9, cost: 1.0, ..Spent::default() },
        updated: at(9),
        ..session("a")
    };
    assert_eq!(store.conversation("a").await.unwrap(), Some(want));
    let lost = store.append("b", &[said("x", 0)], spent).await.unwrap_err();
    assert_eq!(lost.to_string(), "there is no conversation `b`");
}

pub(crate) async fn gives_messages_in_pages_from_the_end<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    store.begin(&session("a")).await.unwrap();
    store.begin(&session("b")).await.unwrap();
    for n in 1..=5 {
        store.append("a", &[said(&format!("a{n}"), n)], Spent::default()).await.unwrap();
        store.append("b", &[said(&format!("b{n}"), n)], Spent::default()).await.unwrap();
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
    store.begin(&session("a")).await.unwrap();
    store.append("a", &[said("1", 1), said("2", 2), said("3", 3)], Spent::default()).await.unwrap();
    store.retitle("a", &Retitle { view_from: Some(2), ..Retitle::default() }).await.unwrap();
    assert_eq!(store.take_back("a", 3).await.unwrap(), 1);
    assert_eq!(store.conversation("a").await.unwrap().unwrap().view_from, Some(2));
    assert_eq!(store.take_back("a", 2).await.unwrap(), 1);
    let left = store.conversation("a").await.unwrap().unwrap();
    assert_eq!((left.messages, left.view_from), (1, None));
    assert_eq!(store.take_back("a", 2).await.unwrap(), 0);
    assert_eq!(store.append("a", &[said("again", 4)], Spent::default()).await.unwrap(), 2);
    assert_eq!(words(&store.messages("a", None, 9).await.unwrap()), ["1 1", "2 again"]);
    assert_eq!(store.take_back("b", 1).await.unwrap_err().to_string(), "there is no conversation `b`");
}

pub(crate) async fn lists_the_last_used_first<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    for (id, user, workspace, parent, used) in [
        ("a", "ann", "/w", None, 1),
        ("b", "bob", "/w", None, 5),
        ("c", "ann", "/v", None, 4),
        ("d", "ann", "/w", Some("a"), 3),
        ("e", "ann", "/w", None, 2),
    ] {
        let (user, workspace, parent) = (user.to_owned(), workspace.to_owned(), parent.map(str::to_owned));
        store.begin(&SessionRecord { user, workspace, parent, updated: at(used), ..session(id) }).await.unwrap();
    }
    let all = Which { most: 10, ..Which::default() };
    let ann = Which { user: Some("ann".into()), ..all.clone() };
    let list = async |which| {
        let (ids, total) = ids(store, which).await;
        format!("{} of {total}", ids.concat())
    };
    assert_eq!(list(all.clone()).await, "bcdea of 5");
    assert_eq!(list(ann.clone()).await, "cdea of 4");
    assert_eq!(list(Which { most: 2, offset: 1, ..ann.clone() }).await, "de of 4");
    assert_eq!(list(Which { most: 0, ..ann.clone() }).await, " of 4");
    assert_eq!(list(Which { offset: u64::MAX, most: u64::MAX, ..ann.clone() }).await, " of 4");
    assert_eq!(list(Which { top_only: true, ..ann.clone() }).await, "cea of 3");
    assert_eq!(list(Which { workspace: Some("/w".into()), ..ann }).await, "dea of 3");
    assert_eq!(list(Which { parent: Some("a".into()), ..all.clone() }).await, "d of 1");
    store.append("a", &[said("hello", 99)], Spent::default()).await.unwrap();
    assert_eq!(list(all).await, "abcde of 5");
}

pub(crate) async fn says_anew_only_what_is_given<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    store.begin(&session("a")).await.unwrap();
    store.retitle("a", &Retitle { title: Some("t".into()), ..Retitle::default() }).await.unwrap();
    store.retitle("a", &Retitle { model: Some("n".into()), view_from: Some(3), ..Retitle::default() }).await.unwrap();
    let want = SessionRecord { title: "t".into(), model: "n".into(), view_from: Some(3), ..session("a") };
    assert_eq!(store.conversation("a").await.unwrap(), Some(want));
    let lost = store.retitle("b", &Retitle::default()).await.unwrap_err();
    assert_eq!(lost.to_string(), "there is no conversation `b`");
}

pub(crate) async fn discards_a_conversation_with_all_that_came_of_it<M: Maker>() {
    let store = M::default().store_kept();
    let store = &*store.1;
    for (id, parent) in [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", None)] {
        store.begin(&SessionRecord { parent: parent.map(str::to_owned), ..session(id) }).await.unwrap();
        store.append(id, &[said("hello", 1)], Spent::default()).await.unwrap();
        store.write_slate(id, "todo", json!(["x"]), at(1)).await.unwrap();
    }
    assert!(store.discard("a").await.unwrap());
    assert!(!store.discard("a").await.unwrap());
    assert_eq!(ids(store, Which { most: 9, ..Which::default() }).await, (vec!["d".to_owned()], 1));
    for (id, left) in [("a", 0), ("b", 0), ("c", 0), ("d", 1)] {
        assert_eq!(store.messages(id, None, 9).await.unwrap().len(), left);
        assert_eq!(store.slate(id, "todo").await.unwrap().is_some(), left == 1);
    }
    // The id is free again, and the new conversation is empty.
    store.begin(&session("a")).await.unwrap();
    assert!(store.messages("a", None, 9).await.unwrap().is_empty());
}

pub(crate) async fn keeps_slates_apart<M: Maker>() {
    let place = M::default();
    let store = place.store();
    assert_eq!(store.slate("a", "todo").await.unwrap(), None);
    store.write_slate("a", "todo", json!([1]), at(1)).await.unwrap();
    store.write_slate("a", "pad", json!("p"), at(2)).await.unwrap();
    store.write_slate("b", "todo", json!({"x": null}), at(3)).await.unwrap();
    store.write_slate("a", "todo", json!([2]), at(4)).await.unwrap();
    let other = place.store();
    let told = async |session, name| other.slate(session, name).await.unwrap().map(|it| (it.value, it.updated));
    assert_eq!(told("a", "todo").await, Some((json!([2]), at(4))));
    assert_eq!(told("b", "todo").await, Some((json!({"x": null}), at(3))));
    assert!(store.wipe_slate("a", "todo").await.unwrap());
    assert!(!store.wipe_slate("a", "todo").await.unwrap());
    assert_eq!(told("a", "todo").await, None);
    assert_eq!(told("a", "pad").await, Some((json!("p"), at(2))));
}

/// Eight handles write at once, each into its own conversation and all into one: nobody is turned away.
pub(crate) async fn takes_eight_writers_at_once<M: Maker>() {
    const EACH: u64 = 25;
    let place = Arc::new(M::default());
    place.store().begin(&session("all")).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let place = place.clone();
            tokio::spawn(async move {
                let (store, own) = (place.store(), format!("own{n}"));
                store.begin(&session(&own)).await.unwrap();
                for i in 1..=EACH {
                    let message = [said(&format!("{n}.{i}"), 1)];
                    assert_eq!(store.append(&own, &message, Spent::default()).await.unwrap(), i);
                    store.append("all", &message, Spent::default()).await.unwrap();
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

/// Keeps the place together with a store of it, for a story that needs one handle only.
trait Kept: Maker {
    fn store_kept(self) -> (Self, Arc<dyn Store>) {
        let store = self.store();
        (self, store)
    }
}

impl<M: Maker> Kept for M {}
