//! `helve forge`: plans of many tasks, executed by agents on branches of a git repository.

mod draft;
mod draw;
pub(crate) mod look;
mod plan;
mod work;

use std::{process::ExitCode, sync::Arc};

use clap::Subcommand;
use helve_agent::forge::{ForgeDir, Run};
use helve_contract::{
    Call, PathRules, PathStyle, Ports, Session, Workspace,
    ids::{self, Named},
};
use helve_tools::artifacts::{CallArtifacts, ChangeRequest, ChangeRequestStatus};

// For other modules that show and execute planned runs.
pub(crate) use work::{ClaimError, RunOptions, claim_run, execute, stop_file};

use super::SettingsArgs;
use crate::{
    config::Settings,
    fault::{CliError, CommandResult},
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
    what: ForgeCommand,
}

#[derive(Subcommand)]
enum ForgeCommand {
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
    Status(look::StatusArgs),
    /// Show a run's tasks again and again until it rests.
    #[command(after_help = "Example:\n  helve forge watch plan-1")]
    Watch(look::StatusArgs),
    /// Let a change request into the plan: the captain is asked what to add.
    #[command(after_help = "Example:\n  helve forge approve plan-1 cr-001")]
    Approve(DecideArgs),
    /// Turn a change request down.
    #[command(after_help = "Example:\n  helve forge reject plan-1 cr-001")]
    Reject(DecideArgs),
    /// Stop the executor of a run; its agents end, and it can be taken up again.
    #[command(after_help = "Example:\n  helve forge cancel plan-1")]
    Cancel(RunIdArgs),
}

#[derive(clap::Args)]
struct DecideArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    run: String,
    /// The change request.
    #[arg(value_name = "CR")]
    request: String,
    #[command(flatten)]
    choice: SettingsArgs,
}

#[derive(clap::Args)]
struct RunIdArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    choice: SettingsArgs,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.what {
            ForgeCommand::Plan(args) => args.run(),
            ForgeCommand::Run(args) => args.run(),
            ForgeCommand::Status(args) => args.status(),
            ForgeCommand::Watch(args) => args.watch(),
            ForgeCommand::Approve(args) => args.decide(ChangeRequestStatus::Approved),
            ForgeCommand::Reject(args) => args.decide(ChangeRequestStatus::Rejected),
            ForgeCommand::Cancel(args) => args.cancel(),
        }
    }
}

impl DecideArgs {
    fn decide(self, to: ChangeRequestStatus) -> CommandResult {
        let home = forge_dir(&self.choice.load_and_warn()?)?;
        let call = artifacts_call(&home, &require_run(&home, &self.run)?);
        setup::runtime()?.block_on(async {
            helve_tools::artifacts::check_file_name("change request", &self.request)?;
            let room = CallArtifacts::for_call(&call)?;
            ChangeRequest::transition(&room, &self.request, to).await?;
            say!("{} is {}; go on with: helve forge run {}", self.request, status_name(to), self.run);
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl RunIdArgs {
    fn cancel(self) -> CommandResult {
        let home = forge_dir(&self.choice.load_and_warn()?)?;
        let run = require_run(&home, &self.run)?;
        std::fs::write(stop_file(&home, &run)?, "")?;
        say!("the executor of {} will stop its agents and end", run.label);
        Ok(ExitCode::SUCCESS)
    }
}

fn status_name(status: ChangeRequestStatus) -> &'static str {
    match status {
        ChangeRequestStatus::Pending => "pending",
        ChangeRequestStatus::Approved => "approved",
        ChangeRequestStatus::Rejected => "rejected",
        ChangeRequestStatus::Applied => "applied",
    }
}

/// The runs of the repository that is the workspace.
pub(crate) fn forge_dir(settings: &Settings) -> Result<ForgeDir, CliError> {
    if !settings.workspace.join(".git").is_dir() {
        return Err(CliError::usage(format!(
            "{} is not the top of a git repository; go to one, or make one with `git init` and a first commit",
            settings.workspace.display()
        )));
    }
    Ok(ForgeDir::open(&settings.workspace, &settings.config.store.tenant, &setup::user(settings))?)
}

/// An existing run, by its label, its id, or a prefix or suffix of the id.
pub(crate) fn require_run(home: &ForgeDir, run: &str) -> Result<Run, CliError> {
    let runs = home.runs();
    match ids::find(run, runs.iter().map(|it| (it.id.as_str(), Some(it.label.as_str()), it))) {
        Named::One(run) => return Ok(run.clone()),
        Named::Several => {
            return Err(CliError::usage(format!(
                "several runs have an id that begins or ends with `{run}`; write more of it, or the label"
            )));
        }
        Named::Nothing => {}
    }
    let labels: Vec<_> = runs.iter().map(|it| it.label.as_str()).collect();
    let there =
        if labels.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", labels.join(", ")) };
    Err(CliError::usage(format!("there is no run `{run}`; {there}")))
}

/// A call that reads a run's artifacts and has no other ports.
pub(crate) fn artifacts_call(home: &ForgeDir, run: &Run) -> Call {
    let nothing = Workspace::new([], PathRules::default(), PathStyle::Absolute);
    let mut session = Session::new("forge", nothing, Ports::new(Arc::new(helve_hosts::LocalHost::new())));
    session.task = Some(home.task_context(run, ""));
    Call::new("forge", Arc::new(session))
}
