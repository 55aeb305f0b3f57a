//! Conversations: one row each, and one row a message, numbered from 1 without gaps.

use async_trait::async_trait;
use helve_contract::{
    Error, Result,
    ports::{Message, Part, Retitle, SessionRecord, Sessions, Speaker, Spent, Usage, Which},
};
use rusqlite::{OptionalExtension, Row, ToSql, Transaction, params};

use super::{Sqlite, kept, told};

/// What is read of a conversation, in the order of [`record`].
const COLUMNS: &str = "id, parent, user, agent, title, dialect, model, workspace, messages, \
                       prompt_tokens, completion_tokens, cost, view_from, created, updated";

/// A conversation and all that came of it, by id. `UNION` ends circles.
const FAMILY: &str = "WITH RECURSIVE family (id) AS ( \
                      SELECT ?1 UNION SELECT sessions.id FROM sessions JOIN family ON sessions.parent = family.id)";

#[async_trait]
impl Sessions for Sqlite {
    async fn begin(&self, record: &SessionRecord) -> Result<()> {
        let record = record.clone();
        self.write(move |t| {
            if find(t, &record.id)?.is_some() {
                return Err(Error::failed(format!("there is already a conversation `{}`", record.id)).into());
            }
            let sql =
                format!("INSERT INTO sessions ({COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,0,?9,?10,?11,?12,?13,?14)");
            t.prepare_cached(&sql)?.execute(params![
                record.id,
                record.parent,
                record.user,
                record.agent,
                record.title,
                record.dialect,
                record.model,
                record.workspace,
                record.spent.prompt_tokens,
                record.spent.completion_tokens,
                money(record.spent.cost),
                record.view_from,
                kept(record.created),
                kept(record.updated),
            ])?;
            Ok(())
        })
        .await
    }

    async fn conversation(&self, id: &str) -> Result<Option<SessionRecord>> {
        let id = id.to_owned();
        self.read(move |t| find(t, &id)).await
    }

    async fn conversations(&self, which: &Which) -> Result<(Vec<SessionRecord>, u64)> {
        let which = which.clone();
        self.read(move |t| list(t, &which)).await
    }

    async fn append(&self, session: &str, messages: &[Message], spent: Spent) -> Result<u64> {
        let (session, messages) = (session.to_owned(), messages.to_vec());
        let written = self.write(move |t| {
            let last = append(t, &session, &messages, spent)?;
            Ok((last, session, messages))
        });
        let (last, session, mut messages) = written.await?;
        if let Some(heard) = &self.heard {
            let before = last.saturating_sub(messages.len() as u64);
            for (message, seq) in messages.iter_mut().zip(before + 1..) {
                message.seq = seq;
            }
            heard(&session, &messages);
        }
        Ok(last)
    }

    async fn messages(&self, session: &str, before: Option<u64>, most: usize) -> Result<Vec<Message>> {
        let session = session.to_owned();
        self.read(move |t| page(t, &session, before, most)).await
    }

    async fn usage(&self, session: &str, most: usize) -> Result<Vec<Usage>> {
        let session = session.to_owned();
        self.read(move |t| usage(t, &session, most)).await
    }

    async fn take_back(&self, session: &str, from: u64) -> Result<u64> {
        let session = session.to_owned();
        self.write(move |t| {
            known(t, &session)?;
            let from = from.min(i64::MAX as u64);
            let gone = t
                .prepare_cached("DELETE FROM messages WHERE session = ?1 AND seq >= ?2")?
                .execute(params![session, from])? as u64;
            // A view that begins at a message which is gone begins at the beginning.
            t.prepare_cached(
                "UPDATE sessions SET messages = messages - ?3, \
                 view_from = CASE WHEN view_from >= ?2 THEN NULL ELSE view_from END WHERE id = ?1",
            )?
            .execute(params![session, from, gone])?;
            Ok(gone)
        })
        .await
    }

    async fn retitle(&self, session: &str, change: &Retitle) -> Result<()> {
        let (session, change) = (session.to_owned(), change.clone());
        self.write(move |t| {
            let changed = t
                .prepare_cached(
                    "UPDATE sessions SET title = coalesce(?2, title), model = coalesce(?3, model), \
                     view_from = coalesce(?4, view_from) WHERE id = ?1",
                )?
                .execute(params![session, change.title, change.model, change.view_from])?;
            if changed == 0 { Err(unknown(&session).into()) } else { Ok(()) }
        })
        .await
    }

    async fn discard(&self, session: &str) -> Result<bool> {
        let session = session.to_owned();
        self.write(move |t| {
            for rest in ["slates WHERE session", "messages WHERE session"] {
                let sql = format!("{FAMILY} DELETE FROM {rest} IN (SELECT id FROM family)");
                t.prepare_cached(&sql)?.execute([&session])?;
            }
            let sql = format!("{FAMILY} DELETE FROM sessions WHERE id IN (SELECT id FROM family)");
            Ok(t.prepare_cached(&sql)?.execute([&session])? > 0)
        })
        .await
    }
}

fn find(t: &Transaction<'_>, id: &str) -> anyhow::Result<Option<SessionRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1");
    Ok(t.prepare_cached(&sql)?.query_row([id], record).optional()?)
}

fn known(t: &Transaction<'_>, id: &str) -> anyhow::Result<()> {
    if t.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([id])? {
        return Ok(());
    }
    Err(unknown(id).into())
}

fn unknown(id: &str) -> Error {
    Error::failed(format!("there is no conversation `{id}`"))
}

fn list(t: &Transaction<'_>, which: &Which) -> anyhow::Result<(Vec<SessionRecord>, u64)> {
    // Only the filters that are set are in the query, so that an index fits it.
    let mut filters = Vec::new();
    let mut values: Vec<&dyn ToSql> = Vec::new();
    for (column, value) in [("parent", &which.parent), ("user", &which.user), ("workspace", &which.workspace)] {
        if let Some(value) = value {
            values.push(value);
            filters.push(format!("{column} = ?{}", values.len()));
        }
    }
    if which.top_only {
        filters.push("parent IS NULL".to_owned());
    }
    let filter = if filters.is_empty() { String::new() } else { format!("WHERE {}", filters.join(" AND ")) };
    let total = t
        .prepare_cached(&format!("SELECT count(*) FROM sessions {filter}"))?
        .query_row(values.as_slice(), |row| row.get(0))?;
    let (most, offset) = (which.most.min(i64::MAX as u64), which.offset.min(i64::MAX as u64));
    values.extend([&most as &dyn ToSql, &offset]);
    let (n, m) = (values.len() - 1, values.len());
    let sql = format!("SELECT {COLUMNS} FROM sessions {filter} ORDER BY updated DESC, id LIMIT ?{n} OFFSET ?{m}");
    let found = t.prepare_cached(&sql)?.query_map(values.as_slice(), record)?.collect::<Result<_, _>>()?;
    Ok((found, total))
}

fn append(t: &Transaction<'_>, session: &str, messages: &[Message], spent: Spent) -> anyhow::Result<u64> {
    known(t, session)?;
    let mut last: u64 = t
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM messages WHERE session = ?1")?
        .query_row([session], |row| row.get(0))?;
    let mut insert = t.prepare_cached(
        "INSERT INTO messages (session, seq, role, parts, created, prompt_tokens, completion_tokens, cost) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    // What was spent was spent on the first of them: an answer is kept by itself.
    let mut rest = spent;
    for message in messages {
        last += 1;
        let parts = serde_json::to_string(&message.parts)?;
        let Spent { prompt_tokens, completion_tokens, cost, .. } = std::mem::take(&mut rest);
        let (role, created) = (word(message.role), kept(message.created));
        insert.execute(params![session, last, role, parts, created, prompt_tokens, completion_tokens, money(cost)])?;
    }
    // What happened last may be told late, and clocks go back; the order of use does not.
    let latest = messages.iter().map(|message| kept(message.created)).max().unwrap_or(i64::MIN);
    t.prepare_cached(
        "UPDATE sessions SET messages = messages + ?2, prompt_tokens = prompt_tokens + ?3, \
         completion_tokens = completion_tokens + ?4, cost = cost + ?5, updated = max(updated, ?6) WHERE id = ?1",
    )?
    .execute(params![
        session,
        messages.len() as u64,
        spent.prompt_tokens,
        spent.completion_tokens,
        money(spent.cost),
        latest,
    ])?;
    Ok(last)
}

fn usage(t: &Transaction<'_>, session: &str, most: usize) -> anyhow::Result<Vec<Usage>> {
    let mut query = t.prepare_cached(
        "SELECT created, prompt_tokens, completion_tokens, cost FROM messages \
         WHERE session = ?1 AND (prompt_tokens > 0 OR completion_tokens > 0) ORDER BY seq DESC LIMIT ?2",
    )?;
    let rows = query.query_map(params![session, most.min(i64::MAX as usize) as i64], |row| {
        let spent =
            Spent { prompt_tokens: row.get(1)?, completion_tokens: row.get(2)?, cost: row.get(3)?, ..Spent::default() };
        Ok(Usage { at: told(row.get(0)?), spent })
    })?;
    let mut found: Vec<Usage> = rows.collect::<Result<_, _>>()?;
    found.reverse();
    Ok(found)
}

fn page(t: &Transaction<'_>, session: &str, before: Option<u64>, most: usize) -> anyhow::Result<Vec<Message>> {
    let before = before.unwrap_or(u64::MAX).min(i64::MAX as u64);
    let mut query = t.prepare_cached(
        "SELECT seq, role, parts, created FROM messages WHERE session = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
    )?;
    let mut rows = query.query(params![session, before, most.min(i64::MAX as usize) as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let parts: Vec<Part> = serde_json::from_str(row.get_ref(2)?.as_str()?)?;
        let role = speaker(row.get_ref(1)?.as_str()?)?;
        found.push(Message { seq: row.get(0)?, role, parts, created: told(row.get(3)?) });
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
        spent: Spent {
            prompt_tokens: row.get(9)?,
            completion_tokens: row.get(10)?,
            cost: row.get(11)?,
            ..Spent::default()
        },
        view_from: row.get(12)?,
        created: told(row.get(13)?),
        updated: told(row.get(14)?),
    })
}

/// A sum that can be added to: what is no number costs nothing.
fn money(cost: f64) -> f64 {
    if cost.is_finite() { cost } else { 0.0 }
}

fn word(role: Speaker) -> &'static str {
    match role {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
        Speaker::Tool => "tool",
        Speaker::System => "system",
    }
}

fn speaker(word: &str) -> anyhow::Result<Speaker> {
    Ok(match word {
        "user" => Speaker::User,
        "assistant" => Speaker::Assistant,
        "tool" => Speaker::Tool,
        "system" => Speaker::System,
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
        let store = Sqlite::open(folder.path().join("store.db")).unwrap();
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
                "SELECT * FROM messages WHERE session = 'a' AND seq < 9 ORDER BY seq DESC LIMIT 5",
                "SEARCH messages USING INDEX sqlite_autoindex_messages_1 (session=? AND seq<?)",
            ),
            (
                "SELECT max(seq) FROM messages WHERE session = 'a'",
                "SEARCH messages USING COVERING INDEX sqlite_autoindex_messages_1 (session=?)",
            ),
            ("SELECT * FROM sessions ORDER BY updated DESC, id LIMIT 5", "SCAN sessions USING INDEX sessions_by_use"),
            (
                "SELECT * FROM sessions WHERE user = 'a' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_user (user=?)",
            ),
            (
                "SELECT * FROM sessions WHERE parent = 'a' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_parent (parent=?)",
            ),
            (
                "SELECT * FROM sessions WHERE workspace = 'a' ORDER BY updated DESC, id LIMIT 5",
                "SEARCH sessions USING INDEX sessions_by_place (workspace=?)",
            ),
        ] {
            assert_eq!(plan(sql).await, want, "{sql}");
        }
    }
}
