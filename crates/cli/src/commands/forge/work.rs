//! `helve forge run`: executes a plan until all is merged, or somebody must decide.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use helve_agent::forge::{Diary, Executor, Home, Run, Settings as Executing, Summary};
use helve_contract::{CancellationToken, Error, Tool as _, events::ArtifactKind, ids};
use helve_tools::artifacts::{CreateSpec, CreateTask, Room, RunStatus, SetDag};

use super::{Choice, home, known, visitor};
use crate::{
    commands::run::Limits,
    fault::{FAILED, Fault, Outcome},
    remark, say, setup,
    workshop::Bench,
};

/// The exit code of a run that waits for a person.
const WAITS: u8 = 3;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run, or a folder with a plan.
    #[arg(value_name = "RUN|FOLDER")]
    what: String,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    limits: Limits,
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
pub(crate) fn stop_file(home: &Home, run: &Run) -> Result<PathBuf, Fault> {
    Ok(home.events(run)?.with_file_name("stop"))
}

/// How a run is executed.
pub(crate) struct How {
    /// The branch that everything ends in; `None`: the one that is checked out.
    pub(crate) base: Option<String>,
    /// Agents at once.
    pub(crate) parallel: usize,
    /// How long an agent may be silent.
    pub(crate) stale_after: Duration,
    /// Change requests wait for a person, and not for the captain.
    pub(crate) ask_about_changes: bool,
}

impl Default for How {
    fn default() -> Self {
        let usual = Executing::default();
        Self {
            base: None,
            parallel: usual.parallel,
            stale_after: usual.stale_after,
            ask_about_changes: usual.ask_about_changes,
        }
    }
}

/// Why a run could not be taken up.
pub(crate) enum Untaken {
    /// Another executor works in this repository; the text says which.
    Busy(String),
    /// Something else is in the way.
    Fault(Fault),
}

impl From<Untaken> for Fault {
    fn from(untaken: Untaken) -> Self {
        match untaken {
            Untaken::Busy(text) => Self::failed(text),
            Untaken::Fault(fault) => fault,
        }
    }
}

/// Takes a run up in this process: from here on nobody else can execute in the repository. The bench must have found its
/// model. What comes back does nothing before it is given to [`execute`].
pub(crate) fn take_up(bench: &Arc<Bench>, home: &Home, run: &Run, how: &How) -> Result<Executor, Untaken> {
    let base = how.base.clone().map_or_else(|| checked_out(home.repo()), Ok).map_err(Untaken::Fault)?;
    let executing = Executing {
        parallel: how.parallel.clamp(1, 16),
        stale_after: how.stale_after.max(Duration::from_secs(1)),
        heartbeat: (how.stale_after / 2).clamp(Duration::from_secs(1), Duration::from_secs(30)),
        budget: bench.budget(),
        model: bench.endpoint().map(|it| it.model.clone()).unwrap_or_default(),
        ask_about_changes: how.ask_about_changes,
        ..Executing::default()
    };
    let executor = Executor::open(bench.clone(), home.clone(), run, &base, executing).map_err(|error| match error {
        Error::Denied(text) => Untaken::Busy(text),
        error => Untaken::Fault(error.into()),
    })?;
    // Whoever asked an earlier executor to stop did not mean this one.
    _ = fs::remove_file(stop_file(home, run).map_err(Untaken::Fault)?);
    Ok(executor)
}

/// Executes a run until all is merged, or somebody must decide. It ends early when `cancel` is cancelled, and when
/// `helve forge cancel` asks for it; its agents get a moment to end.
pub(crate) async fn execute(executor: &Executor, cancel: &CancellationToken) -> Result<Summary, Fault> {
    let stop = stop_file(executor.home(), executor.planned_run())?;
    let watch = async {
        while !stop.exists() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        cancel.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        summary = executor.run(cancel) => Ok(summary?),
        () = watch => Err(Fault::failed("the run was not waited for")),
    }
}

impl Args {
    pub(super) fn run(self) -> Outcome {
        let settings = self.choice.settings_quietly(self.limits.flags())?;
        let home = home(&settings)?;
        let runtime = setup::runtime()?;
        let run = match Path::new(&self.what) {
            folder if folder.join("dag.json").is_file() => runtime.block_on(imported(&home, folder))?,
            _ => known(&home, &self.what)?,
        };
        let how = How {
            base: self.base,
            parallel: self.parallel,
            stale_after: Duration::from_secs(self.stale_after),
            ask_about_changes: self.ask_about_changes,
        };
        let bench = Bench::new(settings, &helve_dialects::forge(), &runtime)?;
        let summary = runtime.block_on(async {
            bench.find_model(None).await?;
            let executor = take_up(&bench, &home, &run, &how)?;
            say!("executing {0}; watch it with: helve forge watch {0}", run.label);
            let cancel = CancellationToken::new();
            let asked = async {
                tokio::select! {
                    () = setup::asked_to_stop() => cancel.cancel(),
                    () = cancel.cancelled() => {}
                }
                remark!("stopping; agents get a moment to end");
                setup::asked_to_stop().await;
            };
            let summary = tokio::select! {
                summary = execute(&executor, &cancel) => summary?,
                // Whoever asks twice does not want to wait.
                () = asked => std::process::exit(130),
            };
            setup::end_servers(bench.servers()).await;
            Ok::<_, Fault>(summary)
        })?;
        runtime.shutdown_background();
        Ok(told(&run.label, &summary))
    }
}

/// Says how it ended.
fn told(run: &str, summary: &Summary) -> ExitCode {
    say!("{run}: {}, {} of {} merged", summary.status, summary.merged, summary.total);
    for text in &summary.remarks {
        say!("{text}");
    }
    for task in &summary.exhausted {
        say!("{task} has used all of its attempts; see: helve forge status {run}");
    }
    for request in &summary.waiting {
        say!("{request} waits for you: helve forge approve {run} {request}");
    }
    match summary.status {
        RunStatus::Completed => ExitCode::SUCCESS,
        RunStatus::Paused => ExitCode::from(WAITS),
        _ => ExitCode::from(FAILED),
    }
}

/// The branch that is checked out.
fn checked_out(repo: &Path) -> Result<String, Fault> {
    let head = fs::read_to_string(repo.join(".git/HEAD")).unwrap_or_default();
    let branch = head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned);
    branch.ok_or_else(|| Fault::usage("no branch is checked out here; name one with --base"))
}

/// A plan from a folder becomes a run: checked as if its captain had written it.
async fn imported(home: &Home, folder: &Path) -> Result<Run, Fault> {
    let text = fs::read_to_string(folder.join("dag.json"))?;
    let mut dag: serde_json::Map<_, _> =
        serde_json::from_str(&text).map_err(|error| Fault::usage(format!("dag.json does not parse: {error}")))?;
    let named = folder.canonicalize()?.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    // The id of a run says nothing here: the plan becomes a run of its own.
    let label = dag.get("runId").and_then(|it| it.as_str()).filter(|it| !ids::is_id(it)).map_or(named, str::to_owned);
    dag.remove("runId");
    helve_tools::artifacts::name("run", &label)?;
    let run = match home.runs().into_iter().find(|it| it.label == label) {
        Some(run) => run,
        None => super::plan::created(home, &label)?,
    };
    let call = visitor(home, &run);
    // An import that was cut off is done again; its last step is the graph.
    let room = Room::of(&call)?;
    if room.bytes("dag.json").await?.is_some() {
        return Ok(run);
    }
    call.errand()?.artifacts.claim().await?;
    let diary = Diary::open(home, &run)?;
    for (kind, path) in documents(folder)? {
        let content = fs::read_to_string(&path)?;
        let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let kept = match kind {
            ArtifactKind::Spec => CreateSpec { filename: name.clone(), content }.run(&call).await,
            _ => {
                let task_id = name.strip_suffix(".md").unwrap_or(&name).to_owned();
                CreateTask { task_id, content }.run(&call).await
            }
        };
        let kept = kept.map_err(|error| Fault::failed(format!("{}: {error}", path.display())))?;
        diary.written(kept["path"].as_str().unwrap_or_default(), kind);
    }
    let kept = SetDag { dag }.run(&call).await?;
    diary.written(kept["path"].as_str().unwrap_or_default(), ArtifactKind::Dag);
    super::plan::finalized(&room, home, &run).await?;
    call.errand()?.artifacts.release().await?;
    Ok(run)
}

/// The documents of a plan in a folder.
fn documents(folder: &Path) -> Result<Vec<(ArtifactKind, PathBuf)>, Fault> {
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
