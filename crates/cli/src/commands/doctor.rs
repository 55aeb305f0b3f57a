//! `helve doctor`: what works on this machine, found out by trying it.

mod checks;

use std::process::ExitCode;

use serde_json::{Value, json};

use super::Choice;
use crate::{
    config::Settings,
    fault::{FAILED, Outcome},
    print::{Ink, harmless, ink},
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
    choice: Choice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It works.
    Good,
    /// It does not, and Helve works without it, with less.
    Weak,
    /// It does not, and Helve needs it.
    Broken,
}

/// One thing that was tried.
struct Check {
    name: &'static str,
    state: State,
    text: String,
    next: Option<String>,
}

impl Check {
    fn good(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, state: State::Good, text: text.into(), next: None }
    }

    fn weak(name: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: State::Weak, text: text.into(), next: Some(next.into()) }
    }

    fn broken(name: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: State::Broken, text: text.into(), next: Some(next.into()) }
    }

    fn json(&self) -> Value {
        let state = match self.state {
            State::Good => "good",
            State::Weak => "weak",
            State::Broken => "broken",
        };
        json!({ "name": self.name, "state": state, "text": self.text, "next": self.next })
    }

    fn show(&self) {
        let mark = match self.state {
            State::Good => ink(Ink::Green, "ok  "),
            State::Weak => ink(Ink::Yellow, "weak"),
            State::Broken => ink(Ink::Red, "BAD "),
        };
        say!("{mark}  {:14} {}", self.name, harmless(&self.text));
        if let Some(next) = &self.next {
            say!("{:21}{}", "", ink(Ink::Dim, &harmless(next)));
        }
    }
}

/// The same as JSON, for whoever asks over HTTP.
pub(crate) fn report(settings: &Settings) -> Value {
    whole(&checks::all(settings))
}

fn whole(checks: &[Check]) -> Value {
    let broken = checks.iter().any(|check| check.state == State::Broken);
    let list: Vec<_> = checks.iter().map(Check::json).collect();
    json!({ "version": env!("CARGO_PKG_VERSION"), "works": !broken, "checks": list })
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let settings = self.choice.settings_quietly(Vec::new())?;
        let checks = checks::all(&settings);
        let broken = checks.iter().any(|check| check.state == State::Broken);
        if self.json {
            say!("{:#}", whole(&checks));
        } else {
            checks.iter().for_each(Check::show);
        }
        Ok(if broken { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}
