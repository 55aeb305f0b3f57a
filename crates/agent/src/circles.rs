//! Detects loops of a model: repeated calls, alternating calls, repeated queries without new results.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use serde_json::Value;

/// The same failure this often ends the turn.
const MAX_SAME_FAILURES: u32 = 3;
/// The same call with the same result this often adds a warning to the result.
const WARN_AFTER: u32 = 3;
/// … and this often ends the turn.
const STOP_AFTER: u32 = 6;
/// A call that took this long is polling rather than a loop; it may be repeated more often.
const SLOW_CALL: Duration = Duration::from_secs(2);
/// How much more often.
const SLOW_CALL_FACTOR: u32 = 10;

/// What was called in a turn, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct LoopDetector {
    counts: HashMap<u64, CallCount>,
    last: [u64; 2],
    alternations: u32,
    answer: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallCount {
    result: u64,
    repetitions: u32,
    answer: u32,
}

/// A call that has ended.
pub(crate) struct CallObservation<'a> {
    /// The tool.
    pub(crate) name: &'a str,
    /// The arguments as the model wrote them.
    pub(crate) input: &'a str,
    /// What came back.
    pub(crate) content: &'a str,
    /// Whether it failed.
    pub(crate) failed: bool,
    /// Whether it may have changed something.
    pub(crate) may_have_changed: bool,
    /// How long it took.
    pub(crate) duration: Duration,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoopVerdict {
    /// Nothing.
    Continue,
    /// Say this to the model.
    Warn(String),
    /// End the turn; why, in words.
    Stop(String),
}

impl LoopDetector {
    /// Another answer of the model begins. Calls of one answer that are alike count once.
    pub(crate) fn begin_response(&mut self) {
        self.answer += 1;
    }

    /// Judges a call that has ended.
    pub(crate) fn observe(&mut self, done: &CallObservation<'_>) -> LoopVerdict {
        let call = fingerprint(done.name, done.input);
        let result = hash(&(done.content, done.failed));
        let entry = self.counts.entry(call).or_default();
        if entry.repetitions > 0 && entry.result == result {
            entry.repetitions += u32::from(entry.answer != self.answer);
        } else {
            *entry = CallCount { result, repetitions: 1, answer: 0 };
        }
        entry.answer = self.answer;
        let times = entry.repetitions;
        if done.may_have_changed && !done.failed {
            // The state has changed, so other calls may return other results.
            self.counts.retain(|key, _| *key == call);
        }
        let rounds = self.count_alternations(hash(&(call, result)));

        let factor = if done.duration >= SLOW_CALL { SLOW_CALL_FACTOR } else { 1 };
        let name = done.name;
        if done.failed && times >= MAX_SAME_FAILURES * factor {
            return LoopVerdict::Stop(format!(
                "`{name}` was called {times} times with the same arguments and failed in the same way each time"
            ));
        }
        if times >= STOP_AFTER * factor {
            return LoopVerdict::Stop(format!(
                "`{name}` was called {times} times with the same arguments and the same result"
            ));
        }
        if rounds >= STOP_AFTER {
            return LoopVerdict::Stop(format!(
                "two calls followed each other by turns {rounds} times, each with the same result (the last was `{name}`)"
            ));
        }
        if times >= WARN_AFTER * factor {
            return LoopVerdict::Warn(format!(
                "This is call {times} of its kind with the same result. Calling again will not change it: do something else, or say what is in the way."
            ));
        }
        if rounds >= WARN_AFTER {
            return LoopVerdict::Warn("Two calls have followed each other by turns, each with the same result. This leads nowhere: do something else, or say what is in the way.".to_owned());
        }
        LoopVerdict::Continue
    }

    /// How often two different calls with their results have followed each other by turns.
    fn count_alternations(&mut self, now: u64) -> u32 {
        let [before, last] = self.last;
        self.alternations = if now == before && now != last { self.alternations + 1 } else { 0 };
        self.last = [last, now];
        // Two calls make the first round; every two that repeat them make another.
        if self.alternations == 0 { 0 } else { 1 + self.alternations / 2 }
    }
}

/// The same for calls that mean the same: the order of fields and blanks do not count.
fn fingerprint(name: &str, input: &str) -> u64 {
    match serde_json::from_str::<Value>(input) {
        Ok(value) => hash(&(name, sort_keys(&value).to_string())),
        Err(_) => hash(&(name, input.trim())),
    }
}

fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            fields.into_iter().map(|(name, value)| (name.clone(), sort_keys(value))).collect()
        }
        Value::Array(items) => items.iter().map(sort_keys).collect(),
        other => other.clone(),
    }
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        circles: &mut LoopDetector,
        name: &str,
        input: &str,
        content: &str,
        failed: bool,
        changes: bool,
    ) -> LoopVerdict {
        circles.begin_response();
        circles.observe(&CallObservation {
            name,
            input,
            content,
            failed,
            may_have_changed: changes,
            duration: Duration::ZERO,
        })
    }

    #[test]
    fn the_third_failure_of_its_kind_is_the_last() {
        let mut circles = LoopDetector::default();
        assert_eq!(run(&mut circles, "Read", r#"{"a":1,"b":2}"#, "no", true, false), LoopVerdict::Continue);
        assert_eq!(run(&mut circles, "Read", r#"{"b":2, "a":1}"#, "no", true, false), LoopVerdict::Continue);
        let stop = "`Read` was called 3 times with the same arguments and failed in the same way each time";
        assert_eq!(run(&mut circles, "Read", r#"{"a":1,"b":2}"#, "no", true, false), LoopVerdict::Stop(stop.into()));
    }

    #[test]
    fn a_change_in_between_makes_it_another_call() {
        let mut circles = LoopDetector::default();
        for _ in 0..9 {
            assert_eq!(run(&mut circles, "Test", "{}", "failed", true, true), LoopVerdict::Continue);
            let edit = format!("{}", circles.answer);
            assert_eq!(run(&mut circles, "Edit", &edit, "done", false, true), LoopVerdict::Continue);
        }
    }

    #[test]
    fn the_same_result_is_told_and_then_ended() {
        let mut circles = LoopDetector::default();
        let said: Vec<String> = (0..6)
            .map(|_| match run(&mut circles, "Poll", "{}", "running", false, false) {
                LoopVerdict::Continue => "fine".to_owned(),
                LoopVerdict::Warn(_) => "warn".to_owned(),
                LoopVerdict::Stop(_) => "stop".to_owned(),
            })
            .collect();
        assert_eq!(said, ["fine", "fine", "warn", "warn", "warn", "stop"]);
    }

    #[test]
    fn two_calls_by_turns_are_noticed_though_both_change_things() {
        let mut circles = LoopDetector::default();
        let mut last = LoopVerdict::Continue;
        let mut count = 0;
        while !matches!(last, LoopVerdict::Stop(_)) && count < 100 {
            let input = if count % 2 == 0 { "on" } else { "off" };
            last = run(&mut circles, "Switch", input, "done", false, true);
            count += 1;
        }
        assert_eq!(count, 12);
    }

    #[test]
    fn alike_calls_of_one_answer_count_once_and_patience_is_no_circle() {
        let mut circles = LoopDetector::default();
        let call = |took| CallObservation {
            name: "A",
            input: "{}",
            content: "x",
            failed: true,
            may_have_changed: false,
            duration: took,
        };
        circles.begin_response();
        for _ in 0..20 {
            assert_eq!(circles.observe(&call(Duration::ZERO)), LoopVerdict::Continue);
        }
        let mut circles = LoopDetector::default();
        for _ in 0..20 {
            circles.begin_response();
            assert_eq!(circles.observe(&call(Duration::from_secs(3))), LoopVerdict::Continue);
        }
    }
}
