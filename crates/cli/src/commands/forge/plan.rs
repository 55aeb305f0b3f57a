//! `helve forge plan`: the captain asks, drafts in memory, and writes the plan.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use helve_agent::{
    Agent, Event, Need, Workshop as _,
    forge::{Diary, Home, Run},
    prompt,
};
use helve_contract::{Errand, Session, ids, ports::ExpectedVersion};
use helve_hosts::memory::Memory;
use helve_tools::artifacts::{Phase, Room, RunState, RunStatus, name};

use tokio::sync::Notify;

use super::{Choice, draft, home, known, visitor};
use crate::{
    commands::run::Limits,
    fault::{Fault, Outcome},
    print, remark, say, setup,
    workshop::Bench,
};

const CAPTAIN: &str = "You are the captain: you plan work that other agents will do. Ask the user what is not clear, a few \
    questions at a time, as plain text. Look at the repository with read and bash; draft in memory with the plan tools. When \
    the work is clear, write specs with create_spec, one document per task with create_task, and at last the whole graph \
    with set_dag. Tasks of one phase must not touch the same files; a refinery after each phase merges them. You change \
    nothing in the repository yourself.";

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// What is to be done; more can be said when the captain asks.
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    limits: Limits,
    /// The name of the run; `plan-1` and so on when left out. An existing one is planned further.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Write out what the captain of a run drafted in memory.
    #[command(after_help = "Example:\n  helve forge plan export plan-1 ./draft")]
    Export(draft::Export),
}

impl Args {
    pub(super) fn run(self) -> Outcome {
        if let Some(Other::Export(export)) = self.other {
            return export.run();
        }
        let settings = self.choice.settings_quietly(self.limits.flags())?;
        let home = home(&settings)?;
        if let Some(text) = &self.run {
            name("run", text)?;
        }
        let runtime = setup::runtime()?;
        let bench = Bench::new(settings, &helve_dialects::forge(), &runtime)?;
        runtime.block_on(async {
            bench.find_model(None).await?;
            let run = match &self.run {
                Some(text) => wanted(&home, text)?,
                None => home.create_next()?,
            };
            let visitor = visitor(&home, &run);
            let (room, errand) = (Room::of(&visitor)?, visitor.errand()?);
            // Two captains of one run would overwrite each other's plan.
            errand.artifacts.claim().await?;
            begin(&room, &home, &run).await?;
            let captain = Captain::called(&bench, &home, &run, errand).await?;
            draft::load(&room, &captain.memory).await?;
            let mut kept = Vec::new();
            let mut words = match self.prompt {
                Some(prompt) => Some(prompt),
                None => heard()?,
            };
            while let Some(said) = words {
                captain.say(&said, &room, &mut kept).await?;
                say!("");
                words = if io::stdin().is_terminal() { heard()? } else { None };
            }
            finish(&room, &home, &run).await?;
            errand.artifacts.release().await?;
            setup::end_servers(bench.servers()).await;
            Ok::<_, Fault>(())
        })?;
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }
}

/// The run that a text names, or a new one with this label.
fn wanted(home: &Home, text: &str) -> Result<Run, Fault> {
    if home.runs().iter().any(|it| it.label == text) || ids::is_id(text) {
        return known(home, text);
    }
    created(home, text)
}

/// A new run with this label.
pub(super) fn created(home: &Home, label: &str) -> Result<Run, Fault> {
    home.create(label).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Fault::usage(format!(
            "another user of this repository has a run with the label `{label}`; choose another one with --run"
        )),
        _ => error.into(),
    })
}

/// A captain, and what it drafts in.
struct Captain {
    agent: Agent,
    memory: Memory,
    /// Told when the draft may have changed.
    drafted: Arc<Notify>,
    /// The conversation as it was opened; what is made for it lasts as long as this.
    _seat: Arc<Session>,
}

impl Captain {
    async fn called(bench: &Arc<Bench>, home: &Home, run: &Run, errand: &Errand) -> Result<Self, Fault> {
        let need = Need {
            id: format!("{}-captain", run.id),
            label: Some(format!("{}-captain", run.label)),
            dialect: Some("forge".into()),
            agent: Some("captain".into()),
            role: Some("captain".into()),
            workspace: Some(home.repo().to_owned()),
            errand: Some(errand.clone()),
            record: Some(home.events(run)?),
            ..Need::default()
        };
        let (engine, seat) = bench.equip(&need)?;
        let memory = setup::drafting(bench.settings(), &seat);
        let mut session = seat.within(seat.workspace.clone());
        session.draft = Some(Arc::new(memory.session(&seat.id)));
        let mut agent = Agent::new(engine, Arc::new(session), bench.model(None)?);
        agent.system = prompt::system(&agent.engine, &agent.session, CAPTAIN).await;
        agent.budget = bench.budget();
        let (diary, drafted) = (Diary::open(home, run)?, Arc::new(Notify::new()));
        let changed = drafted.clone();
        agent.watcher = Arc::new(move |event: &Event| {
            diary.hear(event);
            match event {
                Event::Text(text) => print::bytes(print::harmless(text).as_bytes()),
                Event::Calling { name, .. } => remark!("  {name}"),
                Event::Called { name, .. } if name.starts_with("plan_") => changed.notify_one(),
                _ => {}
            }
        });
        Ok(Self { agent, memory, drafted, _seat: seat })
    }

    /// Says something to it. What it drafts is kept as it goes on, so that a crash loses one call at most.
    async fn say(&self, words: &str, room: &Room<'_>, kept: &mut Vec<u8>) -> Result<(), Fault> {
        let saying = self.agent.say(words);
        tokio::pin!(saying);
        loop {
            tokio::select! {
                said = &mut saying => {
                    said?;
                    break;
                }
                () = self.drafted.notified() => self.keep(room, kept).await,
            }
        }
        self.keep(room, kept).await;
        Ok(())
    }

    /// A draft that cannot be kept stops nobody; it is said.
    async fn keep(&self, room: &Room<'_>, kept: &mut Vec<u8>) {
        if let Err(fault) = draft::save(room, &self.memory, kept).await {
            remark!("{fault}");
        }
    }
}

/// What the user types; none at the end.
fn heard() -> Result<Option<String>, Fault> {
    if io::stdin().is_terminal() {
        print::bytes(b"> ");
    }
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0 && !line.trim().is_empty()).then(|| line.trim().to_owned()))
}

async fn begin(room: &Room<'_>, home: &Home, run: &Run) -> Result<(), Fault> {
    room.still_planning().await?;
    if room.state().await?.is_none() {
        room.keep_record("run-state.json", &planned(home, run), ExpectedVersion::Absent).await?;
    }
    Ok(())
}

/// Says what there is now.
async fn finish(room: &Room<'_>, home: &Home, run: &Run) -> Result<(), Fault> {
    if room.bytes("dag.json").await?.is_none() {
        say!("{0} has no graph yet; go on with: helve forge plan --run {0}", run.label);
        return Ok(());
    }
    let (tasks, refineries) = finalized(room, home, run).await?;
    let run = &run.label;
    say!(
        "{run}: {tasks} tasks and {refineries} refineries; look at .forge/artifacts/{run}, then: helve forge run {run}"
    );
    Ok(())
}

/// The plan is whole and waits for a person: notes it, and says how many tasks and refineries there are.
pub(super) async fn finalized(room: &Room<'_>, home: &Home, run: &Run) -> Result<(usize, usize), Fault> {
    let dag = room.dag().await?;
    let (tasks, refineries) = dag.counts();
    Diary::open(home, run)?.finalized(tasks, refineries, room.names("specs").await?.len());
    let last = home.last_event(run);
    let planned = || Ok(planned(home, run));
    room.revise("run-state.json", planned, |state: &mut RunState| {
        (state.status, state.current_phase) = (RunStatus::PlanReview, Phase::PlanReview);
        state.total_tasks = dag.nodes.len();
        if let Some((id, seq)) = &last {
            (state.last_event_id, state.last_event_seq) = (id.clone(), *seq);
        }
        Ok(())
    })
    .await?;
    Ok((tasks, refineries))
}

fn planned(home: &Home, run: &Run) -> RunState {
    RunState::planned(&run.id, &home.repo().display().to_string(), helve_contract::jiff::Timestamp::now())
}
