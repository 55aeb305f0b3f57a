//! Notices when a model goes round in circles: the same call again, two calls by turns, a question without news.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use serde_json::Value;

/// The same failure this often ends the turn.
const FAILURES: u32 = 3;
/// The same call with the same result this often gets a word with its result.
const WARNED: u32 = 3;
/// … and this often ends the turn.
const STOPPED: u32 = 6;
/// A call that waited this long is patience rather than a circle; it may be repeated more often.
const PATIENT: Duration = Duration::from_secs(2);
/// How much more often.
const PATIENCE: u32 = 10;

/// What was called in a turn, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Circles {
    seen: HashMap<u64, Seen>,
    last: [u64; 2],
    by_turns: u32,
    answer: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    result: u64,
    times: u32,
    answer: u32,
}

/// A call that has ended.
pub(crate) struct Done<'a> {
    /// The tool.
    pub(crate) name: &'a str,
    /// The arguments as the model wrote them.
    pub(crate) input: &'a str,
    /// What came back.
    pub(crate) content: &'a str,
    /// Whether it failed.
    pub(crate) failed: bool,
    /// Whether it may have changed something.
    pub(crate) changes: bool,
    /// How long it took.
    pub(crate) took: Duration,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Fine,
    /// Say this to the model.
    Warn(String),
    /// End the turn; why, in words.
    Stop(String),
}

impl Circles {
    /// Another answer of the model begins. Calls of one answer that are alike count once.
    pub(crate) fn next_answer(&mut self) {
        self.answer += 1;
    }

    /// Judges a call that has ended.
    pub(crate) fn judge(&mut self, done: &Done<'_>) -> Verdict {
        let call = fingerprint(done.name, done.input);
        let result = hash(&(done.content, done.failed));
        let entry = self.seen.entry(call).or_default();
        if entry.times > 0 && entry.result == result {
            entry.times += u32::from(entry.answer != self.answer);
        } else {
            *entry = Seen { result, times: 1, answer: 0 };
        }
        entry.answer = self.answer;
        let times = entry.times;
        if done.changes && !done.failed {
            // The world is another one now, and other calls may answer otherwise.
            self.seen.retain(|key, _| *key == call);
        }
        let rounds = self.rounds(hash(&(call, result)));

        let factor = if done.took >= PATIENT { PATIENCE } else { 1 };
        let name = done.name;
        if done.failed && times >= FAILURES * factor {
            return Verdict::Stop(format!(
                "`{name}` was called {times} times with the same arguments and failed in the same way each time"
            ));
        }
        if times >= STOPPED * factor {
            return Verdict::Stop(format!(
                "`{name}` was called {times} times with the same arguments and the same result"
            ));
        }
        if rounds >= STOPPED {
            return Verdict::Stop(format!(
                "two calls followed each other by turns {rounds} times, each with the same result (the last was `{name}`)"
            ));
        }
        if times >= WARNED * factor {
            return Verdict::Warn(format!(
                "This is call {times} of its kind with the same result. Calling again will not change it: do something else, or say what is in the way."
            ));
        }
        if rounds >= WARNED {
            return Verdict::Warn("Two calls have followed each other by turns, each with the same result. This leads nowhere: do something else, or say what is in the way.".to_owned());
        }
        Verdict::Fine
    }

    /// How often two different calls with their results have followed each other by turns.
    fn rounds(&mut self, now: u64) -> u32 {
        let [before, last] = self.last;
        self.by_turns = if now == before && now != last { self.by_turns + 1 } else { 0 };
        self.last = [last, now];
        // Two calls make the first round; every two that repeat them make another.
        if self.by_turns == 0 { 0 } else { 1 + self.by_turns / 2 }
    }
}

/// The same for calls that mean the same: the order of fields and blanks do not count.
fn fingerprint(name: &str, input: &str) -> u64 {
    match serde_json::from_str::<Value>(input) {
        Ok(value) => hash(&(name, sorted(&value).to_string())),
        Err(_) => hash(&(name, input.trim())),
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
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

    fn run(circles: &mut Circles, name: &str, input: &str, content: &str, failed: bool, changes: bool) -> Verdict {
        circles.next_answer();
        circles.judge(&Done { name, input, content, failed, changes, took: Duration::ZERO })
    }

    #[test]
    fn the_third_failure_of_its_kind_is_the_last() {
        let mut circles = Circles::default();
        assert_eq!(run(&mut circles, "Read", r#"{"a":1,"b":2}"#, "no", true, false), Verdict::Fine);
        assert_eq!(run(&mut circles, "Read", r#"{"b":2, "a":1}"#, "no", true, false), Verdict::Fine);
        let stop = "`Read` was called 3 times with the same arguments and failed in the same way each time";
        assert_eq!(run(&mut circles, "Read", r#"{"a":1,"b":2}"#, "no", true, false), Verdict::Stop(stop.into()));
    }

    #[test]
    fn a_change_in_between_makes_it_another_call() {
        let mut circles = Circles::default();
        for _ in 0..9 {
            assert_eq!(run(&mut circles, "Test", "{}", "failed", true, true), Verdict::Fine);
            let edit = format!("{}", circles.answer);
            assert_eq!(run(&mut circles, "Edit", &edit, "done", false, true), Verdict::Fine);
        }
    }

    #[test]
    fn the_same_result_is_told_and_then_ended() {
        let mut circles = Circles::default();
        let said: Vec<String> = (0..6)
            .map(|_| match run(&mut circles, "Poll", "{}", "running", false, false) {
                Verdict::Fine => "fine".to_owned(),
                Verdict::Warn(_) => "warn".to_owned(),
                Verdict::Stop(_) => "stop".to_owned(),
            })
            .collect();
        assert_eq!(said, ["fine", "fine", "warn", "warn", "warn", "stop"]);
    }

    #[test]
    fn two_calls_by_turns_are_noticed_though_both_change_things() {
        let mut circles = Circles::default();
        let mut last = Verdict::Fine;
        let mut count = 0;
        while !matches!(last, Verdict::Stop(_)) && count < 100 {
            let input = if count % 2 == 0 { "on" } else { "off" };
            last = run(&mut circles, "Switch", input, "done", false, true);
            count += 1;
        }
        assert_eq!(count, 12);
    }

    #[test]
    fn alike_calls_of_one_answer_count_once_and_patience_is_no_circle() {
        let mut circles = Circles::default();
        let call = |took| Done { name: "A", input: "{}", content: "x", failed: true, changes: false, took };
        circles.next_answer();
        for _ in 0..20 {
            assert_eq!(circles.judge(&call(Duration::ZERO)), Verdict::Fine);
        }
        let mut circles = Circles::default();
        for _ in 0..20 {
            circles.next_answer();
            assert_eq!(circles.judge(&call(Duration::from_secs(3))), Verdict::Fine);
        }
    }
}
