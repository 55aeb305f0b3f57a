//! `helve forge plan`: the captain asks, drafts in memory, and writes the plan.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    process::ExitCode,
    sync::Arc,
};

use helve_agent::{Agent, Event, Need, Workshop as _, forge::Home, prompt};
use helve_contract::ports::Expect;
use helve_tools::artifacts::{Phase, Room, RunState, RunStatus, name};

use super::{Choice, home, visitor};
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
pub(super) struct Args {
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

impl Args {
    pub(super) fn run(self) -> Outcome {
        let settings = self.choice.settings_quietly(self.limits.flags())?;
        let home = home(&settings)?;
        let run = self.run.clone().unwrap_or_else(|| free(&home));
        name("run", &run)?;
        let runtime = setup::runtime()?;
        let bench = Bench::new(settings, &helve_dialects::forge(), &runtime)?;
        runtime.block_on(async {
            bench.find_model(None).await?;
            let agent = captain(&bench, &home, &run).await?;
            let visitor = visitor(&home, &run);
            let room = Room::of(&visitor)?;
            begin(&room, &home, &run).await?;
            let mut words = match self.prompt {
                Some(prompt) => Some(prompt),
                None => heard()?,
            };
            while let Some(said) = words {
                agent.say(&said).await?;
                say!("");
                words = if io::stdin().is_terminal() { heard()? } else { None };
            }
            finish(&room, &run).await?;
            setup::end_servers(bench.servers()).await;
            Ok::<_, Fault>(())
        })?;
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }
}

/// A name that no run has.
fn free(home: &Home) -> String {
    let taken = home.runs();
    (1..=taken.len() + 1).map(|number| format!("plan-{number}")).find(|name| !taken.contains(name)).unwrap_or_default()
}

async fn captain(bench: &Arc<Bench>, home: &Home, run: &str) -> Result<Agent, Fault> {
    let need = Need {
        id: format!("{run}-captain"),
        dialect: Some("forge".into()),
        agent: Some("captain".into()),
        role: Some("captain".into()),
        workspace: Some(home.repo().to_owned()),
        errand: Some(home.errand(run, "")),
        record: Some(home.events(run)?),
        ..Need::default()
    };
    let (engine, session) = bench.equip(&need)?;
    let mut agent = Agent::new(engine, session, bench.model(None)?);
    agent.system = prompt::system(&agent.engine, &agent.session, CAPTAIN).await;
    agent.budget = bench.budget();
    agent.watcher = Arc::new(|event: &Event| match event {
        Event::Text(text) => print::bytes(print::harmless(text).as_bytes()),
        Event::Calling { name, .. } => remark!("  {name}"),
        _ => {}
    });
    Ok(agent)
}

/// What the user types; none at the end.
fn heard() -> Result<Option<String>, Fault> {
    if io::stdin().is_terminal() {
        print!("> ");
        io::stdout().flush()?;
    }
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0 && !line.trim().is_empty()).then(|| line.trim().to_owned()))
}

async fn begin(room: &Room<'_>, home: &Home, run: &str) -> Result<(), Fault> {
    room.still_planning().await?;
    if room.state().await?.is_none() {
        let state = RunState::planned(run, &home.repo().display().to_string(), helve_contract::jiff::Timestamp::now());
        room.keep_record("run-state.json", &state, Expect::Absent).await?;
    }
    Ok(())
}

/// Says what there is now.
async fn finish(room: &Room<'_>, run: &str) -> Result<(), Fault> {
    if room.bytes("dag.json").await?.is_none() {
        say!("{run} has no graph yet; go on with: helve forge plan --run {run}");
        return Ok(());
    }
    let dag = room.dag().await?;
    let (tasks, refineries) = dag.counts();
    room.revise(
        "run-state.json",
        || Err(helve_contract::Error::failed("the run has lost its state")),
        |state: &mut RunState| {
            (state.status, state.current_phase) = (RunStatus::PlanReview, Phase::PlanReview);
            state.total_tasks = dag.nodes.len();
            Ok(())
        },
    )
    .await?;
    say!(
        "{run}: {tasks} tasks and {refineries} refineries; look at .forge/artifacts/{run}, then: helve forge run {run}"
    );
    Ok(())
}
