//! Indexes a user's session messages when a search needs them.

use helve_contract::{Result, ports::MessagePart};
use rusqlite::params;

use super::{
    super::SqliteStore,
    cut,
    index::{self, Passage},
    shelf::{self, Key},
};

/// Messages taken in at once.
const INDEX_BATCH: u64 = 200;

/// A message that is not in the index yet.
struct UnindexedMessage {
    session: String,
    seq: u64,
    created: i64,
    passages: Vec<Passage>,
}

impl SqliteStore {
    /// Indexes new messages. Batches commit separately: an interrupted call loses none.
    pub(super) async fn index_conversations(&self, user: &str) -> Result<()> {
        loop {
            let said = self.unindexed_messages(user).await?;
            if said.is_empty() {
                return Ok(());
            }
            let mut read = Vec::new();
            for it in said {
                read.push((it.session, it.seq, it.created, self.read_passages(it.passages).await));
            }
            let user = user.to_owned();
            self.write(move |t| {
                let shelf = shelf::id(t, &Key::talk(&user))?;
                for (session, seq, created, passages) in &read {
                    // Two processes may index at once, and a message may be deleted meanwhile.
                    let wanted: bool = t
                        .prepare_cached(
                            "SELECT EXISTS (SELECT 1 FROM messages WHERE tenant = ?3 AND session = ?1 AND seq = ?2) \
                             AND coalesce((SELECT upto FROM heard WHERE tenant = ?3 AND session = ?1), 0) < ?2",
                        )?
                        .query_row(params![session, seq, t.tenant], |row| row.get(0))?;
                    if wanted {
                        index::insert(t, shelf, session, *created, passages)?;
                        t.prepare_cached("INSERT OR REPLACE INTO heard (tenant, session, upto) VALUES (?1, ?2, ?3)")?
                            .execute(params![t.tenant, session, seq])?;
                    }
                }
                Ok(())
            })
            .await?;
        }
    }

    /// Some messages of the user's sessions that were not heard yet, in order.
    async fn unindexed_messages(&self, user: &str) -> Result<Vec<UnindexedMessage>> {
        let user = user.to_owned();
        self.read(move |t| {
            let mut said = t.prepare_cached(
                "SELECT m.session, m.seq, m.created, m.role, m.parts FROM sessions s \
                 JOIN messages m ON m.tenant = s.tenant AND m.session = s.id \
                 LEFT JOIN heard h ON h.tenant = s.tenant AND h.session = s.id \
                 WHERE s.tenant = ?1 AND s.user = ?2 AND m.seq > coalesce(h.upto, 0) \
                 ORDER BY m.session, m.seq LIMIT ?3",
            )?;
            let rows = said.query_map(params![t.tenant, user, INDEX_BATCH], |row| {
                let (seq, role, parts): (u64, String, String) = (row.get(1)?, row.get(3)?, row.get(4)?);
                let passages =
                    if role == "user" || role == "assistant" { chunk_message(&parts, seq) } else { Vec::new() };
                Ok(UnindexedMessage { session: row.get(0)?, seq, created: row.get(2)?, passages })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

/// The words of a message, in pieces that all have its number.
fn chunk_message(parts: &str, seq: u64) -> Vec<Passage> {
    let parts: Vec<MessagePart> = serde_json::from_str(parts).unwrap_or_default();
    let texts = parts.into_iter().filter_map(|part| match part {
        MessagePart::Text { text } if !text.trim().is_empty() => Some(text),
        _ => None,
    });
    texts.flat_map(|text| cut::chunk_note(&text)).map(|it| Passage { first: seq, last: seq, ..it }).collect()
}
