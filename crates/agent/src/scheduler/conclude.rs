//! Concludes a run: what is stored, who is notified, whether the schedule continues.

use helve_contract::{
    jiff::Timestamp,
    ports::{Cadence, Notification, RunCompletion, Schedule, ScheduleRun, ScheduleRunStatus, ScheduleStatus},
};

use super::{RunOutcome, SchedulerConfig};

/// With this a run begins its answer when the owner should hear it.
pub const NOTIFY_MARKER: &str = "[NOTIFY]";
/// The longest output that is kept, in characters.
const MAX_OUTPUT_CHARS: usize = 1_000_000;
/// The longest summary, in characters.
const MAX_SUMMARY_CHARS: usize = 500;

/// What follows from a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunConclusion {
    /// What is kept.
    pub(super) finish: RunCompletion,
    /// The result, where the owner should hear it.
    pub(super) result: Option<String>,
    /// What else the owner should hear.
    pub(super) notice: Option<String>,
}

/// What follows from a run that ended like this.
pub(super) fn conclude(
    schedule: &Schedule,
    run: &ScheduleRun,
    fired: RunOutcome,
    now: Timestamp,
    settings: &SchedulerConfig,
) -> RunConclusion {
    let (output, marked) = strip_marker(&fired.output);
    let output = truncate_chars(&output, MAX_OUTPUT_CHARS);
    let failures = match fired.status {
        ScheduleRunStatus::Success | ScheduleRunStatus::Running => 0,
        ScheduleRunStatus::Failed | ScheduleRunStatus::Refused => schedule.failures.saturating_add(1),
        // A cancelled run says nothing about the task.
        ScheduleRunStatus::Cancelled => schedule.failures,
    };
    let refused = fired.status == ScheduleRunStatus::Refused;
    let failed = fired.status == ScheduleRunStatus::Failed || refused;
    let one_off = matches!(schedule.cadence, Cadence::Once { .. });
    let over = settings.disable_after_failures > 0 && failed && failures >= settings.disable_after_failures;
    let status = match (one_off, fired.status) {
        (true, ScheduleRunStatus::Success) => Some(ScheduleStatus::Completed),
        (true, _) => Some(ScheduleStatus::Failed),
        (false, _) if over => Some(ScheduleStatus::Disabled),
        (false, _) => None,
    };
    let told = match schedule.notification {
        // What was said in a session need not be told a second time.
        Notification::Always => schedule.session.is_none() || schedule.channel.is_some(),
        Notification::Conditional => marked,
        Notification::Never => false,
    };
    let name = schedule_title(schedule);
    let why = truncate_chars(&output, MAX_SUMMARY_CHARS);
    let notice = if !failed {
        None
    } else if one_off {
        (schedule.notification != Notification::Never).then(|| {
            let how = if refused { "could not do its work: calls were refused" } else { "failed" };
            format!("Schedule {name} {how}. {why}")
        })
    } else if over {
        Some(format!("Schedule {name} was disabled after {failures} failures in a row. {why}"))
    } else if settings.notify_after_failures > 0 && failures == settings.notify_after_failures {
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
    let says =
        run.status == ScheduleRunStatus::Success || (run.status == ScheduleRunStatus::Refused && notice.is_none());
    let result = (told && says && !run.output.is_empty()).then(|| run.output.clone());
    RunConclusion { finish: RunCompletion { run, status, failures, keep_runs: settings.keep_runs }, result, notice }
}

/// The name of a schedule, or the beginning of its task.
pub(super) fn schedule_title(schedule: &Schedule) -> String {
    let words = schedule.name.clone().unwrap_or_else(|| schedule.goal.lines().next().unwrap_or_default().to_owned());
    format!("\"{}\"", truncate_chars(&words, 60))
}

/// The output without the marker, and whether it was marked.
fn strip_marker(output: &str) -> (String, bool) {
    let is_marked = |line: &str| line.trim_start().starts_with(NOTIFY_MARKER);
    if !output.lines().any(is_marked) {
        return (output.trim().to_owned(), false);
    }
    let lines =
        output.lines().map(|line| if is_marked(line) { line.replacen(NOTIFY_MARKER, "", 1) } else { line.to_owned() });
    (lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n").trim().to_owned(), true)
}

/// At most this many characters; the last three say that there was more.
fn truncate_chars(text: &str, most: usize) -> String {
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
        assert_eq!(strip_marker("[NOTIFY] The disk is full."), ("The disk is full.".into(), true));
        assert_eq!(strip_marker("I looked.\n\n [NOTIFY]\nIt is full.\n"), ("I looked.\n\n\nIt is full.".into(), true));
        assert_eq!(strip_marker("no [NOTIFY] here\n"), ("no [NOTIFY] here".into(), false));
    }

    #[test]
    fn a_summary_is_cut_between_characters() {
        let cut = truncate_chars(&"ü".repeat(501), MAX_SUMMARY_CHARS);
        assert_eq!((cut.chars().count(), cut.ends_with("ü...")), (500, true));
        assert_eq!(truncate_chars(&"ü".repeat(500), MAX_SUMMARY_CHARS), "ü".repeat(500));
    }
}
