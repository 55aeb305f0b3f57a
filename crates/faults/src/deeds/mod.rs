//! Workloads that store data, with a ledger of acknowledged steps.

mod artifacts;
mod branches;
mod events;
mod files;
mod notes;
mod patches;
mod plans;
mod spills;
mod talks;

use rusqlite::{Connection, OpenFlags};

pub(crate) use self::artifacts::{CaptainScript, PLAN_DIR};
pub use self::{
    artifacts::ArtifactWorkload, branches::MergeWorkload, events::verify_events, files::FileWorkload,
    notes::NoteWorkload, patches::PatchWorkload, plans::ScheduleWorkload, spills::SpillWorkload,
    talks::ConversationWorkload,
};
use crate::{BatchProcess, CallResult, Rng, TestEnv, Violation};

/// The outcome of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Acknowledged: it must be there from now on.
    Acknowledged,
    /// Refused with this message: the old or the new state must be there.
    Refused(String),
    /// Nobody answered.
    NoResponse,
    /// There is nothing left to do.
    Finished,
}

/// A workload with a verification.
pub trait Workload {
    /// What it is called in reports.
    fn name(&self) -> &'static str;
    /// The dialect it uses.
    fn dialect(&self) -> &'static str;
    /// The arguments that start its process; by default `helve batch`.
    fn args(&self) -> Vec<String> {
        ["batch", "--dialect", self.dialect()].map(str::to_owned).into()
    }
    /// What must be there before its process starts.
    fn prepare(&mut self, _: &TestEnv) -> anyhow::Result<()> {
        Ok(())
    }
    /// Does one step and records what must be there from now on.
    fn step(&mut self, hand: &mut BatchProcess, dice: &mut Rng) -> anyhow::Result<StepOutcome>;
    /// Verifies the state, returns violations, and continues from the actual state.
    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>>;
}

/// What an answer means.
fn classify(answer: Option<&CallResult>) -> StepOutcome {
    match answer {
        None => StepOutcome::NoResponse,
        Some(answer) if answer.is_error => StepOutcome::Refused(answer.text.clone()),
        Some(_) => StepOutcome::Acknowledged,
    }
}

/// A second connection to the store, read-only.
fn open_store(desk: &TestEnv) -> anyhow::Result<Option<Connection>> {
    if !desk.store().exists() {
        return Ok(None);
    }
    let connection = Connection::open_with_flags(desk.store(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(std::time::Duration::from_secs(20))?;
    Ok(Some(connection))
}

/// What SQLite itself says about the store's file.
fn integrity_violations(connection: &Connection) -> anyhow::Result<Vec<Violation>> {
    let said: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok(if said == "ok" { Vec::new() } else { vec![Violation::Partial(format!("the store: {said}"))] })
}

/// Whether a table is there yet: the first process may have been killed before it made one.
fn has_table(connection: &Connection, name: &str) -> anyhow::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
    Ok(connection.query_row(sql, [name], |row| row.get(0))?)
}
