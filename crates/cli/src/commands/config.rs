//! `helve config`: the settings in force and where each came from; trust in a project's own file.

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use helve_mcp::client::{Folders, Servers};
use serde_json::{Map, Value, json};

use super::Choice;
use crate::{
    config::{ProjectPlugins, Settings, Standing, Trust, project_file, read_limited, shown, user_file},
    fault::{Fault, Outcome},
    print::{Ink, ink},
    remark, say, state,
};

/// Show the settings in force and where each came from; trust a project's settings.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = false,
    after_help = "\
Later places win over earlier ones: defaults, the user's file, the project's file (once trusted), variables
HELVE_*, flags. Lists of refusals (tools.disable, paths.deny_*, approval.deny …) add up.

Examples:
  helve config
  helve config --json
  helve config trust              accept ./helve.toml as it is now
  HELVE_TOOLS_DISABLE=Bash,WebFetch helve config"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    choice: Choice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Accept the project's settings file as it is now. A change of it asks again.
    #[command(after_help = "Example:\n  helve config trust --workspace ~/project")]
    Trust(InWorkspace),
    /// Ignore the project's settings file again.
    #[command(after_help = "Example:\n  helve config untrust")]
    Untrust(InWorkspace),
    /// Accept a tool of an MCP server whose definition changed; without a name, list those that wait.
    #[command(after_help = "Examples:\n  helve config approve\n  helve config approve mcp__files__read_file")]
    Approve(Approval),
    /// Make a bait for `secrets.canaries`: it looks like a key, is worth nothing, and may not be sent anywhere.
    #[command(after_help = "Example:\n  helve config canary")]
    Canary,
    /// Print where settings files are looked for.
    #[command(after_help = "Example:\n  helve config path")]
    Path(InWorkspace),
}

#[derive(clap::Args)]
struct Approval {
    /// The tool's name here, such as `mcp__files__read_file`.
    #[arg(value_name = "TOOL")]
    tool: Option<String>,
    #[command(flatten)]
    choice: Choice,
}

#[derive(clap::Args)]
struct InWorkspace {
    #[command(flatten)]
    choice: Choice,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self.what {
            None => {
                let settings = self.choice.settings()?;
                if self.json { as_json(&settings)? } else { as_table(&settings) }
            }
            Some(What::Trust(place)) => trust(&place.choice)?,
            Some(What::Untrust(place)) => untrust(&place.choice)?,
            Some(What::Approve(approval)) => approve(&approval)?,
            Some(What::Canary) => {
                say!("hlv_{}{}", state::random_id()?, state::random_id()?);
                remark!("helve: put it where nobody should look, and into secrets.canaries of your own settings");
            }
            Some(What::Path(place)) => path(&place.choice)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn origin(setting: &crate::config::Setting) -> String {
    setting.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn as_table(settings: &Settings) {
    let rows: Vec<_> =
        settings.all().map(|(key, setting)| (key.name, shown(&setting.value).to_string(), origin(&setting))).collect();
    let name = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
    let value = rows.iter().map(|(_, value, _)| value.chars().count().min(40)).max().unwrap_or_default();
    say!("{}", ink(Ink::Bold, &format!("{:name$}  {:value$}  {}", "SETTING", "VALUE", "FROM")));
    for (key, shown, from) in rows {
        let line = format!("{key:name$}  {shown:value$}  {from}");
        let line = crate::print::harmless(&line);
        say!("{}", if from == "default" { ink(Ink::Dim, &line) } else { line });
    }
}

fn as_json(settings: &Settings) -> Result<(), Fault> {
    let all: Map<_, _> = settings
        .all()
        .map(|(key, setting)| {
            (key.name.to_owned(), json!({ "value": shown(&setting.value), "from": origin(&setting) }))
        })
        .collect();
    let text = serde_json::to_string_pretty(&Value::Object(all)).map_err(|error| Fault::failed(error.to_string()))?;
    say!("{text}");
    Ok(())
}

fn trust(choice: &Choice) -> Result<(), Fault> {
    let settings = choice.settings_quietly(Vec::new())?;
    let agents = helve_runtime::crew::project_agents(&settings);
    let trusted = trust_agents(&settings, &agents)?;
    let Some(file) = project_file(&top(&settings)) else {
        if trusted > 0 {
            return Ok(());
        }
        return Err(Fault::failed(format!(
            "there is no helve.toml or helve.yaml in {}; nothing to trust",
            settings.workspace.display()
        )));
    };
    let bytes = read_limited(&file).map_err(|error| Fault::failed(format!("{}: {error}", file.display())))?;
    let (folder, note) = state::open(&settings)?;
    if let Some(note) = note {
        remark!("helve: {note}");
    }
    let plugins = ProjectPlugins::read(&file, &bytes).map_err(|why| Fault::failed(format!("not trusted: {why}")))?;
    let trust = Trust::new(&folder);
    for path in &plugins.files {
        trust.add_file(path)?;
    }
    trust.add(&file, &bytes)?;
    for program in &plugins.programs {
        let argv = program.argv().join(" ");
        say!("a session will start the plugin {} in the sandbox", crate::print::harmless(&argv));
    }
    say!("{} is trusted as it is now; `helve config` shows what it changes", file.display());
    Ok(())
}

/// Accepts the agents that the project describes, as they are now. How many there are.
fn trust_agents(settings: &Settings, agents: &[PathBuf]) -> Result<usize, Fault> {
    if agents.is_empty() {
        return Ok(0);
    }
    let (folder, note) = state::open(settings)?;
    if let Some(note) = note {
        remark!("helve: {note}");
    }
    let trust = Trust::new(&folder);
    for path in agents {
        trust.add_file(path)?;
        say!("the agent {} is trusted as it is now", crate::print::harmless(&path.to_string_lossy()));
    }
    Ok(agents.len())
}

fn untrust(choice: &Choice) -> Result<(), Fault> {
    let settings = choice.settings_quietly(Vec::new())?;
    let file = match &settings.project {
        Standing::Trusted(file) | Standing::Untrusted(file) | Standing::Unreadable(file, _) => file.clone(),
        Standing::Absent => settings.workspace.join("helve.toml"),
    };
    let known = match state::place(&settings) {
        Some(folder) => {
            let trust = Trust::new(&folder);
            for path in helve_runtime::crew::project_agents(&settings) {
                if trust.remove(&path)? {
                    say!("the agent {} is no longer trusted", crate::print::harmless(&path.to_string_lossy()));
                }
            }
            trust.remove(&file)?
        }
        None => false,
    };
    if known {
        say!("{} is no longer trusted, and ignored", file.display());
    } else {
        say!("{} was not trusted", file.display());
    }
    Ok(())
}

fn approve(approval: &Approval) -> Result<(), Fault> {
    let settings = approval.choice.settings_quietly(Vec::new())?;
    let folder = state::place(&settings).ok_or_else(|| Fault::failed("HOME is not set, so nothing is recorded"))?;
    let folders = Folders::of(&folder);
    let told = |error: helve_contract::Error| Fault::failed(error.to_string());
    let Some(tool) = &approval.tool else {
        let waiting = Servers::recorded_changes(&folders).map_err(told)?;
        for name in &waiting {
            say!("{name}");
        }
        if waiting.is_empty() {
            say!("no tool waits for approval");
        }
        return Ok(());
    };
    Servers::approve_recorded(&folders, tool).map_err(told)?;
    say!("{tool} is accepted as it is now");
    Ok(())
}

fn path(choice: &Choice) -> Result<(), Fault> {
    let settings = choice.settings_quietly(Vec::new())?;
    let user = user_file().map_or_else(|| "none: HOME is not set".to_owned(), |it| it.display().to_string());
    let there = settings.user_file.as_ref().is_some_and(|(_, there)| *there);
    say!("user     {user}{}", if there { "" } else { " (not there)" });
    match &settings.project {
        Standing::Absent => say!("project  {} (not there)", settings.workspace.join("helve.toml").display()),
        Standing::Trusted(file) => say!("project  {} (trusted)", file.display()),
        Standing::Untrusted(file) => say!("project  {} (ignored; `helve config trust` accepts it)", file.display()),
        Standing::Unreadable(file, why) => say!("project  {} (ignored: {why})", file.display()),
    }
    let state =
        state::place(&settings).map_or_else(|| "none: HOME is not set".to_owned(), |it| it.display().to_string());
    say!("state    {state}");
    Ok(())
}

/// The folder whose settings file is meant: the project's top, even where its file names a folder inside it.
fn top(settings: &Settings) -> std::path::PathBuf {
    match &settings.project {
        Standing::Trusted(file) | Standing::Untrusted(file) | Standing::Unreadable(file, _) => {
            file.parent().unwrap_or(&settings.workspace).to_owned()
        }
        Standing::Absent => settings.workspace.clone(),
    }
}
