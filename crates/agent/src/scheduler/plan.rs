//! What to do about a schedule that is due: run it, or leave occurrences out.

use std::time::Duration;

use helve_contract::{
    jiff::{SignedDuration, Timestamp},
    ports::{Cadence, Missed, Overlap, Schedule},
};
use helve_tools::schedule::cadence;

use super::Settings;

/// How many missed occurrences are counted one by one; beyond, "many" is enough.
const COUNTED: u64 = 1_000;

/// What to do about a schedule that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Run the occurrence.
    Run {
        /// When it is due after this.
        next: Option<Timestamp>,
        /// Occurrences that this run makes up for.
        skipped: u64,
        /// What happens while another run goes on.
        overlap: Overlap,
    },
    /// Leave occurrences out.
    Pass {
        /// When it is due after this.
        next: Option<Timestamp>,
        /// How many are left out.
        count: u64,
    },
    /// A one-off whose time has passed, and that must not be late: it has failed.
    TooLate,
}

/// What to do about a schedule that was due at `due`, not later than now.
pub(super) fn plan(schedule: &Schedule, due: Timestamp, now: Timestamp, settings: &Settings) -> Plan {
    let late = now.duration_since(due);
    let overdue = late > signed(settings.grace);
    match schedule.missed {
        Missed::Skip if overdue && matches!(schedule.cadence, Cadence::Once { .. }) => Plan::TooLate,
        Missed::Skip if overdue => {
            let (next, count) = beyond(&schedule.cadence, due, now);
            Plan::Pass { next, count: count + 1 }
        }
        Missed::All if late > signed(settings.window) => {
            let from = now.checked_sub(signed(settings.window)).unwrap_or(now);
            let (next, count) = beyond(&schedule.cadence, due, from);
            match next {
                // A one-off is made up for whenever it can be.
                None => Plan::Run { next, skipped: count, overlap: Overlap::Wait },
                Some(_) => Plan::Pass { next, count: count + 1 },
            }
        }
        Missed::All => {
            let next = cadence::next(&schedule.cadence, due, due);
            Plan::Run { next, skipped: 0, overlap: Overlap::Wait }
        }
        Missed::Once | Missed::Skip => {
            let (next, skipped) = beyond(&schedule.cadence, due, now);
            Plan::Run { next, skipped, overlap: Overlap::Skip }
        }
    }
}

/// The first time after `now`, and how many times lie between it and `due`.
fn beyond(cadence: &Cadence, due: Timestamp, now: Timestamp) -> (Option<Timestamp>, u64) {
    let next = cadence::next(cadence, due, now);
    let (mut at, mut count) = (due, 0);
    while count < COUNTED {
        match cadence::next(cadence, due, at) {
            Some(following) if following > at && following <= now => (at, count) = (following, count + 1),
            _ => break,
        }
    }
    (next, count)
}

fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}
