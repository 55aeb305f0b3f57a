//! `helve policy`: what the rules say about a call, and tests of rules.

mod explain;
mod rule_tests;

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use helve_engine::Mode;
use helve_runtime::Caller;

pub(crate) use explain::{Explainer, Query};

use super::Choice;
use crate::{
    fault::{FAILED, Fault, Outcome},
    outside::Wanted,
    say, setup,
    workshop::Bench,
};

/// Explain what the rules say about a call, and test rules.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve policy explain 'rm -rf build'
  helve policy explain --tool Write '{\"file_path\":\".git/config\",\"content\":\"x\"}'
  helve policy test rules.test.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Explain(ExplainArgs),
    Test(TestArgs),
}

/// Say what would happen to a command or a call, which rule decides, and why.
///
/// Nothing runs and nobody is asked. The outcome is `allow`, `ask`, `deny` (a rule or the mode denies it) or `refuse`
/// (it cannot be made: invalid arguments, a protected path, a secret). Earlier answers in a session do not count.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve policy explain 'npm test && git push'
  helve policy explain 'rm -rf build' --mode acceptEdits --json
  helve policy explain --tool Edit '{\"file_path\":\"a.rs\",\"old_string\":\"a\",\"new_string\":\"b\"}'
  helve policy explain --dialect forge 'make' --set 'approval.deny=[\"bash(make:*)\"]'")]
struct ExplainArgs {
    /// A command line; with `--tool`, the arguments as JSON.
    #[arg(value_name = "COMMAND|JSON")]
    call: String,
    /// The tool that is called; left out, the dialect's tool for commands.
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// The approval mode; left out, the configured one, or the dialect's own.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    choice: Choice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Run the rule tests in a TOML file. The exit code is 1 when a test fails.
///
/// Each `[[test]]` has a `command`, or a `tool` with `args`, and what is expected: `expect` is `allow`, `ask`, `deny`
/// or `refuse`; `rule` is the rule that must decide. `mode`, `dialect` and `name` are optional.
#[derive(clap::Args)]
#[command(after_help = "\
Example of a file:
  [[test]]
  command = \"rm -rf build\"
  expect = \"deny\"
  rule = \"Bash(rm:*)\"

  [[test]]
  tool = \"Write\"
  args = { file_path = \"src/main.rs\", content = \"\" }
  mode = \"acceptEdits\"
  expect = \"allow\"

Examples:
  helve policy test rules.test.toml
  helve policy test rules.test.toml --set 'approval.deny=[\"Bash(rm:*)\"]'")]
struct TestArgs {
    /// The file with the tests.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    choice: Choice,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self.what {
            What::Explain(args) => args.run(),
            What::Test(args) => args.run(),
        }
    }
}

impl ExplainArgs {
    fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let dialect = match &self.tool {
            Some(tool) => super::call::dialect_with(tool, self.choice.dialect.is_some(), &settings)?,
            None => super::dialect(&settings)?,
        };
        let query = Query {
            dialect: Some(dialect.name.to_owned()),
            mode: self.mode,
            ..match self.tool {
                Some(tool) => Query::call(tool, &self.call)?,
                None => Query::command(self.call),
            }
        };
        let runtime = setup::runtime()?;
        let wanted = query.tool.clone().unwrap_or_default();
        let bench = Bench::with_external(settings, &dialect, &Wanted::For(&wanted), &runtime)?;
        let explainer = Explainer::new(Caller::Person);
        let explained = runtime.block_on(explainer.explain(&bench, &query));
        runtime.block_on(setup::end_servers(bench.servers()));
        let explained = explained?;
        if self.json {
            say!("{}", serde_json::to_string_pretty(&explained.json()).map_err(|it| Fault::failed(it.to_string()))?);
        } else {
            say!("{}", explained.text());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl TestArgs {
    fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let dialect = super::dialect(&settings)?;
        let tests = rule_tests::read(&self.file)?;
        let runtime = setup::runtime()?;
        let bench = Bench::with_external(settings, &dialect, &Wanted::All, &runtime)?;
        let results = runtime.block_on(rule_tests::run(&bench, &tests));
        runtime.block_on(setup::end_servers(bench.servers()));
        let results = results?;
        say!("{}", rule_tests::table(&tests, &results));
        Ok(if results.iter().all(rule_tests::TestResult::is_passed) {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FAILED)
        })
    }
}
