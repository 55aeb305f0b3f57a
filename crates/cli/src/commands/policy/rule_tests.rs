//! Tests of rules, from a TOML file.

use std::{fs, path::Path};

use helve_engine::Outcome;
use helve_runtime::Caller;
use serde::Deserialize;
use serde_json::Value;

use super::explain::{Explained, Explainer, Query};
use crate::{fault::CliError, print::escape_for_terminal, workshop::HelveRuntime};

/// The largest file of tests, in bytes.
const MAX_FILE: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    test: Vec<RuleTest>,
}

/// One test: a call, and what is expected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTest {
    name: Option<String>,
    command: Option<String>,
    tool: Option<String>,
    args: Option<toml::Value>,
    dialect: Option<String>,
    mode: Option<String>,
    expect: Expected,
    rule: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Allow,
    Ask,
    Deny,
    Refuse,
}

impl Expected {
    const fn outcome(self) -> Outcome {
        match self {
            Self::Allow => Outcome::Allow,
            Self::Ask => Outcome::Ask,
            Self::Deny => Outcome::Deny,
            Self::Refuse => Outcome::Refuse,
        }
    }
}

/// What became of one test.
pub(super) struct TestResult {
    passed: bool,
    outcome: &'static str,
    rule: String,
    why: String,
}

impl TestResult {
    pub(super) const fn is_passed(&self) -> bool {
        self.passed
    }
}

/// Reads a file of tests.
pub(super) fn read(path: &Path) -> Result<Vec<RuleTest>, CliError> {
    let wrong = |why: String| CliError::usage(format!("{}: {why}", path.display()));
    let size = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > MAX_FILE {
        return Err(wrong(format!("{size} bytes; at most {MAX_FILE} are read")));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if file.test.is_empty() {
        return Err(wrong("there are no tests; write each as [[test]] with command and expect".to_owned()));
    }
    Ok(file.test)
}

impl RuleTest {
    fn query(&self) -> Result<Query, CliError> {
        let mode = self.mode.as_deref().map(str::parse).transpose().map_err(CliError::usage)?;
        let args = match &self.args {
            Some(args) => serde_json::to_value(args).map_err(|error| CliError::usage(error.to_string()))?,
            None => Value::Null,
        };
        let (command, tool, dialect) = (self.command.clone(), self.tool.clone(), self.dialect.clone());
        Ok(Query { command, tool, args, dialect, mode })
    }

    fn shown(&self) -> String {
        let call = match (&self.name, &self.command, &self.tool) {
            (Some(name), ..) => name.clone(),
            (_, Some(command), _) => command.clone(),
            (_, _, Some(tool)) => {
                let args = self.args.as_ref().and_then(|it| serde_json::to_string(it).ok()).unwrap_or_default();
                format!("{tool} {args}")
            }
            _ => "(no call)".to_owned(),
        };
        escape_for_terminal(&call.replace('\n', "\\n")).into_owned()
    }
}

/// Runs the tests in order.
pub(super) async fn run(bench: &HelveRuntime, tests: &[RuleTest]) -> Result<Vec<TestResult>, CliError> {
    let explainer = Explainer::new(Caller::Person);
    let mut results = Vec::new();
    for (at, test) in tests.iter().enumerate() {
        let explained = match test.query() {
            Ok(query) => explainer.explain(bench, &query).await,
            Err(fault) => Err(fault),
        };
        let explained = explained.map_err(|fault| CliError::usage(format!("test {}: {fault}", at + 1)))?;
        results.push(result(test, &explained));
    }
    Ok(results)
}

fn result(test: &RuleTest, explained: &Explained) -> TestResult {
    let rules: Vec<_> = explained.rules.iter().map(|it| it.rule.as_str()).collect();
    TestResult {
        passed: explained.agrees(test.expect.outcome(), test.rule.as_deref()),
        outcome: explained.explanation.outcome.name(),
        rule: if rules.is_empty() { "-".to_owned() } else { rules.join(", ") },
        why: explained.explanation.why.clone(),
    }
}

/// The results as a table; a failed test has a second line.
pub(super) fn table(tests: &[RuleTest], results: &[TestResult]) -> String {
    let width = results.iter().map(|it| it.rule.chars().count()).max().unwrap_or_default().max(4);
    let mut lines = vec![format!("{:6}{:9}{:width$}  CALL", "", "OUTCOME", "RULE")];
    for (test, result) in tests.iter().zip(results) {
        let mark = if result.passed { "ok" } else { "FAIL" };
        lines.push(format!("{mark:6}{:9}{:width$}  {}", result.outcome, result.rule, test.shown()));
        if !result.passed {
            let rule = test.rule.as_ref().map(|rule| format!(" by the rule {rule}")).unwrap_or_default();
            let expected = test.expect.outcome().name();
            lines.push(format!(
                "      expected {expected}{rule}; got {}: {}",
                result.outcome,
                escape_for_terminal(&result.why)
            ));
        }
    }
    let failed = results.iter().filter(|it| !it.passed).count();
    lines.push(format!("{} tests, {failed} failed", results.len()));
    lines.join("\n")
}
