//! Session state: a few small records per session.

use async_trait::async_trait;
use helve_contract::{
    Result,
    ports::{Lease, SessionState, StateValue},
};
use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::{
    SqliteStore, from_micros,
    leases::{IS_HELD, lost},
    to_micros,
};

#[async_trait]
impl SessionState for SqliteStore {
    async fn get_state(&self, session: &str, name: &str) -> Result<Option<StateValue>> {
        let (session, name) = (session.to_owned(), name.to_owned());
        self.read(move |t| {
            let row: Option<(String, i64)> = t
                .prepare_cached("SELECT value, updated FROM slates WHERE tenant = ?1 AND session = ?2 AND name = ?3")?
                .query_row(params![t.tenant, session, name], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            row.map(|(value, updated)| {
                Ok(StateValue { value: serde_json::from_str(&value)?, updated: from_micros(updated) })
            })
            .transpose()
        })
        .await
    }

    async fn set_state(&self, lease: &Lease, name: &str, value: Value) -> Result<()> {
        let (lease, name) = (lease.clone(), name.to_owned());
        self.write(move |t| {
            let sql = format!(
                "INSERT OR REPLACE INTO slates (tenant, session, name, value, updated) \
                 SELECT ?1, ?2, ?5, ?6, ?7 WHERE {IS_HELD}"
            );
            let (value, now) = (value.to_string(), to_micros(t.now));
            let written = t.prepare_cached(&sql)?.execute(params![
                t.tenant,
                lease.key,
                lease.owner,
                lease.epoch,
                name,
                value,
                now
            ])?;
            if written == 0 { Err(lost(&lease)) } else { Ok(()) }
        })
        .await
    }

    async fn delete_state(&self, lease: &Lease, name: &str) -> Result<bool> {
        let (lease, name) = (lease.clone(), name.to_owned());
        self.write(move |t| {
            let sql = format!("DELETE FROM slates WHERE tenant = ?1 AND session = ?2 AND name = ?5 AND {IS_HELD}");
            let gone = t.prepare_cached(&sql)?.execute(params![t.tenant, lease.key, lease.owner, lease.epoch, name])?;
            if gone == 0 && !t.holds(&lease)? { Err(lost(&lease)) } else { Ok(gone > 0) }
        })
        .await
    }
}
