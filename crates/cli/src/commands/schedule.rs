//! `helve schedule`: shows schedules, runs one now, stops and resumes them, and drives them all.

use std::{
    io::{self, BufRead, Read},
    process::ExitCode,
    sync::Arc,
};

use clap::Subcommand;
use helve_agent::scheduler::Happening;
use helve_contract::{
    CancellationToken,
    ids::{self, Named},
    jiff::Timestamp,
    ports::{Cadence, RunStatus, Schedule, ScheduleStatus, Scheduling, Store, WhichSchedules},
};
use helve_tools::schedule::{CadenceType, cadence, shown};
use serde_json::{Value, json};

use super::{Choice, run::REFUSED};
use crate::{
    fault::{FAILED, Fault, Outcome},
    notify::Told,
    print::harmless,
    remark, say, schedules, setup,
    workshop::Bench,
};

/// No line of input is longer.
const LONGEST: u64 = 1 << 20;
/// How many schedules are read at a time.
const PAGE: u64 = 500;

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
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List schedules, newest first.
    #[command(after_help = "Example:\n  helve schedule list --json")]
    List(List),
    /// Show a schedule and its last runs.
    #[command(after_help = "Example:\n  helve schedule show 1f3c")]
    Show(One),
    /// Print when a cron expression fires; with --json, answer lines {"expr", "tz", "start", "n"} from standard input.
    #[command(after_help = "Example:\n  helve schedule next '30 2 * * *' --timezone Europe/Berlin --count 3")]
    Next(Next),
    /// Run a schedule now, whether it is due or not, and wait for its end.
    #[command(after_help = "Example:\n  helve schedule run 1f3c")]
    Run(One),
    /// Stop a schedule for a while.
    #[command(after_help = "Example:\n  helve schedule pause 1f3c")]
    Pause(One),
    /// Go on with a schedule that was stopped, disabled or is over.
    #[command(after_help = "Example:\n  helve schedule resume 1f3c")]
    Resume(One),
    /// Delete a schedule with its history.
    #[command(after_help = "Example:\n  helve schedule delete 1f3c")]
    Delete(One),
    /// Run what is due, in the foreground, until interrupted. Several may drive one store.
    #[command(after_help = "Example:\n  helve schedule drive")]
    Drive(Drive),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    choice: Choice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct One {
    /// The schedule, or the beginning of its id.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    choice: Choice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Next {
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
struct Drive {
    #[command(flatten)]
    choice: Choice,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self.what {
            What::Next(next) => next.run(),
            What::List(list) => list.run(),
            What::Drive(drive) => drive.run(),
            What::Show(one) => one.with(|store, schedule, one| Box::pin(show(store, schedule, one.json))),
            What::Pause(one) => one.with(|store, schedule, _| {
                Box::pin(async move {
                    let new = Schedule { status: ScheduleStatus::Paused, next: None, ..schedule.clone() };
                    change(&*store, new, &schedule).await?;
                    say!("paused {}", schedule.id);
                    Ok(ExitCode::SUCCESS)
                })
            }),
            What::Resume(one) => {
                let rules = schedules::rules(&one.choice.settings()?, None);
                one.with(move |store, schedule, _| {
                    Box::pin(async move {
                        let next = cadence::first(&schedule.cadence, &rules, Timestamp::now())?;
                        let status = ScheduleStatus::Active;
                        let new = Schedule { status, next: Some(next), failures: 0, ..schedule.clone() };
                        change(&*store, new, &schedule).await?;
                        say!("resumed {}; it runs next at {}", schedule.id, cadence::brief(next));
                        Ok(ExitCode::SUCCESS)
                    })
                })
            }
            What::Delete(one) => one.with(|store, schedule, _| {
                Box::pin(async move {
                    store.remove_schedule(&schedule.id).await?;
                    say!("deleted {}", schedule.id);
                    Ok(ExitCode::SUCCESS)
                })
            }),
            What::Run(one) => run_now(&one),
        }
    }
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Outcome>>>;

impl One {
    fn with(self, work: impl FnOnce(Arc<dyn Store>, Schedule, Self) -> Answer) -> Outcome {
        let settings = self.choice.settings()?;
        let store = setup::store(&settings, &setup::state_folder(&settings)?);
        setup::runtime()?.block_on(async {
            let schedule = find(&*store, &self.id, setup::user(&settings)).await?;
            work(store, schedule, self).await
        })
    }
}

impl List {
    fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let store = setup::store(&settings, &setup::state_folder(&settings)?);
        let all = setup::runtime()?.block_on(all(&*store, setup::user(&settings)))?;
        if self.json {
            say!("{}", Value::from(all.iter().map(shown).collect::<Vec<_>>()));
        } else if all.is_empty() {
            say!("no schedules; an agent makes them with its tools");
        } else {
            for schedule in &all {
                line(schedule);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Next {
    fn run(self) -> Outcome {
        let Some(expression) = &self.expression else { return lines() };
        let start = self.from.unwrap_or_else(Timestamp::now);
        for time in firings(expression, &self.timezone, start, usize::from(self.count))? {
            let zone = Cadence::Cron { expression: expression.clone(), timezone: self.timezone.clone() };
            say!("{time}  {}", cadence::local(&zone, time).unwrap_or_default());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Drive {
    fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let dialect = super::dialect(&settings)?;
        let runtime = setup::runtime()?;
        let bench = Bench::new(settings, &dialect, &runtime)?;
        runtime.block_on(async {
            let model = bench.find_model(None).await?;
            let driver = schedules::driver(&bench, Arc::new(Told::new(bench.settings())))?.observed(Arc::new(log));
            bench.drive_schedules();
            remark!("helve: runs what is due, with {model}. Stop it with Ctrl-C");
            let cancel = CancellationToken::new();
            let stop = async {
                setup::asked_to_stop().await;
                cancel.cancel();
            };
            tokio::join!(driver.drive(cancel.clone()), stop);
            setup::end_servers(bench.servers()).await;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn run_now(one: &One) -> Outcome {
    let settings = one.choice.settings()?;
    let dialect = super::dialect(&settings)?;
    let runtime = setup::runtime()?;
    let bench = Bench::new(settings, &dialect, &runtime)?;
    runtime.block_on(async {
        let schedule = find(&**bench.store(), &one.id, setup::user(bench.settings())).await?;
        bench.find_model(None).await?;
        let driver = schedules::driver(&bench, Arc::new(Told::new(bench.settings())))?;
        let run = tokio::select! {
            run = driver.run_now(&schedule) => run?,
            () = setup::asked_to_stop() => {
                driver.close().await;
                return Err(Fault::failed("interrupted; the run is begun again by whoever drives the schedules next"));
            }
        };
        setup::end_servers(bench.servers()).await;
        let Some(run) = run else { return Err(Fault::failed("it runs already; look at `helve schedule show`")) };
        if one.json {
            say!("{}", json!({ "run_id": run.id, "status": run.status, "output": run.output }));
        } else {
            crate::print::from_tool(&run.output);
        }
        Ok(match run.status {
            RunStatus::Success => ExitCode::SUCCESS,
            RunStatus::Refused => ExitCode::from(REFUSED),
            _ => ExitCode::from(FAILED),
        })
    })
}

/// What happens, a line each.
pub(crate) fn log(what: &Happening) {
    let now = cadence::brief(Timestamp::now());
    match what {
        Happening::Began(schedule, run) if run.attempt > 1 => {
            remark!("{now} began {}, attempt {}: {}", run.id, run.attempt, title(schedule));
        }
        Happening::Began(schedule, run) => remark!("{now} began {}: {}", run.id, title(schedule)),
        Happening::Ended(_, run) => remark!("{now} ended {}: {}", run.id, word(&run.status)),
        Happening::Skipped(schedule, count) => remark!("{now} left out {count}: {}", title(schedule)),
        Happening::Lost(_, run) => remark!("{now} gave up {}", run.id),
        Happening::Trouble(text) => remark!("{now} {text}"),
    }
}

/// All schedules of a user.
pub(crate) async fn all(store: &dyn Store, user: String) -> Result<Vec<Schedule>, Fault> {
    let mut all = Vec::new();
    loop {
        let (user, offset) = (Some(user.clone()), all.len() as u64);
        let which = WhichSchedules { user, offset, most: PAGE, ..WhichSchedules::default() };
        let (page, total) = store.schedules(&which).await?;
        let done = page.is_empty();
        all.extend(page);
        if done || all.len() as u64 >= total {
            return Ok(all);
        }
    }
}

/// The schedule of this user whose id begins so. Those of other users are answered like missing ones.
async fn find(store: &dyn Store, id: &str, user: String) -> Result<Schedule, Fault> {
    if let Some(schedule) = store.schedule(id).await?.filter(|it| it.user == user) {
        return Ok(schedule);
    }
    let all = all(store, user).await?;
    match ids::find(id, all.iter().map(|it| (it.id.as_str(), it.name.as_deref(), it))) {
        Named::One(schedule) => Ok(schedule.clone()),
        Named::Nothing => Err(Fault::failed(format!(
            "there is no schedule {id} of this user; `helve schedule list` shows them, and --user names another user"
        ))),
        Named::Several => Err(Fault::failed(format!(
            "several schedules have the name {id}, or an id that begins or ends with it; write more of the id"
        ))),
    }
}

async fn change(store: &dyn Store, new: Schedule, old: &Schedule) -> Result<(), Fault> {
    let changed = Schedule { updated: Timestamp::now(), ..new };
    if store.change_schedule(&changed, old.updated).await? {
        return Ok(());
    }
    Err(Fault::failed("it changed at this moment; try again"))
}

async fn show(store: Arc<dyn Store>, schedule: Schedule, as_json: bool) -> Outcome {
    let runs = store.runs(&schedule.id, 20).await?;
    if as_json {
        let runs: Vec<_> = runs.iter().map(|run| json!(run)).collect();
        let mut data = shown(&schedule);
        data["goal"] = schedule.goal.into();
        data["origin"] = schedule.origin.into();
        data["channel"] = schedule.channel.into();
        data["runs"] = runs.into();
        say!("{data}");
        return Ok(ExitCode::SUCCESS);
    }
    line(&schedule);
    say!("  {}", harmless(&schedule.goal).replace('\n', "\n  "));
    if let Some(origin) = &schedule.origin {
        say!("  results go to the conversation {}", harmless(origin));
    }
    if let Some(channel) = &schedule.channel {
        say!("  results go to {}", harmless(channel));
    }
    if schedule.skipped > 0 {
        say!("  {} occurrences were left out", schedule.skipped);
    }
    for run in runs {
        let again = if run.attempt > 1 { format!(", attempt {}", run.attempt) } else { String::new() };
        let summary = run.summary.lines().next().unwrap_or_default();
        say!("  {}  {}{again}  {}", cadence::brief(run.started), word(&run.status), harmless(summary));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(schedule: &Schedule) {
    let when = match &schedule.cadence {
        Cadence::Once { at } => format!("once at {}", cadence::brief(*at)),
        Cadence::Cron { expression, timezone } => format!("{expression} ({timezone})"),
        Cadence::Interval { every_secs } => format!("every {every_secs} s"),
    };
    let next = match schedule.next {
        Some(next) => format!("next {}", cadence::brief(next)),
        None => "not planned".to_owned(),
    };
    say!("{}  {}  {when}  {next}  {}", schedule.id, word(&schedule.status), title(schedule));
}

/// The name of a schedule, or the beginning of its task.
fn title(schedule: &Schedule) -> String {
    let words = schedule.name.as_deref().unwrap_or_else(|| schedule.goal.lines().next().unwrap_or_default());
    harmless(&words.chars().take(60).collect::<String>()).into_owned()
}

fn word(value: &impl helve_contract::serde::Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

/// Answers lines of standard input.
fn lines() -> Outcome {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        if input.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        if !line.trim_ascii().is_empty() {
            say!("{}", answer(&line));
        }
    }
}

fn answer(line: &[u8]) -> Value {
    let asked = || -> Result<Value, Fault> {
        let ask: Value = serde_json::from_slice(line).map_err(|error| Fault::usage(error.to_string()))?;
        let text = |key: &str| ask[key].as_str().ok_or_else(|| Fault::usage(format!("\"{key}\" must be a text")));
        let start = text("start")?.parse::<Timestamp>().map_err(|error| Fault::usage(format!("\"start\": {error}")))?;
        let count = ask["n"].as_u64().unwrap_or(5).min(1_000) as usize;
        let times = firings(text("expr")?, text("tz")?, start, count)?;
        Ok(json!({ "next": times.iter().map(ToString::to_string).collect::<Vec<_>>() }))
    };
    asked().unwrap_or_else(|fault| json!({ "error": fault.to_string() }))
}

fn firings(expression: &str, zone: &str, start: Timestamp, count: usize) -> Result<Vec<Timestamp>, Fault> {
    let rules = Scheduling { timezone: zone.to_owned(), ..Scheduling::default() };
    let cadence = cadence::read(CadenceType::Cron, expression, None, &rules)?;
    let mut times = vec![cadence::first(&cadence, &rules, start)?];
    while times.len() < count
        && let Some(last) = times.last()
        && let Some(next) = cadence::next(&cadence, *last, *last)
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
        assert_eq!(answer(ask.as_bytes()).to_string(), r#"{"next":["2026-03-29T01:00:00Z","2026-03-30T00:30:00Z"]}"#);
        for bad in ["{}", "nothing", r#"{"expr": "* * * *", "tz": "UTC", "start": "2026-01-01T00:00:00Z"}"#] {
            assert!(answer(bad.as_bytes())["error"].is_string());
        }
    }
}
