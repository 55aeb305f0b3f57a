//! `helve config`: the current settings with their origins, and trust in a project's file.

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use helve_mcp::client::{McpDirs, McpServers};
use serde_json::{Map, Value, json};

use super::SettingsArgs;
use crate::{
    config::{ProjectFileStatus, ProjectPlugins, Settings, TrustStore, project_file, read_limited, shown, user_file},
    fault::{CliError, CommandResult},
    print::{TextStyle, styled},
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
    what: Option<ConfigCommand>,
    #[command(flatten)]
    choice: SettingsArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Accept the project's settings file as it is now. A change of it asks again.
    #[command(after_help = "Example:\n  helve config trust --workspace ~/project")]
    Trust(WorkspaceArgs),
    /// Ignore the project's settings file again.
    #[command(after_help = "Example:\n  helve config untrust")]
    Untrust(WorkspaceArgs),
    /// Accept a tool of an MCP server whose definition changed; without a name, list those that wait.
    #[command(after_help = "Examples:\n  helve config approve\n  helve config approve mcp__files__read_file")]
    Approve(ApproveArgs),
    /// Make a bait for `secrets.canaries`: it looks like a key, is worth nothing, and may not be sent anywhere.
    #[command(after_help = "Example:\n  helve config canary")]
    Canary,
    /// Print where settings files are looked for.
    #[command(after_help = "Example:\n  helve config path")]
    Path(WorkspaceArgs),
}

#[derive(clap::Args)]
struct ApproveArgs {
    /// The tool's name here, such as `mcp__files__read_file`.
    #[arg(value_name = "TOOL")]
    tool: Option<String>,
    #[command(flatten)]
    choice: SettingsArgs,
}

#[derive(clap::Args)]
struct WorkspaceArgs {
    #[command(flatten)]
    choice: SettingsArgs,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.what {
            None => {
                let settings = self.choice.load_and_warn()?;
                if self.json { as_json(&settings)? } else { as_table(&settings) }
            }
            Some(ConfigCommand::Trust(place)) => trust(&place.choice)?,
            Some(ConfigCommand::Untrust(place)) => untrust(&place.choice)?,
            Some(ConfigCommand::Approve(approval)) => approve(&approval)?,
            Some(ConfigCommand::Canary) => {
                say!("hlv_{}{}", state::random_id()?, state::random_id()?);
                remark!("helve: put it where nobody should look, and into secrets.canaries of your own settings");
            }
            Some(ConfigCommand::Path(place)) => print_paths(&place.choice)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn format_sources(setting: &crate::config::EffectiveSetting) -> String {
    setting.sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn as_table(settings: &Settings) {
    let rows: Vec<_> = settings
        .all()
        .map(|(key, setting)| (key.name, shown(&setting.value).to_string(), format_sources(&setting)))
        .collect();
    let name = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
    let value = rows.iter().map(|(_, value, _)| value.chars().count().min(40)).max().unwrap_or_default();
    say!("{}", styled(TextStyle::Bold, &format!("{:name$}  {:value$}  {}", "SETTING", "VALUE", "FROM")));
    for (key, shown, from) in rows {
        let line = format!("{key:name$}  {shown:value$}  {from}");
        let line = crate::print::escape_for_terminal(&line);
        say!("{}", if from == "default" { styled(TextStyle::Dim, &line) } else { line });
    }
}

fn as_json(settings: &Settings) -> Result<(), CliError> {
    let all: Map<_, _> = settings
        .all()
        .map(|(key, setting)| {
            (key.name.to_owned(), json!({ "value": shown(&setting.value), "from": format_sources(&setting) }))
        })
        .collect();
    let text =
        serde_json::to_string_pretty(&Value::Object(all)).map_err(|error| CliError::failed(error.to_string()))?;
    say!("{text}");
    Ok(())
}

fn trust(choice: &SettingsArgs) -> Result<(), CliError> {
    let settings = choice.load(Vec::new())?;
    let agents = helve_runtime::crew::project_agents(&settings);
    let trusted = trust_agents(&settings, &agents)?;
    let Some(file) = project_file(&project_dir(&settings)) else {
        if trusted > 0 {
            return Ok(());
        }
        return Err(CliError::failed(format!(
            "there is no helve.toml or helve.yaml in {}; nothing to trust",
            settings.workspace.display()
        )));
    };
    let bytes = read_limited(&file).map_err(|error| CliError::failed(format!("{}: {error}", file.display())))?;
    let (folder, note) = state::open(&settings)?;
    if let Some(note) = note {
        remark!("helve: {note}");
    }
    let plugins = ProjectPlugins::read(&file, &bytes).map_err(|why| CliError::failed(format!("not trusted: {why}")))?;
    let trust = TrustStore::new(&folder);
    for path in &plugins.files {
        trust.add_file(path)?;
    }
    trust.add(&file, &bytes)?;
    for program in &plugins.programs {
        let argv = program.argv().join(" ");
        say!("a session will start the plugin {} in the sandbox", crate::print::escape_for_terminal(&argv));
    }
    say!("{} is trusted as it is now; `helve config` shows what it changes", file.display());
    Ok(())
}

/// Trusts the current agents of the project. Returns their number.
fn trust_agents(settings: &Settings, agents: &[PathBuf]) -> Result<usize, CliError> {
    if agents.is_empty() {
        return Ok(0);
    }
    let (folder, note) = state::open(settings)?;
    if let Some(note) = note {
        remark!("helve: {note}");
    }
    let trust = TrustStore::new(&folder);
    for path in agents {
        trust.add_file(path)?;
        say!("the agent {} is trusted as it is now", crate::print::escape_for_terminal(&path.to_string_lossy()));
    }
    Ok(agents.len())
}

fn untrust(choice: &SettingsArgs) -> Result<(), CliError> {
    let settings = choice.load(Vec::new())?;
    let file = match &settings.project_file {
        ProjectFileStatus::Trusted(file)
        | ProjectFileStatus::Untrusted(file)
        | ProjectFileStatus::Unreadable(file, _) => file.clone(),
        ProjectFileStatus::Absent => settings.workspace.join("helve.toml"),
    };
    let known = match state::place(&settings) {
        Some(folder) => {
            let trust = TrustStore::new(&folder);
            for path in helve_runtime::crew::project_agents(&settings) {
                if trust.remove(&path)? {
                    say!(
                        "the agent {} is no longer trusted",
                        crate::print::escape_for_terminal(&path.to_string_lossy())
                    );
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

fn approve(approval: &ApproveArgs) -> Result<(), CliError> {
    let settings = approval.choice.load(Vec::new())?;
    let folder = state::place(&settings).ok_or_else(|| CliError::failed("HOME is not set, so nothing is recorded"))?;
    let folders = McpDirs::new(&folder);
    let told = |error: helve_contract::Error| CliError::failed(error.to_string());
    let Some(tool) = &approval.tool else {
        let waiting = McpServers::recorded_changes(&folders).map_err(told)?;
        for name in &waiting {
            say!("{name}");
        }
        if waiting.is_empty() {
            say!("no tool waits for approval");
        }
        return Ok(());
    };
    McpServers::approve_recorded(&folders, tool).map_err(told)?;
    say!("{tool} is accepted as it is now");
    Ok(())
}

fn print_paths(choice: &SettingsArgs) -> Result<(), CliError> {
    let settings = choice.load(Vec::new())?;
    let user = user_file().map_or_else(|| "none: HOME is not set".to_owned(), |it| it.display().to_string());
    let there = settings.user_file.as_ref().is_some_and(|(_, there)| *there);
    say!("user     {user}{}", if there { "" } else { " (not there)" });
    match &settings.project_file {
        ProjectFileStatus::Absent => say!("project  {} (not there)", settings.workspace.join("helve.toml").display()),
        ProjectFileStatus::Trusted(file) => say!("project  {} (trusted)", file.display()),
        ProjectFileStatus::Untrusted(file) => {
            say!("project  {} (ignored; `helve config trust` accepts it)", file.display());
        }
        ProjectFileStatus::Unreadable(file, why) => say!("project  {} (ignored: {why})", file.display()),
    }
    let state =
        state::place(&settings).map_or_else(|| "none: HOME is not set".to_owned(), |it| it.display().to_string());
    say!("state    {state}");
    Ok(())
}

/// The directory of the settings file: the project's top, even if the file names a subdirectory.
fn project_dir(settings: &Settings) -> std::path::PathBuf {
    match &settings.project_file {
        ProjectFileStatus::Trusted(file)
        | ProjectFileStatus::Untrusted(file)
        | ProjectFileStatus::Unreadable(file, _) => file.parent().unwrap_or(&settings.workspace).to_owned(),
        ProjectFileStatus::Absent => settings.workspace.clone(),
    }
}
