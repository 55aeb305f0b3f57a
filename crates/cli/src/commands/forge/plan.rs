//! `helve forge plan`: the captain asks questions, drafts in memory, and writes the plan.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use helve_agent::{
    Agent, AgentEvent, SessionFactory as _, SessionSpec,
    forge::{CaptainLog, ForgeDir, Run},
    prompt,
};
use helve_contract::{Session, TaskContext, ids, ports::ExpectedVersion};
use helve_hosts::memory::MemoryHost;
use helve_tools::artifacts::{CallArtifacts, RunPhase, RunState, StoredRunStatus, check_file_name};

use tokio::sync::Notify;

use super::{SettingsArgs, artifacts_call, draft, forge_dir, require_run};
use crate::{
    commands::run::ModelArgs,
    fault::{CliError, CommandResult},
    print, remark, say, setup,
    workshop::HelveRuntime,
};

const CAPTAIN_PROMPT: &str = "You are the captain: you plan work that other agents will do. Ask the user what is not clear, a few \
    questions at a time, as plain text. Look at the repository with read and bash; draft in memory with the plan tools. When \
    the work is clear, write specs with create_spec, one document per task with create_task, and at last the whole graph \
    with set_dag. Tasks of one phase must not touch the same files; a refinery after each phase merges them. You change \
    nothing in the repository yourself.";

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Args {
    #[command(subcommand)]
    other: Option<PlanCommand>,
    /// What is to be done; more can be said when the captain asks.
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    #[command(flatten)]
    choice: SettingsArgs,
    #[command(flatten)]
    limits: ModelArgs,
    /// The name of the run; `plan-1` and so on when left out. An existing one is planned further.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
}

#[derive(clap::Subcommand)]
enum PlanCommand {
    /// Write out what the captain of a run drafted in memory.
    #[command(after_help = "Example:\n  helve forge plan export plan-1 ./draft")]
    Export(draft::Export),
}

impl Args {
    pub(super) fn run(self) -> CommandResult {
        if let Some(PlanCommand::Export(export)) = self.other {
            return export.run();
        }
        let settings = self.choice.load(self.limits.overrides())?;
        let home = forge_dir(&settings)?;
        if let Some(text) = &self.run {
            check_file_name("run", text)?;
        }
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::new(settings, &helve_dialects::forge(), &runtime)?;
        runtime.block_on(async {
            bench.resolve_model(None).await?;
            let run = match &self.run {
                Some(text) => wanted(&home, text)?,
                None => home.create_next()?,
            };
            let visitor = artifacts_call(&home, &run);
            let (room, errand) = (CallArtifacts::for_call(&visitor)?, visitor.task_context()?);
            // Two captains of one run would overwrite each other's plan.
            errand.artifacts.claim().await?;
            start_planning(&room, &home, &run).await?;
            let captain = CaptainSession::start(&bench, &home, &run, errand).await?;
            draft::load_draft(&room, &captain.memory).await?;
            let mut kept = Vec::new();
            let mut words = match self.prompt {
                Some(prompt) => Some(prompt),
                None => read_user_line()?,
            };
            while let Some(said) = words {
                captain.send(&said, &room, &mut kept).await?;
                say!("");
                words = if io::stdin().is_terminal() { read_user_line()? } else { None };
            }
            report_plan(&room, &home, &run).await?;
            errand.artifacts.release().await?;
            setup::shutdown_servers(bench.servers()).await;
            Ok::<_, CliError>(())
        })?;
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }
}

/// The run that a text names, or a new one with this label.
fn wanted(home: &ForgeDir, text: &str) -> Result<Run, CliError> {
    if home.runs().iter().any(|it| it.label == text) || ids::is_id(text) {
        return require_run(home, text);
    }
    created(home, text)
}

/// A new run with this label.
pub(super) fn created(home: &ForgeDir, label: &str) -> Result<Run, CliError> {
    home.create(label).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CliError::usage(format!(
            "another user of this repository has a run with the label `{label}`; choose another one with --run"
        )),
        _ => error.into(),
    })
}

/// A captain, and what it drafts in.
struct CaptainSession {
    agent: Agent,
    memory: MemoryHost,
    /// Notified when the draft may have changed.
    draft_changed: Arc<Notify>,
    /// The open session; dropping it releases its resources.
    _session: Arc<Session>,
}

impl CaptainSession {
    async fn start(
        bench: &Arc<HelveRuntime>,
        home: &ForgeDir,
        run: &Run,
        errand: &TaskContext,
    ) -> Result<Self, CliError> {
        let need = SessionSpec {
            id: format!("{}-captain", run.id),
            label: Some(format!("{}-captain", run.label)),
            dialect: Some("forge".into()),
            agent: Some("captain".into()),
            role: Some("captain".into()),
            workspace: Some(home.repo().to_owned()),
            task: Some(errand.clone()),
            event_file: Some(home.event_file(run)?),
            ..SessionSpec::default()
        };
        let (engine, seat) = bench.create_session(&need)?;
        let memory = setup::draft_host(bench.settings(), &seat);
        let mut session = seat.with_workspace(seat.workspace.clone());
        session.draft_session = Some(Arc::new(memory.session(&seat.id)));
        let mut agent = Agent::new(engine, Arc::new(session), bench.model(None)?);
        agent.system_prompt = prompt::system_prompt(&agent.engine, &agent.session, CAPTAIN_PROMPT).await;
        agent.budget = bench.budget();
        let (diary, drafted) = (CaptainLog::open(home, run)?, Arc::new(Notify::new()));
        let changed = drafted.clone();
        agent.listener = Arc::new(move |event: &AgentEvent| {
            diary.record(event);
            match event {
                AgentEvent::Text(text) => print::write_stdout(print::escape_for_terminal(text).as_bytes()),
                AgentEvent::ToolCallStarted { name, .. } => remark!("  {name}"),
                AgentEvent::ToolCallFinished { name, .. } if name.starts_with("plan_") => changed.notify_one(),
                _ => {}
            }
        });
        Ok(Self { agent, memory, draft_changed: drafted, _session: seat })
    }

    /// Sends it a message. The draft is stored after each call, so a crash loses at most one call.
    async fn send(&self, words: &str, room: &CallArtifacts<'_>, kept: &mut Vec<u8>) -> Result<(), CliError> {
        let saying = self.agent.send_text(words);
        tokio::pin!(saying);
        loop {
            tokio::select! {
                said = &mut saying => {
                    said?;
                    break;
                }
                () = self.draft_changed.notified() => self.save_draft(room, kept).await,
            }
        }
        self.save_draft(room, kept).await;
        Ok(())
    }

    /// A draft that cannot be stored is reported and does not stop the session.
    async fn save_draft(&self, room: &CallArtifacts<'_>, kept: &mut Vec<u8>) {
        if let Err(fault) = draft::save_draft(room, &self.memory, kept).await {
            remark!("{fault}");
        }
    }
}

/// What the user types; none at the end.
fn read_user_line() -> Result<Option<String>, CliError> {
    if io::stdin().is_terminal() {
        print::write_stdout(b"> ");
    }
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0 && !line.trim().is_empty()).then(|| line.trim().to_owned()))
}

async fn start_planning(room: &CallArtifacts<'_>, home: &ForgeDir, run: &Run) -> Result<(), CliError> {
    room.require_planning().await?;
    if room.state().await?.is_none() {
        room.write_record("run-state.json", &planned_state(home, run), ExpectedVersion::Absent).await?;
    }
    Ok(())
}

/// Says what there is now.
async fn report_plan(room: &CallArtifacts<'_>, home: &ForgeDir, run: &Run) -> Result<(), CliError> {
    if room.read_bytes("dag.json").await?.is_none() {
        say!("{0} has no graph yet; go on with: helve forge plan --run {0}", run.label);
        return Ok(());
    }
    let (tasks, refineries) = finalize_plan(room, home, run).await?;
    let run = &run.label;
    say!(
        "{run}: {tasks} tasks and {refineries} refineries; look at .forge/artifacts/{run}, then: helve forge run {run}"
    );
    Ok(())
}

/// Records that the plan is complete and waits for a person. Returns the number of tasks and refineries.
pub(super) async fn finalize_plan(
    room: &CallArtifacts<'_>,
    home: &ForgeDir,
    run: &Run,
) -> Result<(usize, usize), CliError> {
    let dag = room.dag().await?;
    let (tasks, refineries) = dag.counts();
    CaptainLog::open(home, run)?.plan_finalized(tasks, refineries, room.list_names("specs").await?.len());
    let last = home.last_event(run);
    let planned = || Ok(planned_state(home, run));
    room.update_record("run-state.json", planned, |state: &mut RunState| {
        (state.status, state.current_phase) = (StoredRunStatus::PlanReview, RunPhase::PlanReview);
        state.total_tasks = dag.nodes.len();
        if let Some((id, seq)) = &last {
            (state.last_event_id, state.last_event_seq) = (id.clone(), *seq);
        }
        Ok(())
    })
    .await?;
    Ok((tasks, refineries))
}

fn planned_state(home: &ForgeDir, run: &Run) -> RunState {
    RunState::new(&run.id, &home.repo().display().to_string(), helve_contract::jiff::Timestamp::now())
}
