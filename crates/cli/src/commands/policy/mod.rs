//! `helve policy`: explains decisions about calls, tests rules, and derives rules from a session's record.

mod explain;
mod learn;
mod rule_tests;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use helve_engine::Mode;
use helve_runtime::Caller;

pub(crate) use explain::{Explainer, Query};

use super::SettingsArgs;
use crate::{
    fault::{CliError, CommandResult, EXIT_FAILURE},
    outside::Wanted,
    say, setup,
    workshop::HelveRuntime,
};

/// Explain what the rules say about a call, and test rules.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve policy explain 'rm -rf build'
  helve policy explain --tool Write '{\"file_path\":\".git/config\",\"content\":\"x\"}'
  helve policy test rules.test.toml
  helve policy learn cli")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Explain(ExplainArgs),
    Test(TestArgs),
    Learn(LearnArgs),
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
    choice: SettingsArgs,
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
    choice: SettingsArgs,
}

/// Propose the narrowest allow rules for what ran in a session.
///
/// The record of the session says which calls ran and which were refused. Each call that ran is judged by the settings in
/// force; for those that would be asked about, the narrowest rule is proposed, with what it grants. A call that a rule or a
/// person refused never gets a rule. Nothing is written without `--write`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve policy learn cli                   calls of `helve call`
  helve policy learn 3f2a --mode default
  helve policy learn 3f2a --write          adds the rules to approval.allow of your settings")]
struct LearnArgs {
    /// A session with a record: its id, the beginning or the end of it, or `cli` for calls of `helve call`.
    #[arg(value_name = "SESSION")]
    session: String,
    /// The approval mode that the rules are for.
    #[arg(long, value_name = "MODE", default_value = "default")]
    mode: Mode,
    /// Add the rules to `approval.allow` of your settings file.
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    choice: SettingsArgs,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.what {
            What::Explain(args) => args.run(),
            What::Test(args) => args.run(),
            What::Learn(args) => args.run(),
        }
    }
}

impl ExplainArgs {
    fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = match &self.tool {
            Some(tool) => super::call::select_dialect(tool, self.choice.dialect.is_some(), &settings)?,
            None => super::configured_dialect(&settings)?,
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
        let bench = HelveRuntime::with_external(settings, &dialect, &Wanted::WithTool(&wanted), &runtime)?;
        let explainer = Explainer::new(Caller::Person);
        let explained = runtime.block_on(explainer.explain(&bench, &query));
        runtime.block_on(setup::shutdown_servers(bench.servers()));
        let explained = explained?;
        if self.json {
            say!("{}", serde_json::to_string_pretty(&explained.json()).map_err(|it| CliError::failed(it.to_string()))?);
        } else {
            say!("{}", explained.text());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl TestArgs {
    fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = super::configured_dialect(&settings)?;
        let tests = rule_tests::read(&self.file)?;
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::with_external(settings, &dialect, &Wanted::All, &runtime)?;
        let results = runtime.block_on(rule_tests::run(&bench, &tests));
        runtime.block_on(setup::shutdown_servers(bench.servers()));
        let results = results?;
        say!("{}", rule_tests::table(&tests, &results));
        Ok(if results.iter().all(rule_tests::TestResult::is_passed) {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_FAILURE)
        })
    }
}

impl LearnArgs {
    fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = super::configured_dialect(&settings)?;
        let (state, _) = crate::state::open(&settings)?;
        let calls = learn::read(&record(&state.join("runs"), &self.session)?)?;
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::with_external(settings, &dialect, &Wanted::All, &runtime)?;
        let explainer = Explainer::new(Caller::Person);
        let learned = runtime.block_on(learn::learn(&bench, &explainer, &calls, self.mode));
        runtime.block_on(setup::shutdown_servers(bench.servers()));
        say!("{}", learned.text().trim_end());
        let rules = learned.rules();
        if rules.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let file =
            crate::config::user_file().ok_or_else(|| CliError::usage("HOME is not set, so there are no settings"))?;
        if !self.write {
            say!("Nothing was written. Add --write to put the rules into approval.allow of {}.", file.display());
            return Ok(ExitCode::SUCCESS);
        }
        let old = if file.exists() {
            fs::read_to_string(&file).map_err(|it| CliError::failed(it.to_string()))?
        } else {
            String::new()
        };
        let is_toml = file.extension().is_some_and(|end| end == "toml");
        let new = if is_toml {
            learn::with_rules(&old, &rules)
        } else {
            Err("it is not TOML; add the rules there".to_owned())
        };
        let new = new.map_err(|why| CliError::failed(format!("{} was not changed: {why}", file.display())))?;
        super::install::write(&file, file.exists().then_some(&*old), &new)?;
        say!("Added {} rules to approval.allow of {}.", rules.len(), file.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// The record of a session, by its id or the beginning or end of it.
fn record(runs: &Path, session: &str) -> Result<PathBuf, CliError> {
    let names = fs::read_dir(runs).into_iter().flatten().flatten().filter_map(|it| it.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|it| it.starts_with(session) || it.ends_with(session)).collect();
    let is_name = !session.is_empty() && !session.contains('/');
    match names.as_slice() {
        _ if names.iter().any(|it| it == session) && is_name => Ok(runs.join(session).join("events.ndjson")),
        [only] if is_name => Ok(runs.join(only).join("events.ndjson")),
        [] | [_] => Err(CliError::usage(format!(
            "no session `{session}` has a record in {}. `helve sessions list` lists sessions; `events = \"off\"` keeps no record",
            runs.display()
        ))),
        many => Err(CliError::usage(format!(
            "`{session}` is the beginning or end of {} sessions; write more of it",
            many.len()
        ))),
    }
}
