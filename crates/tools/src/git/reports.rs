//! Parsers of test runner output, by test name. Skipped tests are not reported.

use std::collections::BTreeMap;

use serde_json::Value;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    /// Its name, as its runner writes it.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
}

/// Tests at most.
const MAX_TESTS: usize = 20_000;

/// Parses the output of any known runner. A test that occurs twice keeps its worse result.
pub(super) fn parse_any(output: &str) -> Vec<TestCase> {
    let readers: [fn(&str) -> Option<TestCase>; 7] = [cargo, nextest, pytest, unittest, tap, check_marks, gradle];
    let mut cases: Vec<TestCase> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for line in output.lines() {
        // Node's runner repeats its failures after this line. Cargo's `failures:` is not the end: more test binaries
        // may follow.
        if line.trim_end() == "✖ failing tests:" && !cases.is_empty() {
            break;
        }
        let Some(case) = readers.iter().find_map(|read| read(line)) else { continue };
        match places.get(&case.name) {
            Some(at) => cases[*at].passed &= case.passed,
            None if cases.len() < MAX_TESTS => {
                places.insert(case.name.clone(), cases.len());
                cases.push(case);
            }
            None => break,
        }
    }
    cases
}

fn case(name: &str, passed: bool) -> Option<TestCase> {
    let name = name.trim();
    (!name.is_empty()).then(|| TestCase { name: name.to_owned(), passed })
}

/// `test a::b ... ok`
fn cargo(line: &str) -> Option<TestCase> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    match result.split([' ', ',']).next()? {
        "ok" => case(name, true),
        "FAILED" => case(name, false),
        _ => None,
    }
}

/// `        PASS [   0.005s] crate a::b`
fn nextest(line: &str) -> Option<TestCase> {
    let (word, rest) = line.trim_start().split_once(" [")?;
    let (time, name) = rest.split_once("s] ")?;
    time.trim().parse::<f64>().ok()?;
    let name = name.rsplit(' ').next()?;
    match word {
        "PASS" => case(name, true),
        "FAIL" | "TIMEOUT" | "ABORT" | "SIGABRT" | "SIGSEGV" => case(name, false),
        _ => None,
    }
}

/// `PASSED tests/test_a.py::test_one`
fn pytest(line: &str) -> Option<TestCase> {
    let (word, rest) = line.split_once(' ')?;
    if !rest.contains("::") {
        return None;
    }
    let name = || rest.split(" - ").next().unwrap_or(rest);
    match word {
        "PASSED" | "XFAIL" => case(name(), true),
        "FAILED" | "ERROR" => case(name(), false),
        _ => None,
    }
}

/// `test_a (tests.T.test_a) ... ok`
fn unittest(line: &str) -> Option<TestCase> {
    let (name, result) = line.split_once(") ... ")?;
    let (name, class) = name.split_once(" (")?;
    let name = if class.ends_with(name) { class.to_owned() } else { format!("{class}.{name}") };
    match result.trim() {
        "ok" | "expected failure" => case(&name, true),
        "FAIL" | "ERROR" | "unexpected success" => case(&name, false),
        _ => None,
    }
}

/// `ok 1 - name`
fn tap(line: &str) -> Option<TestCase> {
    let line = line.trim_start();
    let (passed, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let (number, name) = rest.split_once(" - ")?;
    number.parse::<u64>().ok()?;
    let (name, remark) = name.split_once(" # ").unwrap_or((name, ""));
    let left_out = ["SKIP", "TODO"].iter().any(|word| remark.to_uppercase().starts_with(word));
    if left_out { None } else { case(name, passed) }
}

/// `✔ name (0.5ms)`: node, mocha, jest, vitest.
fn check_marks(line: &str) -> Option<TestCase> {
    let line = line.trim_start();
    let sign = line.chars().next()?;
    let passed = match sign {
        '✓' | '✔' | '√' => true,
        '✗' | '✘' | '✕' | '✖' | '×' => false,
        _ => return None,
    };
    let name = line[sign.len_utf8()..].strip_prefix(' ')?;
    let name = name.strip_suffix(" # SKIP").map_or(Some(name), |_| None)?;
    case(strip_duration(name), passed)
}

/// A name without the time that it took: `name (0.5ms)`, `name 3ms`.
fn strip_duration(name: &str) -> &str {
    let is_time = |text: &str| {
        let number = text.trim_end_matches(|it: char| it.is_ascii_alphabetic() || it == 'µ').trim();
        text.ends_with('s') && number.parse::<f64>().is_ok()
    };
    let name = name.trim_end();
    if let Some((before, inside)) = name.strip_suffix(')').and_then(|it| it.rsplit_once(" ("))
        && is_time(inside)
    {
        return before;
    }
    match name.rsplit_once(' ') {
        Some((before, last)) if is_time(last) => before,
        _ => name,
    }
}

/// `ParserTest > reads() PASSED`
fn gradle(line: &str) -> Option<TestCase> {
    let (name, word) = line.rsplit_once(' ')?;
    if !name.contains(" > ") {
        return None;
    }
    match word {
        "PASSED" => case(name, true),
        "FAILED" => case(name, false),
        _ => None,
    }
}

/// What `go test -json` tells: its output as a person would see it, and the tests.
pub(super) fn go(stdout: &str, stderr: &str) -> (String, Vec<TestCase>) {
    let mut output = String::new();
    let mut cases = Vec::new();
    for line in stdout.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            output.push_str(line);
            output.push('\n');
            continue;
        };
        if let Some(text) = event["Output"].as_str() {
            output.push_str(text);
        }
        if let (Some(name), Some(action)) = (event["Test"].as_str(), event["Action"].as_str())
            && matches!(action, "pass" | "fail")
            && cases.len() < MAX_TESTS
        {
            cases.extend(case(name, action == "pass"));
        }
    }
    output.push_str(stderr);
    (output, cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Vec<(String, bool)> {
        parse_any(output).into_iter().map(|it| (it.name, it.passed)).collect()
    }

    #[test]
    fn reads_what_the_common_runners_print() {
        let output = "\
test m::one ... ok
test m::pan - should panic ... ok
test m::ign ... ignored
test m::bad ... FAILED
        PASS [   0.005s] helve-tools git::reads
PASSED tests/test_a.py::test_par[1]
FAILED tests/test_a.py::test_bad - assert 1 == 2
SKIPPED [1] tests/test_a.py:7: unconditional skip
test_x (tests.T.test_x) ... ok
ok 1 - two words
not ok 2 - worse # time=1ms
ok 3 - later # SKIP no time
  ✔ in a suite (0.52ms)
✖ broken (1.2ms)
  ✓ jest does it (3 ms)
ParserTest > reads() PASSED
";
        let told = [
            ("m::one", true),
            ("m::pan", true),
            ("m::bad", false),
            ("git::reads", true),
            ("tests/test_a.py::test_par[1]", true),
            ("tests/test_a.py::test_bad", false),
            ("tests.T.test_x", true),
            ("two words", true),
            ("worse", false),
            ("in a suite", true),
            ("broken", false),
            ("jest does it", true),
            ("ParserTest > reads()", true),
        ];
        assert_eq!(read(output), told.map(|(name, passed)| (name.to_owned(), passed)));
    }

    #[test]
    fn a_test_told_twice_keeps_the_worse_result() {
        assert_eq!(read("✔ a (1ms)\n✖ a (1ms)\n"), [("a".to_owned(), false)]);
    }

    #[test]
    fn only_the_list_of_node_ends_the_results() {
        let named =
            |output: &str| parse_any(output).into_iter().map(|case| (case.name, case.passed)).collect::<Vec<_>>();
        let two_binaries = "test a ... FAILED\n\nfailures:\n    a\n\ntest result: FAILED.\ntest b ... ok\n";
        assert_eq!(named(two_binaries), [("a".to_owned(), false), ("b".to_owned(), true)]);
        let node = "✔ b (1ms)\n✖ a (1ms)\n✖ failing tests:\n✖ a (1ms)\n✔ c (1ms)\n";
        assert_eq!(named(node), [("b".to_owned(), true), ("a".to_owned(), false)]);
    }

    #[test]
    fn go_tells_in_events() {
        let events = r#"{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"pass","Test":"TestA"}
{"Action":"fail","Test":"TestB/in_ner"}
{"Action":"pass","Package":"x"}
"#;
        let (output, cases) = go(events, "");
        assert_eq!((output.as_str(), cases.len(), cases[1].passed), ("=== RUN TestA\n", 2, false));
    }
}
