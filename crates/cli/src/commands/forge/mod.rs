//! `helve forge`: plans of many tasks, executed by agents on branches of a git repository.

mod draft;
mod draw;
pub(crate) mod look;
mod plan;
mod work;

use std::{process::ExitCode, sync::Arc};

use clap::Subcommand;
use helve_agent::forge::{Home, Run};
use helve_contract::{
    Call, PathRules, Ports, Reading, Session, Workspace,
    ids::{self, Named},
};
use helve_tools::artifacts::{ChangeRequest, RequestStatus, Room};

// For those who show and run planned runs elsewhere.
pub(crate) use work::{How, Untaken, execute, stop_file, take_up};

use super::Choice;
use crate::{
    config::Settings,
    fault::{Fault, Outcome},
    say, setup,
};

/// Plan work for many agents, execute it on branches, watch it, decide what waits.
///
/// Everything of a run lies in `.forge` of the repository, which git does not see. A run that was killed goes on with
/// `helve forge run`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve forge plan \"split the parser into modules\"    the captain asks, plans, and writes the graph
  helve forge run plan-1                              execute it until all is merged
  helve forge status                                  every run, or one with all of its tasks
  helve forge approve plan-1 cr-001                   let a change request into the plan")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Talk with the captain until there is a plan.
    #[command(
        after_help = "Examples:\n  helve forge plan \"add a cache to the client\"\n  helve forge plan export plan-1 ./draft"
    )]
    Plan(plan::Args),
    /// Execute a run, or a folder with a plan (dag.json, tasks/, specs/).
    #[command(after_help = "Example:\n  helve forge run plan-1 --parallel 4")]
    Run(work::Args),
    /// Show runs, or the tasks of one.
    #[command(after_help = "Example:\n  helve forge status plan-1")]
    Status(look::Args),
    /// Show a run's tasks again and again until it rests.
    #[command(after_help = "Example:\n  helve forge watch plan-1")]
    Watch(look::Args),
    /// Let a change request into the plan: the captain is asked what to add.
    #[command(after_help = "Example:\n  helve forge approve plan-1 cr-001")]
    Approve(Decide),
    /// Turn a change request down.
    #[command(after_help = "Example:\n  helve forge reject plan-1 cr-001")]
    Reject(Decide),
    /// Stop the executor of a run; its agents end, and it can be taken up again.
    #[command(after_help = "Example:\n  helve forge cancel plan-1")]
    Cancel(One),
}

#[derive(clap::Args)]
struct Decide {
    /// The run.
    #[arg(value_name = "RUN")]
    run: String,
    /// The change request.
    #[arg(value_name = "CR")]
    request: String,
    #[command(flatten)]
    choice: Choice,
}

#[derive(clap::Args)]
struct One {
    /// The run.
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    choice: Choice,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self.what {
            What::Plan(args) => args.run(),
            What::Run(args) => args.run(),
            What::Status(args) => args.status(),
            What::Watch(args) => args.watch(),
            What::Approve(args) => args.decide(RequestStatus::Approved),
            What::Reject(args) => args.decide(RequestStatus::Rejected),
            What::Cancel(args) => args.cancel(),
        }
    }
}

impl Decide {
    fn decide(self, to: RequestStatus) -> Outcome {
        let home = home(&self.choice.settings()?)?;
        let call = visitor(&home, &known(&home, &self.run)?);
        setup::runtime()?.block_on(async {
            helve_tools::artifacts::name("change request", &self.request)?;
            let room = Room::of(&call)?;
            ChangeRequest::go(&room, &self.request, to).await?;
            say!("{} is {}; go on with: helve forge run {}", self.request, word(to), self.run);
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl One {
    fn cancel(self) -> Outcome {
        let home = home(&self.choice.settings()?)?;
        let run = known(&home, &self.run)?;
        std::fs::write(stop_file(&home, &run)?, "")?;
        say!("the executor of {} will stop its agents and end", run.label);
        Ok(ExitCode::SUCCESS)
    }
}

fn word(status: RequestStatus) -> &'static str {
    match status {
        RequestStatus::Pending => "pending",
        RequestStatus::Approved => "approved",
        RequestStatus::Rejected => "rejected",
        RequestStatus::Applied => "applied",
    }
}

/// The runs of the repository that is the workspace.
pub(crate) fn home(settings: &Settings) -> Result<Home, Fault> {
    if !settings.workspace.join(".git").is_dir() {
        return Err(Fault::usage(format!(
            "{} is not the top of a git repository; go to one, or make one with `git init` and a first commit",
            settings.workspace.display()
        )));
    }
    Ok(Home::of(&settings.workspace, &settings.config.store.tenant, &setup::user(settings))?)
}

/// A run that exists, by its label, its id, or the beginning or end of its id.
pub(crate) fn known(home: &Home, run: &str) -> Result<Run, Fault> {
    let runs = home.runs();
    match ids::find(run, runs.iter().map(|it| (it.id.as_str(), Some(it.label.as_str()), it))) {
        Named::One(run) => return Ok(run.clone()),
        Named::Several => {
            return Err(Fault::usage(format!(
                "several runs have an id that begins or ends with `{run}`; write more of it, or the label"
            )));
        }
        Named::Nothing => {}
    }
    let labels: Vec<_> = runs.iter().map(|it| it.label.as_str()).collect();
    let there =
        if labels.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", labels.join(", ")) };
    Err(Fault::usage(format!("there is no run `{run}`; {there}")))
}

/// A call that looks at a run's artifacts, and reaches nothing else.
pub(crate) fn visitor(home: &Home, run: &Run) -> Call {
    let nothing = Workspace::new([], PathRules::default(), Reading::Absolute);
    let mut session = Session::new("forge", nothing, Ports::new(Arc::new(helve_hosts::Local::new())));
    session.errand = Some(home.errand(run, ""));
    Call::new("forge", Arc::new(session))
}
