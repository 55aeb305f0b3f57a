//! Work that keeps data, with a ledger of what was acknowledged.

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

pub(crate) use self::artifacts::{Orders, PLAN};
pub use self::{
    artifacts::Artifacts, branches::Branches, events::wrong_events, files::Files, notes::Notes, patches::Patches,
    plans::Plans, spills::Spills, talks::Talks,
};
use crate::{Answer, Desk, Dice, Hand, Wrong};

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged: from now on it must be there.
    Acknowledged,
    /// It was refused, in these words: what was there before must be there, or what would have been.
    Refused(String),
    /// Nobody answered.
    Gone,
    /// There is nothing left to do.
    Nothing,
}

/// Work that can be looked after.
pub trait Deed {
    /// What it is called in reports.
    fn name(&self) -> &'static str;
    /// Whose words it uses.
    fn dialect(&self) -> &'static str;
    /// The words that start its process: calls by hand, unless it says otherwise.
    fn words(&self) -> Vec<String> {
        ["batch", "--dialect", self.dialect()].map(str::to_owned).into()
    }
    /// What must be there before its process starts.
    fn begin(&mut self, _: &Desk) -> anyhow::Result<()> {
        Ok(())
    }
    /// Does one step, and writes down what must be there from now on.
    fn act(&mut self, hand: &mut Hand, dice: &mut Dice) -> anyhow::Result<Outcome>;
    /// Looks at what is there, tells what is wrong, and takes it as the state to go on from.
    fn check(&mut self, desk: &Desk) -> anyhow::Result<Vec<Wrong>>;
}

/// What an answer means.
fn outcome(answer: Option<&Answer>) -> Outcome {
    match answer {
        None => Outcome::Gone,
        Some(answer) if answer.is_error => Outcome::Refused(answer.text.clone()),
        Some(_) => Outcome::Acknowledged,
    }
}

/// A second look at the store, which changes nothing in it.
fn store(desk: &Desk) -> anyhow::Result<Option<Connection>> {
    if !desk.store().exists() {
        return Ok(None);
    }
    let connection = Connection::open_with_flags(desk.store(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(std::time::Duration::from_secs(20))?;
    Ok(Some(connection))
}

/// What SQLite itself says about the store's file.
fn unsound(connection: &Connection) -> anyhow::Result<Vec<Wrong>> {
    let said: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok(if said == "ok" { Vec::new() } else { vec![Wrong::Partial(format!("the store: {said}"))] })
}

/// Whether a table is there yet: the first process may have been killed before it made one.
fn has_table(connection: &Connection, name: &str) -> anyhow::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
    Ok(connection.query_row(sql, [name], |row| row.get(0))?)
}
