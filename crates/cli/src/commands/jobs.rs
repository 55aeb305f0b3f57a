//! `helve jobs`: queued work, such as posts to webhooks: list, show, retry, cancel.

use std::process::ExitCode;

use helve_contract::ports::{Job, JobFilter, JobId, JobState, Jobs};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use super::{SettingsArgs, serve};
use crate::{
    fault::{CliError, CommandResult},
    print::{TextStyle, escape_for_terminal, styled},
    remark, say, setup, state,
    terminal::one_line,
};

/// The maximum number of characters of a payload to show.
const MAX_PAYLOAD: usize = 4000;

/// Queued work, such as posts to webhooks: list, show, retry, cancel.
///
/// `helve serve` works the jobs of its workspace. A job that failed five times is dead until you retry it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve jobs list
  helve jobs list --state dead
  helve jobs show 019a2f3e-…
  helve jobs retry 019a2f3e-…
  helve jobs cancel 019a2f3e-…")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List jobs, newest first.
    #[command(after_help = "Example:\n  helve jobs list --state dead")]
    List {
        #[command(flatten)]
        choice: SettingsArgs,
        /// Those in this state only.
        #[arg(long, value_name = "STATE", value_parser = JobState::ALL.map(JobState::name))]
        state: Option<String>,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 20)]
        most: u64,
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a job with its payload and its last error.
    #[command(after_help = "Example:\n  helve jobs show 019a2f3e-…")]
    Show {
        #[command(flatten)]
        one: One,
        /// Print it as JSON, with the whole payload.
        #[arg(long)]
        json: bool,
    },
    /// Queue a dead job again.
    #[command(after_help = "Example:\n  helve jobs retry 019a2f3e-…")]
    Retry(One),
    /// Cancel a job and the jobs below it. A running one stops within 10 seconds.
    #[command(after_help = "Example:\n  helve jobs cancel 019a2f3e-…")]
    Cancel(One),
}

#[derive(clap::Args)]
struct One {
    #[command(flatten)]
    choice: SettingsArgs,
    /// The job's id.
    id: String,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            Command::List { choice, state, most, json } => {
                let state = state.map(|it| it.parse()).transpose()?;
                let found = with_jobs(&choice, async |jobs, users| {
                    Ok(jobs.jobs(&JobFilter { state, users, most, ..JobFilter::default() }).await?)
                })?;
                list(&found.0, found.1, json);
            }
            Command::Show { one, json } => show(&one.with(async |_, job| Ok(job))?, json),
            Command::Retry(one) => {
                let job = one.with(async |jobs, job| Ok(jobs.retry(&job.id).await?.unwrap_or(job)))?;
                say!("{} is {}; `helve serve` in {} works it", job.id, job.state, place(&job));
            }
            Command::Cancel(one) => {
                let job = one.with(async |jobs, job| {
                    if job.state.is_ended() {
                        return Err(CliError::failed(format!("job {} has ended: it is {}", job.id, job.state)));
                    }
                    Ok(jobs.cancel(&job.id).await?.unwrap_or(job))
                })?;
                if job.is_cancel_requested {
                    say!("{} is running; its worker stops within 10 seconds", job.id);
                } else {
                    say!("{} is {}", job.id, job.state);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl One {
    /// Does something with the job.
    fn with<T>(self, work: impl AsyncFnOnce(&dyn Jobs, Job) -> Result<T, CliError>) -> Result<T, CliError> {
        with_jobs(&self.choice, async |jobs, users| {
            let missing = || {
                CliError::failed(format!(
                    "there is no job {}; `helve jobs list` lists them",
                    escape_for_terminal(&self.id)
                ))
            };
            let id: JobId = self.id.parse().map_err(|_| missing())?;
            let job = jobs.job(&id).await?.filter(|it| users.contains(&it.user)).ok_or_else(missing)?;
            work(jobs, job).await
        })
    }
}

/// Does something with the jobs of the users that these settings name.
fn with_jobs<T>(
    choice: &SettingsArgs,
    work: impl AsyncFnOnce(&dyn Jobs, Vec<String>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let settings = choice.load_and_warn()?;
    let (state, _) = state::open(&settings)?;
    let store = setup::open_sqlite(&settings, &state);
    setup::runtime()?.block_on(work(&store, serve::job_users(&settings)))
}

/// A job as the API and `--json` show it.
pub(crate) fn shown(job: &Job) -> Value {
    let mut value = json!(job);
    if let Some(fields) = value.as_object_mut() {
        // Who has claimed it is shown; the tenant is that of the store, and lists have no payloads.
        fields.remove("tenant");
        if job.payload.is_null() {
            fields.remove("payload");
        }
    }
    value
}

fn place(job: &Job) -> String {
    escape_for_terminal(job.workspace.as_deref().unwrap_or("any workspace")).to_string()
}

fn list(jobs: &[Job], total: u64, as_json: bool) {
    if as_json {
        say!("{}", json!({ "total": total, "jobs": jobs.iter().map(shown).collect::<Vec<_>>() }));
        return;
    }
    say!(
        "{}",
        styled(
            TextStyle::Bold,
            "ID                                    KIND        STATE      TRIES  ADDED             ERROR"
        )
    );
    for job in jobs {
        say!(
            "{}  {:10}  {:9}  {:>5}  {}  {}",
            job.id,
            job.kind.to_string(),
            job.state.name(),
            format!("{}/{}", job.attempt, job.max_attempts),
            local(job.created),
            one_line(job.error.as_deref().unwrap_or_default(), 80)
        );
    }
    let more = total.saturating_sub(jobs.len() as u64);
    if more > 0 {
        remark!("{more} more; --most shows them");
    } else if total == 0 {
        remark!("no jobs");
    }
}

fn show(job: &Job, as_json: bool) {
    if as_json {
        say!("{}", shown(job));
        return;
    }
    say!("{}", styled(TextStyle::Bold, &format!("{} ({})", job.id, job.kind)));
    let cancel = if job.is_cancel_requested { ", cancel requested" } else { "" };
    say!("  state: {}{cancel}, attempt {} of {}", job.state, job.attempt, job.max_attempts);
    say!("  user: {}", escape_for_terminal(&job.user));
    let optional = [("session", &job.session), ("workspace", &job.workspace), ("key", &job.key), ("error", &job.error)];
    for (name, value) in optional {
        if let Some(value) = value {
            say!("  {name}: {}", escape_for_terminal(value));
        }
    }
    let times =
        [("added", Some(job.created)), ("due", Some(job.run_at)), ("started", job.started), ("ended", job.ended)];
    for (name, time) in times {
        if let Some(time) = time {
            say!("  {name}: {}", local(time));
        }
    }
    if !job.payload.is_null() {
        let payload = job.payload.to_string();
        let head: String = payload.chars().take(MAX_PAYLOAD).collect();
        let more = if head.len() < payload.len() { " … (--json prints all of it)" } else { "" };
        say!("  payload: {}{more}", escape_for_terminal(&head));
    }
}

fn local(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}
