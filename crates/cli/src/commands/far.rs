//! The far side of a connection: `helve host-exec` and `helve host-serve`, started by `ssh` and by nobody else.

use std::{
    env,
    io::{stdin, stdout},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
};

use helve_hosts::{Allowed, host_exec, run_forced};
use tokio::fs::File;

use crate::{
    commands::Choice,
    config::{read_limited, xdg},
    fault::{Fault, Outcome},
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
pub(crate) struct Exec {
    /// The list; `~/.config/helve/host-commands` when left out.
    #[arg(long, value_name = "FILE")]
    allowed: Option<PathBuf>,
}

impl Exec {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let usual = || xdg("XDG_CONFIG_HOME", ".config").map(|it| it.join("helve/host-commands"));
        let file = self.allowed.or_else(usual).ok_or_else(|| Fault::usage("name the list with --allowed FILE"))?;
        let told = |why: String| Fault::failed(format!("{}: {why}; every command is denied", file.display()));
        let bytes = read_limited(&file).map_err(|error| told(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| told("not UTF-8".to_owned()))?;
        let allowed = Allowed::new(text.lines())?;
        let argv = host_exec(env::var("SSH_ORIGINAL_COMMAND").ok().as_deref(), &allowed)?;
        let code = run_forced(&argv).map_err(|error| Fault::failed(format!("{}: {error}", argv.join(" "))))?;
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    }
}

/// Be the host of a session on another machine, over standard input and output.
#[derive(clap::Args)]
#[command(after_help = "\
Example, which the other side runs by itself:
  ssh user@host helve host-serve")]
pub(crate) struct Serve {
    #[command(flatten)]
    choice: Choice,
}

impl Serve {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let settings = self.choice.settings_quietly(Vec::new())?;
        for text in &settings.remarks {
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
