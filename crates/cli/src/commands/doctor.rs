//! `helve doctor`: tests what works on this machine.

mod checks;

use std::process::ExitCode;

use serde_json::{Value, json};

use super::SettingsArgs;
use crate::{
    config::Settings,
    fault::{CommandResult, EXIT_FAILURE},
    print::{TextStyle, escape_for_terminal, styled},
    say,
};

/// Try what Helve needs on this machine, and say what works.
///
/// The exit code is 1 when something is broken that Helve cannot do without.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve doctor
  helve doctor --json | jq '.checks[] | select(.state != \"good\")'")]
pub(crate) struct Args {
    #[command(flatten)]
    choice: SettingsArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStatus {
    /// It works.
    Ok,
    /// It does not, and Helve works without it, with less.
    Degraded,
    /// It does not, and Helve needs it.
    Failed,
}

/// One thing that was tried.
struct Check {
    name: &'static str,
    state: CheckStatus,
    text: String,
    next: Option<String>,
}

impl Check {
    fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, state: CheckStatus::Ok, text: text.into(), next: None }
    }

    fn degraded(name: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: CheckStatus::Degraded, text: text.into(), next: Some(next.into()) }
    }

    fn failed(name: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: CheckStatus::Failed, text: text.into(), next: Some(next.into()) }
    }

    fn json(&self) -> Value {
        let state = match self.state {
            CheckStatus::Ok => "good",
            CheckStatus::Degraded => "weak",
            CheckStatus::Failed => "broken",
        };
        json!({ "name": self.name, "state": state, "text": self.text, "next": self.next })
    }

    fn print(&self) {
        let mark = match self.state {
            CheckStatus::Ok => styled(TextStyle::Green, "ok  "),
            CheckStatus::Degraded => styled(TextStyle::Yellow, "weak"),
            CheckStatus::Failed => styled(TextStyle::Red, "BAD "),
        };
        say!("{mark}  {:14} {}", self.name, escape_for_terminal(&self.text));
        if let Some(next) = &self.next {
            say!("{:21}{}", "", styled(TextStyle::Dim, &escape_for_terminal(next)));
        }
    }
}

/// The results as JSON, for the HTTP API.
pub(crate) fn report(settings: &Settings) -> Value {
    checks_json(&checks::run_all(settings))
}

fn checks_json(checks: &[Check]) -> Value {
    let broken = checks.iter().any(|check| check.state == CheckStatus::Failed);
    let list: Vec<_> = checks.iter().map(Check::json).collect();
    json!({ "version": env!("CARGO_PKG_VERSION"), "works": !broken, "checks": list })
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load(Vec::new())?;
        let checks = checks::run_all(&settings);
        let broken = checks.iter().any(|check| check.state == CheckStatus::Failed);
        if self.json {
            say!("{:#}", checks_json(&checks));
        } else {
            checks.iter().for_each(Check::print);
        }
        Ok(if broken { ExitCode::from(EXIT_FAILURE) } else { ExitCode::SUCCESS })
    }
}
