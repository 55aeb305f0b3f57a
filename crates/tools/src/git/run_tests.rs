//! `run_tests`: detects and runs the project's tests, and reports them by name.

use std::time::Duration;

use helve_contract::{
    Access, AccessRequest, Call, CommandLine, Effects, Error, Port, PortSet, Reply, Result, Tool, TruncateSide,
    ports::{Span, Streams},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reports::{self, TestCase};
use crate::shell::{RunTool, RunToolOutput};

/// Runs the project's tests in the sandbox. Without a command it is found by what lies in the folder (cargo, npm, pnpm, yarn, pytest, go, gradle, mvn, make, just). Returns passed, output and each test's result.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct RunTests {
    /// Instead of the one that is found
    pub command: Option<String>,
}

/// The result of the tests.
#[derive(Clone, Debug)]
pub struct RunTestsOutput {
    /// The command that ran.
    pub command: String,
    /// Whether all tests passed.
    pub passed: bool,
    /// What it printed.
    pub output: String,
    /// The tests, by name.
    pub cases: Vec<TestCase>,
    run: RunToolOutput,
}

/// How long tests may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(30 * 60);

impl Tool for RunTests {
    const NAME: &'static str = "run_tests";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::EXECUTES);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    const TIMEOUT: Duration = Duration::MAX;
    type Output = RunTestsOutput;

    fn access(&self) -> Option<AccessRequest> {
        let command = self.command.as_ref().filter(|it| !it.trim().is_empty());
        Some(match command {
            Some(command) => AccessRequest::runs(command),
            None => {
                AccessRequest::command(CommandLine::OneOf(COMMANDS.iter().map(|it| (*it).to_owned()).collect()), None)
            }
        })
    }

    async fn run(self, call: &Call) -> Result<RunTestsOutput> {
        let (command, runner) = match self.command.filter(|it| !it.trim().is_empty()) {
            Some(command) => (command, TestRunner::Unknown),
            None => detect_command(call)
                .await
                .inspect(|(command, _)| debug_assert!(COMMANDS.contains(&command.as_str())))?,
        };
        let run = RunTool {
            script: command.clone(),
            timeout: Some(TEST_TIMEOUT),
            description: Some("tests".into()),
            keep: TruncateSide::KeepTail,
            streams: if runner == TestRunner::Go { Streams::Separate } else { Streams::Merged },
            ..RunTool::default()
        };
        let run = run.run(call).await?;
        let (output, cases) = match runner {
            TestRunner::Go => reports::go(&run.stdout, &run.stderr),
            TestRunner::Unknown => (run.merged.clone(), reports::parse_any(&run.merged)),
        };
        let passed = run.exit == Some(0) && !run.timed_out && !run.cancelled && cases.iter().all(|case| case.passed);
        Ok(RunTestsOutput { command, passed, output, cases, run })
    }
}

impl From<RunTestsOutput> for Reply {
    fn from(it: RunTestsOutput) -> Self {
        let results: Vec<Value> = it
            .cases
            .iter()
            .map(|case| json!({ "name": case.name, "result": if case.passed { "pass" } else { "fail" } }))
            .collect();
        let mut data =
            json!({ "passed": it.passed, "output": it.output, "testResults": results, "command": it.command });
        if it.run.timed_out {
            data["timedOut"] = true.into();
        }
        let whole = it.run.render_streams();
        Self { text: data.to_string(), data: Some(data), ..whole }
    }
}

/// Whose words are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestRunner {
    /// A stream of JSON events.
    Go,
    /// Whoever it is: the lines say it.
    Unknown,
}

/// Every command that is chosen by what lies in the directory.
const COMMANDS: &[&str] = &[
    "cargo test --no-fail-fast",
    "go test -json ./...",
    "pnpm test",
    "yarn test",
    "npm test",
    ".venv/bin/python -m pytest -rA -p no:cacheprovider",
    "python3 -m pytest -rA -p no:cacheprovider",
    "./gradlew test --console=plain",
    "gradle test --console=plain",
    "mvn -B test",
    "make test",
    "just test",
];

/// The command for what lies in the directory: one of [`COMMANDS`].
async fn detect_command(call: &Call) -> Result<(String, TestRunner)> {
    let top = call.session.workspace.primary_root(Access::Read)?;
    let names: Vec<String> = call.host().list(&top).await?.into_iter().map(|item| item.name).collect();
    let has = |name: &str| names.iter().any(|it| it == name);
    let plain = |command: &str| Ok((command.to_owned(), TestRunner::Unknown));
    if has("Cargo.toml") {
        return plain("cargo test --no-fail-fast");
    }
    if has("go.mod") {
        return Ok(("go test -json ./...".into(), TestRunner::Go));
    }
    if has("package.json") && has_test_script(&text(call, "package.json").await) {
        return plain(match (has("pnpm-lock.yaml"), has("yarn.lock")) {
            (true, _) => "pnpm test",
            (_, true) => "yarn test",
            _ => "npm test",
        });
    }
    let python =
        ["pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini", "setup.py", "conftest.py"].into_iter().any(has)
            || names.iter().any(|it| it.starts_with("test_") && it.strip_suffix(".py").is_some());
    if python {
        let program = if has(".venv") { ".venv/bin/python" } else { "python3" };
        return plain(&format!("{program} -m pytest -rA -p no:cacheprovider"));
    }
    if has("gradlew") {
        return plain("./gradlew test --console=plain");
    }
    if has("build.gradle") || has("build.gradle.kts") {
        return plain("gradle test --console=plain");
    }
    if has("pom.xml") {
        return plain("mvn -B test");
    }
    for (file, command) in
        [("Makefile", "make test"), ("makefile", "make test"), ("justfile", "just test"), ("Justfile", "just test")]
    {
        if has(file) && text(call, file).await.lines().any(is_test_rule) {
            return plain(command);
        }
    }
    Err(Error::failed(
        "no tests were found by Cargo.toml, go.mod, package.json, pytest, gradle, maven, make or just; give a command",
    ))
}

fn is_test_rule(line: &str) -> bool {
    line.strip_prefix("test").is_some_and(|rest| {
        rest.trim_start_matches(|it: char| it != ':').starts_with(':')
            && !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_' || it == '-')
    })
}

fn has_test_script(package: &str) -> bool {
    let package: Value = serde_json::from_str(package).unwrap_or_default();
    package["scripts"]["test"].as_str().is_some_and(|it| !it.contains("no test specified"))
}

/// The beginning of a file at the top; empty if it cannot be read.
async fn text(call: &Call, name: &str) -> String {
    let read = async {
        let path = call.session.workspace.primary_root(Access::Read)?.in_same_root(name, Access::Read)?;
        call.host().read(&path, Span::first(1 << 20)).await
    };
    read.await.map(|chunk| String::from_utf8_lossy(&chunk.bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_named_test_is_one() {
        let rules = ["test:", "test: build", "test *args:", "tests:", "test-all: x", "testing"];
        assert_eq!(rules.map(is_test_rule), [true, true, true, false, false, false]);
    }
}
