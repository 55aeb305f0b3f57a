//! Slates: a few small records a session.

use async_trait::async_trait;
use helve_contract::{
    Result,
    jiff::Timestamp,
    ports::{Slate, Slates},
};
use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::{Sqlite, kept, told};

#[async_trait]
impl Slates for Sqlite {
    async fn slate(&self, session: &str, name: &str) -> Result<Option<Slate>> {
        let (session, name) = (session.to_owned(), name.to_owned());
        self.read(move |t| {
            let row: Option<(String, i64)> = t
                .prepare_cached("SELECT value, updated FROM slates WHERE session = ?1 AND name = ?2")?
                .query_row(params![session, name], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            row.map(|(value, updated)| Ok(Slate { value: serde_json::from_str(&value)?, updated: told(updated) }))
                .transpose()
        })
        .await
    }

    async fn write_slate(&self, session: &str, name: &str, value: Value, now: Timestamp) -> Result<()> {
        let (session, name) = (session.to_owned(), name.to_owned());
        self.write(move |t| {
            t.prepare_cached("INSERT OR REPLACE INTO slates (session, name, value, updated) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![session, name, value.to_string(), kept(now)])?;
            Ok(())
        })
        .await
    }

    async fn wipe_slate(&self, session: &str, name: &str) -> Result<bool> {
        let (session, name) = (session.to_owned(), name.to_owned());
        self.write(move |t| {
            let gone = t
                .prepare_cached("DELETE FROM slates WHERE session = ?1 AND name = ?2")?
                .execute(params![session, name])?;
            Ok(gone > 0)
        })
        .await
    }
}
