//! Decides about a due schedule: run it, or skip occurrences.

use std::time::Duration;

use helve_contract::{
    jiff::{SignedDuration, Timestamp},
    ports::{Cadence, MissedRunPolicy, OverlapPolicy, Schedule},
};
use helve_tools::schedule::cadence;

use super::SchedulerConfig;

/// How many missed occurrences are counted one by one; beyond, "many" is enough.
const MAX_COUNTED_MISSES: u64 = 1_000;

/// What to do about a schedule that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueAction {
    /// Run the occurrence.
    Run {
        /// When it is due after this.
        next: Option<Timestamp>,
        /// Occurrences that this run makes up for.
        skipped: u64,
        /// What happens while another run goes on.
        overlap: OverlapPolicy,
    },
    /// Leave occurrences out.
    Skip {
        /// When it is due after this.
        next: Option<Timestamp>,
        /// How many are left out.
        count: u64,
    },
    /// A one-off whose time has passed, and that must not be late: it has failed.
    Expired,
}

/// What to do about a schedule that was due at `due`, not later than now.
pub(super) fn decide_due_action(
    schedule: &Schedule,
    due: Timestamp,
    now: Timestamp,
    settings: &SchedulerConfig,
) -> DueAction {
    let late = now.duration_since(due);
    let overdue = late > to_signed(settings.grace);
    match schedule.missed {
        MissedRunPolicy::Skip if overdue && matches!(schedule.cadence, Cadence::Once { .. }) => DueAction::Expired,
        MissedRunPolicy::Skip if overdue => {
            let (next, count) = next_after(&schedule.cadence, due, now);
            DueAction::Skip { next, count: count + 1 }
        }
        MissedRunPolicy::All if late > to_signed(settings.catch_up_window) => {
            let from = now.checked_sub(to_signed(settings.catch_up_window)).unwrap_or(now);
            let (next, count) = next_after(&schedule.cadence, due, from);
            match next {
                // A one-off is made up for whenever it can be.
                None => DueAction::Run { next, skipped: count, overlap: OverlapPolicy::Wait },
                Some(_) => DueAction::Skip { next, count: count + 1 },
            }
        }
        MissedRunPolicy::All => {
            let next = cadence::next_run(&schedule.cadence, due, due);
            DueAction::Run { next, skipped: 0, overlap: OverlapPolicy::Wait }
        }
        MissedRunPolicy::Once | MissedRunPolicy::Skip => {
            let (next, skipped) = next_after(&schedule.cadence, due, now);
            DueAction::Run { next, skipped, overlap: OverlapPolicy::Skip }
        }
    }
}

/// The first time after `now`, and how many times lie between it and `due`.
fn next_after(cadence: &Cadence, due: Timestamp, now: Timestamp) -> (Option<Timestamp>, u64) {
    let next = cadence::next_run(cadence, due, now);
    let (mut at, mut count) = (due, 0);
    while count < MAX_COUNTED_MISSES {
        match cadence::next_run(cadence, due, at) {
            Some(following) if following > at && following <= now => (at, count) = (following, count + 1),
            _ => break,
        }
    }
    (next, count)
}

fn to_signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}
