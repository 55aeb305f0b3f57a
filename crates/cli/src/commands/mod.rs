//! The commands, one file each.

pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod far;
pub(crate) mod forge;
mod http;
mod install;
pub(crate) mod jobs;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod plan_bash;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod tools;

use std::path::PathBuf;

use helve_engine::Dialect;

use crate::{
    config::{CliOverride, Settings},
    fault::CliError,
    remark,
};

/// The flags of every command that looks at the settings.
#[derive(clap::Args)]
pub(crate) struct SettingsArgs {
    /// Which dialect's tools: their names, parameters and answers.
    #[arg(long, value_name = "D", value_parser = ["solo", "forge", "preset", "oxydra", "claude"])]
    pub(crate) dialect: Option<String>,
    /// The role or preset that decides which tools of the dialect there are.
    #[arg(long, value_name = "R")]
    pub(crate) role: Option<String>,
    /// The folder that tools work in; the current one when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The user whose memory, schedules and conversations are used.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The tenant whose sessions, notes and schedules are used; it sees nothing of other tenants.
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// A setting for this run alone, such as `sandbox.network=on`. `helve config` lists them all.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl SettingsArgs {
    /// The settings in force, with these flags over all else; what the user should know is told.
    pub(crate) fn load_and_warn(&self) -> Result<Settings, CliError> {
        let settings = self.load(Vec::new())?;
        for text in &settings.warnings {
            remark!("helve: {text}");
        }
        Ok(settings)
    }

    /// The current settings with further options, without printing warnings.
    pub(crate) fn load(&self, mut flags: Vec<CliOverride>) -> Result<Settings, CliError> {
        for pair in &self.set {
            let (key, text) = pair.split_once('=').ok_or_else(|| {
                CliError::usage(format!("--set {pair}: write it as KEY=VALUE, such as role=readonly"))
            })?;
            flags.push(CliOverride { key: key.trim().to_owned(), text: text.to_owned(), flag: "--set" });
        }
        let workspace = match &self.workspace {
            Some(path) => Some(path.to_str().ok_or_else(|| CliError::usage("--workspace must be UTF-8"))?.to_owned()),
            None => None,
        };
        let named = [
            ("dialect", "--dialect", self.dialect.clone()),
            ("role", "--role", self.role.clone()),
            ("user", "--user", self.user.clone()),
            ("store.tenant", "--tenant", self.tenant.clone()),
            ("workspace", "--workspace", workspace),
        ];
        for (key, shown, text) in named {
            flags.extend(text.map(|text| CliOverride { key: key.to_owned(), text, flag: shown }));
        }
        Settings::load(flags).map_err(CliError::usage)
    }
}

/// The dialect that the settings name.
pub(crate) fn configured_dialect(settings: &Settings) -> Result<Dialect, CliError> {
    let name = settings.dialect();
    helve_dialects::by_name(name).ok_or_else(|| CliError::usage(format!("there is no dialect `{name}`")))
}
