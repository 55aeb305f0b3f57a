//! Brings a file to the present version. Each step is one SQL file, applied once, in order, in a transaction.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::faults::patiently;

/// The steps, oldest first; a step that has been released never changes. A file's version is how many it has had.
const STEPS: &[&str] = &[
    include_str!("../../migrations/01_sessions.sql"),
    include_str!("../../migrations/02_notes.sql"),
    include_str!("../../migrations/03_schedules.sql"),
    include_str!("../../migrations/04_note_origins.sql"),
    include_str!("../../migrations/05_message_costs.sql"),
    include_str!("../../migrations/06_schedule_origins.sql"),
];

/// What a file is to this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It has the present version.
    Present,
    /// It misses some steps, or all.
    Older,
    /// A later program made it what it is.
    Newer(usize),
    /// It holds tables, but not ours.
    Foreign,
}

/// What a file is to this program. Waits for nobody.
pub(super) fn age(connection: &Connection) -> rusqlite::Result<Age> {
    // In one view: somebody may be bringing it up just now.
    let view = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
    let version: usize = view.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        let others: bool = view.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?;
        return Ok(if others { Age::Foreign } else { Age::Older });
    }
    Ok(match version.cmp(&STEPS.len()) {
        std::cmp::Ordering::Less => Age::Older,
        std::cmp::Ordering::Equal => Age::Present,
        std::cmp::Ordering::Greater => Age::Newer(version),
    })
}

/// The version that this program knows.
pub(super) fn present() -> usize {
    STEPS.len()
}

/// Applies the steps that a file misses. Whoever comes second finds nothing left to do.
pub(super) fn bring_up(connection: &Connection) -> anyhow::Result<()> {
    let transaction = patiently(|| Transaction::new_unchecked(connection, TransactionBehavior::Immediate))?;
    let version: usize = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in STEPS.iter().skip(version) {
        transaction.execute_batch(step)?;
    }
    if version < STEPS.len() {
        transaction.pragma_update(None, "user_version", STEPS.len() as i64)?;
    }
    patiently(|| connection.execute_batch("COMMIT"))?;
    Ok(())
}
