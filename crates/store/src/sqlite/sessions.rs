//! Sessions: one row each, and one row per message, numbered from 1 without gaps.

use std::time::Duration;

use async_trait::async_trait;
use helve_contract::{
    Error, Result,
    ports::{
        Appended, InboxItem, Lease, Message, MessagePart, MessageRole, Moved, SessionFilter, SessionHolder,
        SessionRecord, SessionUpdate, Sessions, TokenUsage, UsageRecord,
    },
};
use rusqlite::{OptionalExtension, Row, ToSql, params};

use super::{
    SqliteStore, Tx, from_micros,
    leases::{self, IS_HELD},
    to_micros,
};

/// What is read of a session, in the order of [`record`].
const SESSION_COLUMNS: &str = "id, parent, user, agent, title, dialect, model, workspace, messages, \
                       prompt_tokens, completion_tokens, cost, view_from, created, updated, label, \
                       cache_read_tokens, cache_write_tokens, reasoning_tokens";

/// A session and all that came of it, by id. `UNION` ends circles.
const DESCENDANTS_CTE: &str = "WITH RECURSIVE family (id) AS (SELECT ?2 UNION \
                      SELECT sessions.id FROM sessions JOIN family ON tenant = ?1 AND sessions.parent = family.id)";

#[async_trait]
impl Sessions for SqliteStore {
    async fn claim_session(&self, session: &str, owner: &str, length: Duration) -> Result<Lease> {
        let (session, owner) = (session.to_owned(), owner.to_owned());
        self.write(move |t| leases::claim(t, &session, &owner, length)).await
    }

    async fn hold_session(&self, lease: &Lease, length: Duration) -> Result<Lease> {
        let lease = lease.clone();
        self.write(move |t| leases::hold(t, &lease, length)).await
    }

    async fn release_session(&self, lease: &Lease) -> Result<()> {
        let lease = lease.clone();
        self.write(move |t| leases::release(t, &lease)).await
    }

    fn abandon_session(&self, lease: &Lease) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (store, lease) = (self.clone(), lease.clone());
            runtime.spawn(async move { store.release_session(&lease).await });
        }
    }

    async fn session_holder(&self, session: &str) -> Result<Option<SessionHolder>> {
        let session = session.to_owned();
        self.read(move |t| leases::holder(t, &session)).await
    }

    async fn create_session(&self, lease: &Lease, record: &SessionRecord) -> Result<SessionRecord> {
        let (lease, mut record) = (lease.clone(), record.clone());
        self.write(move |t| {
            if find(t, &record.id)?.is_some() {
                return Err(Error::failed(format!("there is already a conversation `{}`", record.id)).into());
            }
            anyhow::ensure!(lease.key == record.id, "the lease of {} is not for {}", lease.key, record.id);
            let sql = format!(
                "INSERT INTO sessions (tenant, {SESSION_COLUMNS}) \
                 SELECT ?1,?2,?5,?6,?7,?8,?9,?10,?11,0,?12,?13,?14,?15,?16,?16,?17,?18,?19,?20 WHERE {IS_HELD}"
            );
            let begun = t.prepare_cached(&sql)?.execute(params![
                t.tenant,
                record.id,
                lease.owner,
                lease.epoch,
                record.parent,
                record.user,
                record.agent,
                record.title,
                record.dialect,
                record.model,
                record.workspace,
                record.spent.prompt_tokens,
                record.spent.completion_tokens,
                finite_cost(record.spent.cost),
                record.view_from,
                to_micros(t.now),
                record.label,
                record.spent.cache_read_tokens,
                record.spent.cache_write_tokens,
                record.spent.reasoning_tokens,
            ])?;
            if begun == 0 {
                return Err(leases::lost(&lease));
            }
            (record.messages, record.created, record.updated) =
                (0, from_micros(to_micros(t.now)), from_micros(to_micros(t.now)));
            Ok(record)
        })
        .await
    }

    async fn get_session(&self, id: &str) -> Result<Option<SessionRecord>> {
        let id = id.to_owned();
        self.read(move |t| find(t, &id)).await
    }

    async fn list_sessions(&self, which: &SessionFilter) -> Result<(Vec<SessionRecord>, u64)> {
        let which = which.clone();
        self.read(move |t| list(t, &which)).await
    }

    async fn append_messages(&self, lease: &Lease, messages: &[Message], spent: TokenUsage) -> Result<Appended> {
        let (lease, messages) = (lease.clone(), messages.to_vec());
        let written = self.write(move |t| {
            let mut messages = messages;
            let last = append(t, &lease, &mut messages, spent)?;
            Ok((Appended { last, at: from_micros(to_micros(t.now)) }, lease.key, messages))
        });
        let (appended, session, messages) = written.await?;
        self.tell(&session, &messages);
        Ok(appended)
    }

    async fn post(&self, session: &str, item: &InboxItem) -> Result<()> {
        let (session, item) = (session.to_owned(), serde_json::to_string(item).map_err(anyhow::Error::from)?);
        self.write(move |t| {
            require_session(t, &session)?;
            t.prepare_cached("INSERT INTO inbox (tenant, session, item, created) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![t.tenant, session, item, to_micros(t.now)])?;
            Ok(())
        })
        .await
    }

    async fn take_inbox(&self, lease: &Lease) -> Result<Moved> {
        let key = lease.key.clone();
        // A read is cheap and does not block; usually there is nothing to move.
        let is_empty = self.read(move |t| {
            let mut some = t.prepare_cached("SELECT 1 FROM inbox WHERE tenant = ?1 AND session = ?2 LIMIT 1")?;
            Ok(!some.exists(params![t.tenant, key])?)
        });
        if is_empty.await? {
            return Ok(Moved::default());
        }
        let (session, lease) = (lease.key.clone(), lease.clone());
        let moved = self.write(move |t| move_in(t, &lease)).await?;
        self.tell(&session, &moved.messages);
        Ok(moved)
    }

    async fn add_cost(&self, session: &str, spent: TokenUsage) -> Result<()> {
        let session = session.to_owned();
        self.write(move |t| {
            let changed = t
                .prepare_cached(
                    "UPDATE sessions SET prompt_tokens = prompt_tokens + ?3, \
                     completion_tokens = completion_tokens + ?4, cost = cost + ?5, \
                     cache_read_tokens = cache_read_tokens + ?6, cache_write_tokens = cache_write_tokens + ?7, \
                     reasoning_tokens = reasoning_tokens + ?8 WHERE tenant = ?1 AND id = ?2",
                )?
                .execute(params![
                    t.tenant,
                    session,
                    spent.prompt_tokens,
                    spent.completion_tokens,
                    finite_cost(spent.cost),
                    spent.cache_read_tokens,
                    spent.cache_write_tokens,
                    spent.reasoning_tokens,
                ])?;
            if changed == 0 { Err(unknown_session_error(&session).into()) } else { Ok(()) }
        })
        .await
    }

    async fn messages(&self, session: &str, before: Option<u64>, most: usize) -> Result<Vec<Message>> {
        let session = session.to_owned();
        self.read(move |t| page(t, &session, before, most)).await
    }

    async fn usage(&self, session: &str, most: usize) -> Result<Vec<UsageRecord>> {
        let session = session.to_owned();
        self.read(move |t| usage(t, &session, most)).await
    }

    async fn truncate_messages(&self, lease: &Lease, from: u64) -> Result<u64> {
        let lease = lease.clone();
        self.write(move |t| take_back(t, &lease, from)).await
    }

    async fn update_session(&self, lease: &Lease, change: &SessionUpdate) -> Result<()> {
        let (lease, change) = (lease.clone(), change.clone());
        self.write(move |t| {
            let sql = format!(
                "UPDATE sessions SET title = coalesce(?5, title), model = coalesce(?6, model), \
                 view_from = coalesce(?7, view_from) WHERE tenant = ?1 AND id = ?2 AND {IS_HELD}"
            );
            let changed = t.prepare_cached(&sql)?.execute(params![
                t.tenant,
                lease.key,
                lease.owner,
                lease.epoch,
                change.title,
                change.model,
                change.view_from
            ])?;
            if changed == 0 { Err(refusal(t, &lease)?) } else { Ok(()) }
        })
        .await
    }

    async fn delete_session(&self, session: &str) -> Result<bool> {
        let session = session.to_owned();
        self.write(move |t| {
            if let Some(holder) = leases::holder(t, &session)? {
                return Err(Error::SessionHeld(Box::new(holder)).into());
            }
            for rest in ["slates WHERE tenant = ?1 AND session", "messages WHERE tenant = ?1 AND session"] {
                let sql = format!("{DESCENDANTS_CTE} DELETE FROM {rest} IN (SELECT id FROM family)");
                t.prepare_cached(&sql)?.execute(params![t.tenant, session])?;
            }
            let sql =
                format!("{DESCENDANTS_CTE} DELETE FROM sessions WHERE tenant = ?1 AND id IN (SELECT id FROM family)");
            Ok(t.prepare_cached(&sql)?.execute(params![t.tenant, session])? > 0)
        })
        .await
    }
}

impl SqliteStore {
    /// Tells who listens of messages that were kept.
    fn tell(&self, session: &str, messages: &[Message]) {
        if let Some(heard) = &self.listener {
            heard(session, messages);
        }
    }
}

fn find(t: &Tx<'_>, id: &str) -> anyhow::Result<Option<SessionRecord>> {
    let sql = format!("SELECT {SESSION_COLUMNS} FROM sessions WHERE tenant = ?1 AND id = ?2");
    Ok(t.prepare_cached(&sql)?.query_row(params![t.tenant, id], record).optional()?)
}

fn require_session(t: &Tx<'_>, id: &str) -> anyhow::Result<()> {
    let there =
        t.prepare_cached("SELECT 1 FROM sessions WHERE tenant = ?1 AND id = ?2")?.exists(params![t.tenant, id])?;
    if there { Ok(()) } else { Err(unknown_session_error(id).into()) }
}

fn unknown_session_error(id: &str) -> Error {
    Error::failed(format!("there is no conversation `{id}`"))
}

/// Why a write under a lease changed nothing: the lease is stale, or the session does not exist.
fn refusal(t: &Tx<'_>, lease: &Lease) -> anyhow::Result<anyhow::Error> {
    Ok(if t.holds(lease)? { unknown_session_error(&lease.key).into() } else { leases::lost(lease) })
}

/// Takes messages back, from this number to the end.
fn take_back(t: &Tx<'_>, lease: &Lease, from: u64) -> anyhow::Result<u64> {
    let from = from.min(i64::MAX as u64);
    // A view that begins at a message which is gone begins at the beginning.
    let sql = format!(
        "UPDATE sessions SET view_from = CASE WHEN view_from >= ?5 THEN NULL ELSE view_from END, messages = messages - \
         (SELECT count(*) FROM messages WHERE tenant = ?1 AND session = ?2 AND seq >= ?5) \
         WHERE tenant = ?1 AND id = ?2 AND {IS_HELD}"
    );
    let changed = t.prepare_cached(&sql)?.execute(params![t.tenant, lease.key, lease.owner, lease.epoch, from])?;
    if changed == 0 {
        return Err(refusal(t, lease)?);
    }
    let gone = t
        .prepare_cached("DELETE FROM messages WHERE tenant = ?1 AND session = ?2 AND seq >= ?3")?
        .execute(params![t.tenant, lease.key, from])?;
    Ok(gone as u64)
}

/// Moves what waits for a session into it.
fn move_in(t: &Tx<'_>, lease: &Lease) -> anyhow::Result<Moved> {
    if !t.holds(lease)? {
        return Err(leases::lost(lease));
    }
    let items: Vec<String> = t
        .prepare_cached("DELETE FROM inbox WHERE tenant = ?1 AND session = ?2 RETURNING id, item")?
        .query_map(params![t.tenant, lease.key], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?
        .collect::<Result<std::collections::BTreeMap<i64, String>, _>>()?
        .into_values()
        .collect();
    let mut moved = Moved::default();
    for item in items {
        match serde_json::from_str(&item)? {
            InboxItem::Message { role, parts } => {
                let mut message = [Message { seq: 0, role, parts, created: t.now }];
                append(t, lease, &mut message, TokenUsage::default())?;
                moved.messages.extend(message);
            }
            InboxItem::Undo { from } => {
                moved.undone |= take_back(t, lease, from)? > 0;
                moved.messages.retain(|message| message.seq < from);
            }
        }
    }
    Ok(moved)
}

fn list(t: &Tx<'_>, which: &SessionFilter) -> anyhow::Result<(Vec<SessionRecord>, u64)> {
    // Only the filters that are set are in the query, so that an index fits it.
    let mut filters = vec!["tenant = ?1".to_owned()];
    let mut values: Vec<&dyn ToSql> = vec![&t.tenant];
    let wanted =
        [("parent", &which.parent), ("user", &which.user), ("workspace", &which.workspace), ("label", &which.label)];
    for (column, value) in wanted {
        if let Some(value) = value {
            values.push(value);
            filters.push(format!("{column} = ?{}", values.len()));
        }
    }
    if which.top_level_only {
        filters.push("parent IS NULL".to_owned());
    }
    let filter = format!("WHERE {}", filters.join(" AND "));
    let total = t
        .prepare_cached(&format!("SELECT count(*) FROM sessions {filter}"))?
        .query_row(values.as_slice(), |row| row.get(0))?;
    let (most, offset) = (which.limit.min(i64::MAX as u64), which.offset.min(i64::MAX as u64));
    values.extend([&most as &dyn ToSql, &offset]);
    let (n, m) = (values.len() - 1, values.len());
    let sql =
        format!("SELECT {SESSION_COLUMNS} FROM sessions {filter} ORDER BY updated DESC, id LIMIT ?{n} OFFSET ?{m}");
    let found = t.prepare_cached(&sql)?.query_map(values.as_slice(), record)?.collect::<Result<_, _>>()?;
    Ok((found, total))
}

/// Adds messages at the end, which get their numbers and the time.
fn append(t: &Tx<'_>, lease: &Lease, messages: &mut [Message], spent: TokenUsage) -> anyhow::Result<u64> {
    let now = to_micros(t.now);
    // Clocks go back and events arrive late; the order of use does not change.
    let sql = format!(
        "UPDATE sessions SET messages = messages + ?5, prompt_tokens = prompt_tokens + ?6, \
         completion_tokens = completion_tokens + ?7, cost = cost + ?8, \
         cache_read_tokens = cache_read_tokens + ?10, cache_write_tokens = cache_write_tokens + ?11, \
         reasoning_tokens = reasoning_tokens + ?12, \
         updated = CASE WHEN ?5 > 0 THEN max(updated, ?9) ELSE updated END WHERE tenant = ?1 AND id = ?2 AND {IS_HELD}"
    );
    let changed = t.prepare_cached(&sql)?.execute(params![
        t.tenant,
        lease.key,
        lease.owner,
        lease.epoch,
        messages.len() as u64,
        spent.prompt_tokens,
        spent.completion_tokens,
        finite_cost(spent.cost),
        now,
        spent.cache_read_tokens,
        spent.cache_write_tokens,
        spent.reasoning_tokens,
    ])?;
    if changed == 0 {
        return Err(refusal(t, lease)?);
    }
    let mut last: u64 = t
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM messages WHERE tenant = ?1 AND session = ?2")?
        .query_row(params![t.tenant, lease.key], |row| row.get(0))?;
    let mut insert = t.prepare_cached(
        "INSERT INTO messages (tenant, session, seq, role, parts, created, prompt_tokens, completion_tokens, cost, \
         cache_read_tokens, cache_write_tokens, reasoning_tokens) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    // What was spent was spent on the first of them: an answer is kept by itself.
    let mut rest = spent;
    for message in messages {
        last += 1;
        (message.seq, message.created) = (last, from_micros(now));
        let parts = serde_json::to_string(&message.parts)?;
        let spent = std::mem::take(&mut rest);
        let role = role_text(message.role);
        insert.execute(params![
            t.tenant,
            lease.key,
            last,
            role,
            parts,
            now,
            spent.prompt_tokens,
            spent.completion_tokens,
            finite_cost(spent.cost),
            spent.cache_read_tokens,
            spent.cache_write_tokens,
            spent.reasoning_tokens,
        ])?;
    }
    Ok(last)
}

fn usage(t: &Tx<'_>, session: &str, most: usize) -> anyhow::Result<Vec<UsageRecord>> {
    let mut query = t.prepare_cached(
        "SELECT created, prompt_tokens, completion_tokens, cost, cache_read_tokens, cache_write_tokens, reasoning_tokens \
         FROM messages \
         WHERE tenant = ?1 AND session = ?2 AND (prompt_tokens > 0 OR completion_tokens > 0) ORDER BY seq DESC LIMIT ?3",
    )?;
    let rows = query.query_map(params![t.tenant, session, most.min(i64::MAX as usize) as i64], |row| {
        let spent = TokenUsage {
            prompt_tokens: row.get(1)?,
            completion_tokens: row.get(2)?,
            cost: row.get(3)?,
            cache_read_tokens: row.get(4)?,
            cache_write_tokens: row.get(5)?,
            reasoning_tokens: row.get(6)?,
        };
        Ok(UsageRecord { at: from_micros(row.get(0)?), spent })
    })?;
    let mut found: Vec<UsageRecord> = rows.collect::<Result<_, _>>()?;
    found.reverse();
    Ok(found)
}

fn page(t: &Tx<'_>, session: &str, before: Option<u64>, most: usize) -> anyhow::Result<Vec<Message>> {
    let before = before.unwrap_or(u64::MAX).min(i64::MAX as u64);
    let mut query = t.prepare_cached(
        "SELECT seq, role, parts, created FROM messages WHERE tenant = ?1 AND session = ?2 AND seq < ?3 \
         ORDER BY seq DESC LIMIT ?4",
    )?;
    let mut rows = query.query(params![t.tenant, session, before, most.min(i64::MAX as usize) as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let parts: Vec<MessagePart> = serde_json::from_str(row.get_ref(2)?.as_str()?)?;
        let role = parse_role(row.get_ref(1)?.as_str()?)?;
        found.push(Message { seq: row.get(0)?, role, parts, created: from_micros(row.get(3)?) });
    }
    found.reverse();
    Ok(found)
}

fn record(row: &Row<'_>) -> rusqlite::Result<SessionRecord> {
    Ok(SessionRecord {
        id: row.get(0)?,
        parent: row.get(1)?,
        user: row.get(2)?,
        agent: row.get(3)?,
        title: row.get(4)?,
        dialect: row.get(5)?,
        model: row.get(6)?,
        workspace: row.get(7)?,
        messages: row.get(8)?,
        spent: TokenUsage {
            prompt_tokens: row.get(9)?,
            completion_tokens: row.get(10)?,
            cost: row.get(11)?,
            cache_read_tokens: row.get(16)?,
            cache_write_tokens: row.get(17)?,
            reasoning_tokens: row.get(18)?,
        },
        view_from: row.get(12)?,
        created: from_micros(row.get(13)?),
        updated: from_micros(row.get(14)?),
        label: row.get(15)?,
    })
}

/// A sum that can be added to: what is no number costs nothing.
fn finite_cost(cost: f64) -> f64 {
    if cost.is_finite() { cost } else { 0.0 }
}

fn role_text(role: MessageRole) -> &'static str {
    match role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
        MessageRole::System => "system",
    }
}

fn parse_role(word: &str) -> anyhow::Result<MessageRole> {
    Ok(match word {
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        "tool" => MessageRole::Tool,
        "system" => MessageRole::System,
        other => anyhow::bail!("a message is kept as said by `{other}`, whom this program does not know"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How SQLite goes about each query; a `SCAN` of all messages or a sort would make long histories slow.
    #[tokio::test]
    async fn every_way_to_look_has_its_index() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("store.db")).unwrap();
        let plan = async |sql: &'static str| {
            let steps = store.read(move |t| {
                let mut query = t.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                let steps = query.query_map([], |row| row.get::<_, String>(3))?.collect::<Result<Vec<_>, _>>()?;
                Ok(steps.join("; "))
            });
            steps.await.unwrap()
        };
        for (sql, want) in [
            (
                "SELECT * FROM messages WHERE tenant = 't' AND session = 'a' AND seq < 9 ORDER BY seq DESC LIMIT 5",
                "SEARCH messages USING INDEX sqlite_autoindex_messages_1 (tenant=? AND session=? AND seq<?)",
            ),
            (
                "SELECT max(seq) FROM messages WHERE tenant = 't' AND session = 'a'",
                "SEARCH messages USING COVERING INDEX sqlite_autoindex_messages_1 (tenant=? AND session=?)",
            ),
            (
                "SELECT * FROM sessions WHERE tenant = 't' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_use (tenant=?)",
            ),
            (
                "SELECT * FROM sessions WHERE tenant = 't' AND user = 'a' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_user (tenant=? AND user=?)",
            ),
            (
                "SELECT * FROM sessions WHERE tenant = 't' AND parent = 'a' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_parent (tenant=? AND parent=?)",
            ),
            (
                "SELECT * FROM sessions WHERE tenant = 't' AND workspace = 'a' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_place (tenant=? AND workspace=?)",
            ),
        ] {
            assert_eq!(plan(sql).await, want, "{sql}");
        }
    }
}
