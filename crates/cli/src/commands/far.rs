//! The remote end of a connection: `helve host-exec` and `helve host-serve`, started over `ssh`.

use std::{
    env,
    io::{stdin, stdout},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
};

use helve_hosts::{CommandAllowlist, check_forced_command, exec_forced_command};
use tokio::fs::File;

use crate::{
    commands::SettingsArgs,
    config::{read_limited, xdg_dir},
    fault::{CliError, CommandResult},
    remark, setup, shell,
};

/// Run one listed command for another machine: the forced command of a line in `authorized_keys`.
///
/// The list is a file with one command a line: a single word allows a program with any arguments, several words allow
/// exactly that command. There is no shell.
#[derive(clap::Args)]
#[command(after_help = "\
Example, in ~/.ssh/authorized_keys:
  restrict,command=\"helve host-exec --allowed /etc/helve/host-commands\" ssh-ed25519 AAAA… agent")]
pub(crate) struct HostExecArgs {
    /// The list; `~/.config/helve/host-commands` when left out.
    #[arg(long, value_name = "FILE")]
    allowed: Option<PathBuf>,
}

impl HostExecArgs {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let usual = || xdg_dir("XDG_CONFIG_HOME", ".config").map(|it| it.join("helve/host-commands"));
        let file = self.allowed.or_else(usual).ok_or_else(|| CliError::usage("name the list with --allowed FILE"))?;
        let told = |why: String| CliError::failed(format!("{}: {why}; every command is denied", file.display()));
        let bytes = read_limited(&file).map_err(|error| told(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| told("not UTF-8".to_owned()))?;
        let allowed = CommandAllowlist::new(text.lines())?;
        let argv = check_forced_command(env::var("SSH_ORIGINAL_COMMAND").ok().as_deref(), &allowed)?;
        let code =
            exec_forced_command(&argv).map_err(|error| CliError::failed(format!("{}: {error}", argv.join(" "))))?;
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    }
}

/// Be the host of a session on another machine, over standard input and output.
#[derive(clap::Args)]
#[command(after_help = "\
Example, which the other side runs by itself:
  ssh user@host helve host-serve")]
pub(crate) struct HostServeArgs {
    #[command(flatten)]
    choice: SettingsArgs,
}

impl HostServeArgs {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load(Vec::new())?;
        for text in &settings.warnings {
            remark!("helve: {text}");
        }
        let host = shell::local_host(&settings)?;
        let input = std::fs::File::from(stdin().as_fd().try_clone_to_owned()?);
        let output = std::fs::File::from(stdout().as_fd().try_clone_to_owned()?);
        let runtime = setup::runtime()?;
        runtime.block_on(helve_hosts::serve(host, File::from_std(input), File::from_std(output)))?;
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }
}
