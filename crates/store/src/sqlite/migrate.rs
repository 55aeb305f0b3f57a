//! Brings a file to the present version. Each step is one SQL file, applied once, in order, in a transaction.

use rusqlite::{Connection, TransactionBehavior};

/// The steps, oldest first; a step that has been released never changes. A file's version is how many it has had.
const STEPS: &[&str] = &[
    include_str!("../../migrations/01_sessions.sql"),
    include_str!("../../migrations/02_notes.sql"),
    include_str!("../../migrations/03_schedules.sql"),
];

pub(super) fn bring_up(connection: &mut Connection) -> anyhow::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: usize = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    anyhow::ensure!(
        version <= STEPS.len(),
        "the store has version {version}, and this program knows versions up to {}; use a newer helve",
        STEPS.len()
    );
    for step in &STEPS[version..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", STEPS.len() as i64)?;
    transaction.commit()?;
    Ok(())
}
