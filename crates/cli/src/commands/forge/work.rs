//! `helve forge run`: executes a plan until everything is merged or a person must decide.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use helve_agent::forge::{CaptainLog, Executor, ExecutorConfig as Executing, ForgeDir, Run, RunSummary};
use helve_contract::{CancellationToken, Error, Tool as _, events::ArtifactKind, ids};
use helve_tools::artifacts::{CallArtifacts, CreateSpec, CreateTask, SetDag, StoredRunStatus};

use super::{SettingsArgs, artifacts_call, forge_dir, require_run};
use crate::{
    commands::run::ModelArgs,
    fault::{CliError, CommandResult, EXIT_FAILURE},
    remark, say, setup,
    workshop::HelveRuntime,
};

/// The exit code of a run that waits for a person.
const EXIT_WAITING: u8 = 3;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run, or a folder with a plan.
    #[arg(value_name = "RUN|FOLDER")]
    what: String,
    #[command(flatten)]
    choice: SettingsArgs,
    #[command(flatten)]
    limits: ModelArgs,
    /// The branch that everything ends in; the one that is checked out when left out.
    #[arg(long, value_name = "BRANCH")]
    base: Option<String>,
    /// Agents at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    parallel: usize,
    /// Seconds that an agent may be silent.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    stale_after: u64,
    /// Change requests wait for `helve forge approve` instead of the captain.
    #[arg(long)]
    ask_about_changes: bool,
}

/// The file whose presence stops a run's executor.
pub(crate) fn stop_file(home: &ForgeDir, run: &Run) -> Result<PathBuf, CliError> {
    Ok(home.event_file(run)?.with_file_name("stop"))
}

/// How a run is executed.
pub(crate) struct RunOptions {
    /// The branch that everything ends in; `None`: the one that is checked out.
    pub(crate) base: Option<String>,
    /// Agents at once.
    pub(crate) max_agents: usize,
    /// How long an agent may be silent.
    pub(crate) stale_after: Duration,
    /// Change requests wait for a person, and not for the captain.
    pub(crate) ask_about_changes: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        let usual = Executing::default();
        Self {
            base: None,
            max_agents: usual.max_agents,
            stale_after: usual.stale_after,
            ask_about_changes: usual.ask_about_changes,
        }
    }
}

/// Why a run could not be claimed.
pub(crate) enum ClaimError {
    /// Another executor works in this repository; the text says which.
    Busy(String),
    /// Something else is in the way.
    Other(CliError),
}

impl From<ClaimError> for CliError {
    fn from(untaken: ClaimError) -> Self {
        match untaken {
            ClaimError::Busy(text) => Self::failed(text),
            ClaimError::Other(fault) => fault,
        }
    }
}

/// Claims a run for this process: nobody else can then execute in the repository. The workshop must have resolved its
/// model. The result does nothing until it is passed to [`execute`].
pub(crate) fn claim_run(
    bench: &Arc<HelveRuntime>,
    home: &ForgeDir,
    run: &Run,
    how: &RunOptions,
) -> Result<Executor, ClaimError> {
    let base = how.base.clone().map_or_else(|| current_branch(home.repo()), Ok).map_err(ClaimError::Other)?;
    let executing = Executing {
        max_agents: how.max_agents.clamp(1, 16),
        stale_after: how.stale_after.max(Duration::from_secs(1)),
        heartbeat: (how.stale_after / 2).clamp(Duration::from_secs(1), Duration::from_secs(30)),
        budget: bench.budget(),
        model: bench.endpoint().map(|it| it.model.clone()).unwrap_or_default(),
        ask_about_changes: how.ask_about_changes,
        ..Executing::default()
    };
    let executor = Executor::open(bench.clone(), home.clone(), run, &base, executing).map_err(|error| match error {
        Error::Denied(text) => ClaimError::Busy(text),
        error => ClaimError::Other(error.into()),
    })?;
    // A stop request for an earlier executor does not apply to this one.
    _ = fs::remove_file(stop_file(home, run).map_err(ClaimError::Other)?);
    Ok(executor)
}

/// Executes a run until everything is merged or a person must decide. Ends early when `cancel` is cancelled or `helve
/// forge cancel` requests it; agents then get some time to end.
pub(crate) async fn execute(executor: &Executor, cancel: &CancellationToken) -> Result<RunSummary, CliError> {
    let stop = stop_file(executor.forge_dir(), executor.planned_run())?;
    let watch = async {
        while !stop.exists() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        cancel.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        summary = executor.run(cancel) => Ok(summary?),
        () = watch => Err(CliError::failed("the run was not waited for")),
    }
}

impl Args {
    pub(super) fn run(self) -> CommandResult {
        let settings = self.choice.load(self.limits.overrides())?;
        let home = forge_dir(&settings)?;
        let runtime = setup::runtime()?;
        let run = match Path::new(&self.what) {
            folder if folder.join("dag.json").is_file() => runtime.block_on(import_plan(&home, folder))?,
            _ => require_run(&home, &self.what)?,
        };
        let how = RunOptions {
            base: self.base,
            max_agents: self.parallel,
            stale_after: Duration::from_secs(self.stale_after),
            ask_about_changes: self.ask_about_changes,
        };
        let bench = HelveRuntime::new(settings, &helve_dialects::forge(), &runtime)?;
        let summary = runtime.block_on(async {
            bench.resolve_model(None).await?;
            let executor = claim_run(&bench, &home, &run, &how)?;
            say!("executing {0}; watch it with: helve forge watch {0}", run.label);
            let cancel = CancellationToken::new();
            let asked = async {
                tokio::select! {
                    () = setup::wait_for_shutdown_signal() => cancel.cancel(),
                    () = cancel.cancelled() => {}
                }
                remark!("stopping; agents get a moment to end");
                setup::wait_for_shutdown_signal().await;
            };
            let summary = tokio::select! {
                summary = execute(&executor, &cancel) => summary?,
                // A second interrupt means: do not wait.
                () = asked => std::process::exit(130),
            };
            setup::shutdown_servers(bench.servers()).await;
            Ok::<_, CliError>(summary)
        })?;
        runtime.shutdown_background();
        Ok(print_summary(&run.label, &summary))
    }
}

/// Says how it ended.
fn print_summary(run: &str, summary: &RunSummary) -> ExitCode {
    say!("{run}: {}, {} of {} merged", summary.status, summary.merged, summary.total);
    for text in &summary.notes {
        say!("{text}");
    }
    for task in &summary.exhausted {
        say!("{task} has used all of its attempts; see: helve forge status {run}");
    }
    for request in &summary.pending_requests {
        say!("{request} waits for you: helve forge approve {run} {request}");
    }
    match summary.status {
        StoredRunStatus::Completed => ExitCode::SUCCESS,
        StoredRunStatus::Paused => ExitCode::from(EXIT_WAITING),
        _ => ExitCode::from(EXIT_FAILURE),
    }
}

/// The branch that is checked out.
fn current_branch(repo: &Path) -> Result<String, CliError> {
    let head = fs::read_to_string(repo.join(".git/HEAD")).unwrap_or_default();
    let branch = head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned);
    branch.ok_or_else(|| CliError::usage("no branch is checked out here; name one with --base"))
}

/// Imports a plan from a directory as a run, with the same checks as for a captain.
async fn import_plan(home: &ForgeDir, folder: &Path) -> Result<Run, CliError> {
    let text = fs::read_to_string(folder.join("dag.json"))?;
    let mut dag: serde_json::Map<_, _> =
        serde_json::from_str(&text).map_err(|error| CliError::usage(format!("dag.json does not parse: {error}")))?;
    let named = folder.canonicalize()?.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    // The id of the old run has no meaning here: the plan becomes a new run.
    let label = dag.get("runId").and_then(|it| it.as_str()).filter(|it| !ids::is_id(it)).map_or(named, str::to_owned);
    dag.remove("runId");
    helve_tools::artifacts::check_file_name("run", &label)?;
    let run = match home.runs().into_iter().find(|it| it.label == label) {
        Some(run) => run,
        None => super::plan::created(home, &label)?,
    };
    let call = artifacts_call(home, &run);
    // An interrupted import is repeated; its last step writes the graph.
    let room = CallArtifacts::for_call(&call)?;
    if room.read_bytes("dag.json").await?.is_some() {
        return Ok(run);
    }
    call.task_context()?.artifacts.claim().await?;
    let diary = CaptainLog::open(home, &run)?;
    for (kind, path) in plan_documents(folder)? {
        let content = fs::read_to_string(&path)?;
        let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let kept = match kind {
            ArtifactKind::Spec => CreateSpec { filename: name.clone(), content }.run(&call).await,
            _ => {
                let task_id = name.strip_suffix(".md").unwrap_or(&name).to_owned();
                CreateTask { task_id, content }.run(&call).await
            }
        };
        let kept = kept.map_err(|error| CliError::failed(format!("{}: {error}", path.display())))?;
        diary.artifact_written(kept["path"].as_str().unwrap_or_default(), kind);
    }
    let kept = SetDag { dag }.run(&call).await?;
    diary.artifact_written(kept["path"].as_str().unwrap_or_default(), ArtifactKind::Dag);
    super::plan::finalize_plan(&room, home, &run).await?;
    call.task_context()?.artifacts.release().await?;
    Ok(run)
}

/// The documents of a plan in a directory.
fn plan_documents(folder: &Path) -> Result<Vec<(ArtifactKind, PathBuf)>, CliError> {
    let mut found = Vec::new();
    for (kind, name) in [(ArtifactKind::Spec, "specs"), (ArtifactKind::Task, "tasks")] {
        let dir = folder.join(name);
        if dir.is_dir() {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_file() {
                    found.push((kind, path));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}
