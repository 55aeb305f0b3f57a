//! `helve schedule`: lists, runs, pauses and resumes schedules, and runs the scheduler.

use std::{
    io::{self, BufRead, Read},
    process::ExitCode,
    sync::Arc,
};

use clap::Subcommand;
use helve_agent::scheduler::SchedulerEvent;
use helve_contract::{
    CancellationToken,
    ids::{self, Named},
    jiff::Timestamp,
    ports::{Cadence, Schedule, ScheduleFilter, ScheduleRules, ScheduleRunStatus, ScheduleStatus, Store},
};
use helve_tools::schedule::{CadenceType, cadence, to_json};
use serde_json::{Value, json};

use super::{SettingsArgs, run::REFUSED};
use crate::{
    fault::{CliError, CommandResult, EXIT_FAILURE},
    notify::Told,
    print::escape_for_terminal,
    remark, say, schedules, setup,
    workshop::HelveRuntime,
};

/// The maximum length of an input line.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// How many schedules are read at a time.
const PAGE_SIZE: u64 = 500;

/// Show schedules, run one now, pause, resume or delete it; drive them all.
#[derive(clap::Args)]
#[command(after_help = "\
An id may be shortened as long as it is clear.

Examples:
  helve schedule list
  helve schedule next '30 9 * * mon-fri' --timezone Europe/Berlin
  helve schedule run 1f3c
  helve schedule drive              run what is due until interrupted")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: ScheduleCommand,
}

#[derive(Subcommand)]
enum ScheduleCommand {
    /// List schedules, newest first.
    #[command(after_help = "Example:\n  helve schedule list --json")]
    List(ScheduleListArgs),
    /// Show a schedule and its last runs.
    #[command(after_help = "Example:\n  helve schedule show 1f3c")]
    Show(ScheduleIdArgs),
    /// Print when a cron expression fires; with --json, answer lines {"expr", "tz", "start", "n"} from standard input.
    #[command(after_help = "Example:\n  helve schedule next '30 2 * * *' --timezone Europe/Berlin --count 3")]
    Next(CronNextArgs),
    /// Run a schedule now, whether it is due or not, and wait for its end.
    #[command(after_help = "Example:\n  helve schedule run 1f3c")]
    Run(ScheduleIdArgs),
    /// Stop a schedule for a while.
    #[command(after_help = "Example:\n  helve schedule pause 1f3c")]
    Pause(ScheduleIdArgs),
    /// Go on with a schedule that was stopped, disabled or is over.
    #[command(after_help = "Example:\n  helve schedule resume 1f3c")]
    Resume(ScheduleIdArgs),
    /// Delete a schedule with its history.
    #[command(after_help = "Example:\n  helve schedule delete 1f3c")]
    Delete(ScheduleIdArgs),
    /// Run what is due, in the foreground, until interrupted. Several may drive one store.
    #[command(after_help = "Example:\n  helve schedule drive")]
    Drive(DriveArgs),
}

#[derive(clap::Args)]
struct ScheduleListArgs {
    #[command(flatten)]
    choice: SettingsArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ScheduleIdArgs {
    /// The schedule, or the beginning of its id.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    choice: SettingsArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CronNextArgs {
    /// The expression: five fields.
    #[arg(value_name = "CRON", required_unless_present = "json")]
    expression: Option<String>,
    /// IANA name of the zone.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    timezone: String,
    /// The time to begin after; now when left out.
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 5)]
    count: u16,
    /// Read JSON lines from standard input, and answer each with one.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct DriveArgs {
    #[command(flatten)]
    choice: SettingsArgs,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.what {
            ScheduleCommand::Next(next) => next.run(),
            ScheduleCommand::List(list) => list.run(),
            ScheduleCommand::Drive(drive) => drive.run(),
            ScheduleCommand::Show(one) => {
                one.with_schedule(|store, schedule, one| Box::pin(print_schedule(store, schedule, one.json)))
            }
            ScheduleCommand::Pause(one) => one.with_schedule(|store, schedule, _| {
                Box::pin(async move {
                    let new = Schedule { status: ScheduleStatus::Paused, next: None, ..schedule.clone() };
                    update(&*store, new, &schedule).await?;
                    say!("paused {}", schedule.id);
                    Ok(ExitCode::SUCCESS)
                })
            }),
            ScheduleCommand::Resume(one) => {
                let rules = schedules::rules(&one.choice.load_and_warn()?, None);
                one.with_schedule(move |store, schedule, _| {
                    Box::pin(async move {
                        let next = cadence::first_run(&schedule.cadence, &rules, Timestamp::now())?;
                        let status = ScheduleStatus::Active;
                        let new = Schedule { status, next: Some(next), failures: 0, ..schedule.clone() };
                        update(&*store, new, &schedule).await?;
                        say!("resumed {}; it runs next at {}", schedule.id, cadence::truncate_to_seconds(next));
                        Ok(ExitCode::SUCCESS)
                    })
                })
            }
            ScheduleCommand::Delete(one) => one.with_schedule(|store, schedule, _| {
                Box::pin(async move {
                    store.remove_schedule(&schedule.id).await?;
                    say!("deleted {}", schedule.id);
                    Ok(ExitCode::SUCCESS)
                })
            }),
            ScheduleCommand::Run(one) => run_now(&one),
        }
    }
}

type CommandFuture = std::pin::Pin<Box<dyn Future<Output = CommandResult>>>;

impl ScheduleIdArgs {
    fn with_schedule(self, work: impl FnOnce(Arc<dyn Store>, Schedule, Self) -> CommandFuture) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let store = setup::open_store(&settings, &setup::state_folder(&settings)?);
        setup::runtime()?.block_on(async {
            let schedule = find_by_prefix(&*store, &self.id, setup::user(&settings)).await?;
            work(store, schedule, self).await
        })
    }
}

impl ScheduleListArgs {
    fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let store = setup::open_store(&settings, &setup::state_folder(&settings)?);
        let all = setup::runtime()?.block_on(list_all(&*store, setup::user(&settings)))?;
        if self.json {
            say!("{}", Value::from(all.iter().map(to_json).collect::<Vec<_>>()));
        } else if all.is_empty() {
            say!("no schedules; an agent makes them with its tools");
        } else {
            for schedule in &all {
                print_row(schedule);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl CronNextArgs {
    fn run(self) -> CommandResult {
        let Some(expression) = &self.expression else { return answer_json_lines() };
        let start = self.from.unwrap_or_else(Timestamp::now);
        for time in next_firings(expression, &self.timezone, start, usize::from(self.count))? {
            let zone = Cadence::Cron { expression: expression.clone(), timezone: self.timezone.clone() };
            say!("{time}  {}", cadence::local_time(&zone, time).unwrap_or_default());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl DriveArgs {
    fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = super::configured_dialect(&settings)?;
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::new(settings, &dialect, &runtime)?;
        runtime.block_on(async {
            let model = bench.resolve_model(None).await?;
            let driver =
                schedules::driver(&bench, Arc::new(Told::new(bench.settings())))?.with_listener(Arc::new(log_event));
            bench.drive_schedules();
            remark!("helve: runs what is due, with {model}. Stop it with Ctrl-C");
            let cancel = CancellationToken::new();
            let stop = async {
                setup::wait_for_shutdown_signal().await;
                cancel.cancel();
            };
            tokio::join!(driver.run_loop(cancel.clone()), stop);
            setup::shutdown_servers(bench.servers()).await;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn run_now(one: &ScheduleIdArgs) -> CommandResult {
    let settings = one.choice.load_and_warn()?;
    let dialect = super::configured_dialect(&settings)?;
    let runtime = setup::runtime()?;
    let bench = HelveRuntime::new(settings, &dialect, &runtime)?;
    runtime.block_on(async {
        let schedule = find_by_prefix(&**bench.store(), &one.id, setup::user(bench.settings())).await?;
        bench.resolve_model(None).await?;
        let driver = schedules::driver(&bench, Arc::new(Told::new(bench.settings())))?;
        let run = tokio::select! {
            run = driver.run_now(&schedule) => run?,
            () = setup::wait_for_shutdown_signal() => {
                driver.close().await;
                return Err(CliError::failed("interrupted; the run is begun again by whoever drives the schedules next"));
            }
        };
        setup::shutdown_servers(bench.servers()).await;
        let Some(run) = run else { return Err(CliError::failed("it runs already; look at `helve schedule show`")) };
        if one.json {
            say!("{}", json!({ "run_id": run.id, "status": run.status, "output": run.output }));
        } else {
            crate::print::print_tool_text(&run.output);
        }
        Ok(match run.status {
            ScheduleRunStatus::Success => ExitCode::SUCCESS,
            ScheduleRunStatus::Refused => ExitCode::from(REFUSED),
            _ => ExitCode::from(EXIT_FAILURE),
        })
    })
}

/// What happens, a line each.
pub(crate) fn log_event(what: &SchedulerEvent) {
    let now = cadence::truncate_to_seconds(Timestamp::now());
    match what {
        SchedulerEvent::RunStarted(schedule, run) if run.attempt > 1 => {
            remark!("{now} began {}, attempt {}: {}", run.id, run.attempt, schedule_title(schedule));
        }
        SchedulerEvent::RunStarted(schedule, run) => remark!("{now} began {}: {}", run.id, schedule_title(schedule)),
        SchedulerEvent::RunFinished(_, run) => remark!("{now} ended {}: {}", run.id, serde_name(&run.status)),
        SchedulerEvent::Skipped(schedule, count) => remark!("{now} left out {count}: {}", schedule_title(schedule)),
        SchedulerEvent::LeaseLost(_, run) => remark!("{now} gave up {}", run.id),
        SchedulerEvent::Error(text) => remark!("{now} {text}"),
    }
}

/// All schedules of a user.
pub(crate) async fn list_all(store: &dyn Store, user: String) -> Result<Vec<Schedule>, CliError> {
    let mut all = Vec::new();
    loop {
        let (user, offset) = (Some(user.clone()), all.len() as u64);
        let which = ScheduleFilter { user, offset, limit: PAGE_SIZE, ..ScheduleFilter::default() };
        let (page, total) = store.schedules(&which).await?;
        let done = page.is_empty();
        all.extend(page);
        if done || all.len() as u64 >= total {
            return Ok(all);
        }
    }
}

/// The schedule of this user with this id prefix. Those of other users count as missing.
async fn find_by_prefix(store: &dyn Store, id: &str, user: String) -> Result<Schedule, CliError> {
    if let Some(schedule) = store.schedule(id).await?.filter(|it| it.user == user) {
        return Ok(schedule);
    }
    let all = list_all(store, user).await?;
    match ids::find(id, all.iter().map(|it| (it.id.as_str(), it.name.as_deref(), it))) {
        Named::One(schedule) => Ok(schedule.clone()),
        Named::Nothing => Err(CliError::failed(format!(
            "there is no schedule {id} of this user; `helve schedule list` shows them, and --user names another user"
        ))),
        Named::Several => Err(CliError::failed(format!(
            "several schedules have the name {id}, or an id that begins or ends with it; write more of the id"
        ))),
    }
}

async fn update(store: &dyn Store, new: Schedule, old: &Schedule) -> Result<(), CliError> {
    let changed = Schedule { updated: Timestamp::now(), ..new };
    if store.update_schedule(&changed, old.updated).await? {
        return Ok(());
    }
    Err(CliError::failed("it changed at this moment; try again"))
}

async fn print_schedule(store: Arc<dyn Store>, schedule: Schedule, as_json: bool) -> CommandResult {
    let runs = store.runs(&schedule.id, 20).await?;
    if as_json {
        let runs: Vec<_> = runs.iter().map(|run| json!(run)).collect();
        let mut data = to_json(&schedule);
        data["goal"] = schedule.goal.into();
        data["origin"] = schedule.origin.into();
        data["channel"] = schedule.channel.into();
        data["runs"] = runs.into();
        say!("{data}");
        return Ok(ExitCode::SUCCESS);
    }
    print_row(&schedule);
    say!("  {}", escape_for_terminal(&schedule.goal).replace('\n', "\n  "));
    if let Some(origin) = &schedule.origin {
        say!("  results go to the conversation {}", escape_for_terminal(origin));
    }
    if let Some(channel) = &schedule.channel {
        say!("  results go to {}", escape_for_terminal(channel));
    }
    if schedule.skipped > 0 {
        say!("  {} occurrences were left out", schedule.skipped);
    }
    for run in runs {
        let again = if run.attempt > 1 { format!(", attempt {}", run.attempt) } else { String::new() };
        let summary = run.summary.lines().next().unwrap_or_default();
        say!(
            "  {}  {}{again}  {}",
            cadence::truncate_to_seconds(run.started),
            serde_name(&run.status),
            escape_for_terminal(summary)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn print_row(schedule: &Schedule) {
    let when = match &schedule.cadence {
        Cadence::Once { at } => format!("once at {}", cadence::truncate_to_seconds(*at)),
        Cadence::Cron { expression, timezone } => format!("{expression} ({timezone})"),
        Cadence::Interval { every_secs } => format!("every {every_secs} s"),
    };
    let next = match schedule.next {
        Some(next) => format!("next {}", cadence::truncate_to_seconds(next)),
        None => "not planned".to_owned(),
    };
    say!("{}  {}  {when}  {next}  {}", schedule.id, serde_name(&schedule.status), schedule_title(schedule));
}

/// The name of a schedule, or the beginning of its task.
fn schedule_title(schedule: &Schedule) -> String {
    let words = schedule.name.as_deref().unwrap_or_else(|| schedule.goal.lines().next().unwrap_or_default());
    escape_for_terminal(&words.chars().take(60).collect::<String>()).into_owned()
}

fn serde_name(value: &impl helve_contract::serde::Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

/// Answers lines of standard input.
fn answer_json_lines() -> CommandResult {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        if input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        if !line.trim_ascii().is_empty() {
            say!("{}", answer_json_line(&line));
        }
    }
}

fn answer_json_line(line: &[u8]) -> Value {
    let asked = || -> Result<Value, CliError> {
        let ask: Value = serde_json::from_slice(line).map_err(|error| CliError::usage(error.to_string()))?;
        let text = |key: &str| ask[key].as_str().ok_or_else(|| CliError::usage(format!("\"{key}\" must be a text")));
        let start =
            text("start")?.parse::<Timestamp>().map_err(|error| CliError::usage(format!("\"start\": {error}")))?;
        let count = ask["n"].as_u64().unwrap_or(5).min(1_000) as usize;
        let times = next_firings(text("expr")?, text("tz")?, start, count)?;
        Ok(json!({ "next": times.iter().map(ToString::to_string).collect::<Vec<_>>() }))
    };
    asked().unwrap_or_else(|fault| json!({ "error": fault.to_string() }))
}

fn next_firings(expression: &str, zone: &str, start: Timestamp, count: usize) -> Result<Vec<Timestamp>, CliError> {
    let rules = ScheduleRules { timezone: zone.to_owned(), ..ScheduleRules::default() };
    let cadence = cadence::parse(CadenceType::Cron, expression, None, &rules)?;
    let mut times = vec![cadence::first_run(&cadence, &rules, start)?];
    while times.len() < count
        && let Some(last) = times.last()
        && let Some(next) = cadence::next_run(&cadence, *last, *last)
    {
        times.push(next);
    }
    times.truncate(count);
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_answered_with_one() {
        let ask = r#"{"expr": "30 2 * * *", "tz": "Europe/Berlin", "start": "2026-03-28T12:00:00+00:00", "n": 2}"#;
        assert_eq!(
            answer_json_line(ask.as_bytes()).to_string(),
            r#"{"next":["2026-03-29T01:00:00Z","2026-03-30T00:30:00Z"]}"#
        );
        for bad in ["{}", "nothing", r#"{"expr": "* * * *", "tz": "UTC", "start": "2026-01-01T00:00:00Z"}"#] {
            assert!(answer_json_line(bad.as_bytes())["error"].is_string());
        }
    }
}
