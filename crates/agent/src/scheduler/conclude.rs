//! What follows from a run: what is kept, who is told, whether the schedule goes on.

use helve_contract::{
    jiff::Timestamp,
    ports::{Cadence, Finish, Notification, RunStatus, Schedule, ScheduleRun, ScheduleStatus},
};

use super::{Fired, Settings};

/// With this a run begins its answer when the owner should hear it.
pub const MARKER: &str = "[NOTIFY]";
/// The longest output that is kept, in characters.
const LONGEST: usize = 1_000_000;
/// The longest summary, in characters.
const SUMMARY: usize = 500;

/// What follows from a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conclusion {
    /// What is kept.
    pub(super) finish: Finish,
    /// The result, where the owner should hear it.
    pub(super) result: Option<String>,
    /// What else the owner should hear.
    pub(super) notice: Option<String>,
}

/// What follows from a run that ended like this.
pub(super) fn conclude(
    schedule: &Schedule,
    run: &ScheduleRun,
    fired: Fired,
    now: Timestamp,
    settings: &Settings,
) -> Conclusion {
    let (output, marked) = unmarked(&fired.output);
    let output = shortened(&output, LONGEST);
    let failures = match fired.status {
        RunStatus::Success | RunStatus::Running => 0,
        RunStatus::Failed | RunStatus::Refused => schedule.failures.saturating_add(1),
        // Somebody stopped it: that says nothing about the task.
        RunStatus::Cancelled => schedule.failures,
    };
    let refused = fired.status == RunStatus::Refused;
    let failed = fired.status == RunStatus::Failed || refused;
    let one_off = matches!(schedule.cadence, Cadence::Once { .. });
    let over = settings.disable_after > 0 && failed && failures >= settings.disable_after;
    let status = match (one_off, fired.status) {
        (true, RunStatus::Success) => Some(ScheduleStatus::Completed),
        (true, _) => Some(ScheduleStatus::Failed),
        (false, _) if over => Some(ScheduleStatus::Disabled),
        (false, _) => None,
    };
    let told = match schedule.notification {
        // What was said in a conversation need not be told a second time.
        Notification::Always => schedule.session.is_none() || schedule.channel.is_some(),
        Notification::Conditional => marked,
        Notification::Never => false,
    };
    let name = title(schedule);
    let why = shortened(&output, SUMMARY);
    let notice = if !failed {
        None
    } else if one_off {
        (schedule.notification != Notification::Never).then(|| {
            let how = if refused { "could not do its work: calls were refused" } else { "failed" };
            format!("Schedule {name} {how}. {why}")
        })
    } else if over {
        Some(format!("Schedule {name} was disabled after {failures} failures in a row. {why}"))
    } else if settings.tell_after > 0 && failures == settings.tell_after {
        Some(format!("Schedule {name} has failed {failures} times in a row. {why}"))
    } else {
        None
    };
    let run = ScheduleRun {
        finished: Some(now),
        status: fired.status,
        summary: why,
        turns: fired.turns,
        cost: fired.cost,
        output,
        ..run.clone()
    };
    // What a run says whose calls were refused is worth hearing, once.
    let says = run.status == RunStatus::Success || (run.status == RunStatus::Refused && notice.is_none());
    let result = (told && says && !run.output.is_empty()).then(|| run.output.clone());
    Conclusion { finish: Finish { run, status, failures, keep: settings.keep }, result, notice }
}

/// The name of a schedule, or the beginning of its task.
pub(super) fn title(schedule: &Schedule) -> String {
    let words = schedule.name.clone().unwrap_or_else(|| schedule.goal.lines().next().unwrap_or_default().to_owned());
    format!("\"{}\"", shortened(&words, 60))
}

/// The output without the marker, and whether it was marked.
fn unmarked(output: &str) -> (String, bool) {
    let is_marked = |line: &str| line.trim_start().starts_with(MARKER);
    if !output.lines().any(is_marked) {
        return (output.trim().to_owned(), false);
    }
    let lines = output.lines().map(|line| if is_marked(line) { line.replacen(MARKER, "", 1) } else { line.to_owned() });
    (lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n").trim().to_owned(), true)
}

/// At most this many characters; the last three say that there was more.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_not_part_of_the_answer() {
        assert_eq!(unmarked("[NOTIFY] The disk is full."), ("The disk is full.".into(), true));
        assert_eq!(unmarked("I looked.\n\n [NOTIFY]\nIt is full.\n"), ("I looked.\n\n\nIt is full.".into(), true));
        assert_eq!(unmarked("no [NOTIFY] here\n"), ("no [NOTIFY] here".into(), false));
    }

    #[test]
    fn a_summary_is_cut_between_characters() {
        let cut = shortened(&"ü".repeat(501), SUMMARY);
        assert_eq!((cut.chars().count(), cut.ends_with("ü...")), (500, true));
        assert_eq!(shortened(&"ü".repeat(500), SUMMARY), "ü".repeat(500));
    }
}
