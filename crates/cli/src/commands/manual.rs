//! `helve completions` and `helve man`: generated from the command line definition.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Command;
use clap_complete::Shell;

use crate::{
    fault::{CliError, CommandResult},
    print, say,
};

/// Print what a shell needs to complete commands and options.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve completions bash > ~/.local/share/bash-completion/completions/helve
  helve completions fish > ~/.config/fish/completions/helve.fish
  helve completions zsh > ~/.zfunc/_helve        with ~/.zfunc in $fpath")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Runs the command.
    pub(crate) fn run(self, mut helve: Command) {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut helve, "helve", &mut text);
        print::write_stdout(&text);
    }
}

/// Write the manual pages, one for each command.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  helve man ~/.local/share/man/man1 && man helve-mcp")]
pub(crate) struct Man {
    /// The folder; it is made if it is not there.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Runs the command.
    pub(crate) fn run(self, helve: Command) -> CommandResult {
        let told = |error: std::io::Error| CliError::failed(format!("{}: {error}", self.folder.display()));
        fs::create_dir_all(&self.folder).map_err(told)?;
        clap_mangen::generate_to(helve.disable_help_subcommand(true), &self.folder).map_err(told)?;
        say!("the manual is in {}; begin with: man helve", self.folder.display());
        Ok(ExitCode::SUCCESS)
    }
}
