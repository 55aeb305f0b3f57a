//! Counts the copies of appended messages. A separate binary, because the counting allocator is global.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{alloc::System, sync::Arc, time::Duration};

use helve_contract::{
    jiff::Timestamp,
    ports::{Message, MessagePart, MessageRole, SessionRecord, Sessions as _, TokenUsage},
};
use helve_store::SqliteStore;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A message large enough that nothing else counts.
const SIZE: usize = 16 << 20;

async fn allocated(store: &SqliteStore) -> usize {
    let text = String::new;
    let record = SessionRecord {
        id: "s".into(),
        label: None,
        parent: None,
        user: text(),
        agent: text(),
        title: text(),
        dialect: text(),
        model: text(),
        workspace: text(),
        messages: 0,
        spent: TokenUsage::default(),
        view_from: None,
        created: Timestamp::UNIX_EPOCH,
        updated: Timestamp::UNIX_EPOCH,
    };
    let lease = store.claim_session("s", "test", Duration::from_secs(60)).await.unwrap();
    store.create_session(&lease, &record).await.unwrap();
    let parts = vec![MessagePart::Text { text: "x".repeat(SIZE) }];
    let messages = [Message { seq: 0, role: MessageRole::User, parts, created: Timestamp::UNIX_EPOCH }];
    let region = Region::new(ALLOCATOR);
    store.append_messages(&lease, &messages, TokenUsage::default()).await.unwrap();
    region.change().bytes_allocated
}

/// One copy goes to the writing thread; a listener gets the same one. The JSON text takes twice its size, because its
/// buffer doubles when the closing marks come. One more copy would be four sizes.
#[tokio::test]
async fn an_appended_message_is_copied_once() {
    let folder = tempfile::tempdir().unwrap();
    let quiet = SqliteStore::lazy(folder.path().join("quiet.db"));
    let heard = SqliteStore::lazy(folder.path().join("heard.db"));
    let heard = heard.with_listener(Arc::new(|_, messages| assert_eq!(messages[0].seq, 1)));
    for store in [&quiet, &heard] {
        let bytes = allocated(store).await;
        assert!(bytes < 3 * SIZE + SIZE / 2, "{bytes} bytes for a message of {SIZE}");
    }
}
