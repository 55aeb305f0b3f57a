//! `helve`: the command line entry point.

mod attach;
mod commands;
mod terminal;
mod tokens;
mod wire;

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use helve_config::{self as config, state};
use helve_runtime::{
    fault, hosts, knobs, notify, outside, print, remark, rules, say, schedules, setup, shell, talk, undo, workshop,
};

const EXAMPLES: &str = "\
Examples:
  helve chat                               talk to a model that has the tools
  helve run \"fix the failing test\"        one task, for scripts
  helve tools --dialect claude             what a model can call
  helve call Read '{\"file_path\":\"/etc/hostname\"}' --workspace /etc
  helve call Bash '{\"command\":\"ls\"}'     run a command in the sandbox
  helve mcp --dialect solo                 serve the tools to an agent over MCP
  helve serve                              a page, an API, MCP and schedules in one process
  helve doctor                             what works on this machine";

/// The tool layer for LLM agents: five dialects, one engine, a sandbox the kernel enforces.
#[derive(Parser)]
#[command(name = "helve", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    Chat(commands::chat::Args),
    Sessions(commands::sessions::Args),
    Schedule(commands::schedule::Args),
    Memory(commands::memory::Args),
    Jobs(commands::jobs::Args),
    Forge(commands::forge::Args),
    Tools(commands::tools::Args),
    Call(commands::call::Args),
    Batch(commands::batch::Args),
    #[command(hide = true)]
    PlanBash(commands::plan_bash::Args),
    Mcp(commands::mcp::Args),
    Serve(commands::serve::Args),
    Doctor(commands::doctor::Args),
    Config(commands::config::Args),
    Policy(commands::policy::Args),
    Docs(commands::docs::Args),
    Completions(commands::manual::Completions),
    Man(commands::manual::Man),
    HostExec(commands::far::HostExecArgs),
    HostServe(commands::far::HostServeArgs),
    /// Print the version.
    #[command(after_help = "Example:\n  helve version")]
    Version,
}

fn main() -> ExitCode {
    // This binary is also the inner stage of its sandbox, and the child that parses documents.
    setup::dispatch_helper_process();
    let done = match parse_command_line() {
        Command::Run(args) => args.run(),
        Command::Chat(args) => args.run(),
        Command::Sessions(args) => args.run(),
        Command::Schedule(args) => args.run(),
        Command::Memory(args) => args.run(),
        Command::Jobs(args) => args.run(),
        Command::Forge(args) => args.run(),
        Command::Tools(args) => args.run(),
        Command::Call(args) => args.run(),
        Command::Batch(args) => args.run(),
        Command::PlanBash(args) => args.run(),
        Command::Mcp(args) => args.run(),
        Command::Serve(args) => args.run(),
        Command::Doctor(args) => args.run(),
        Command::Config(args) => args.run(),
        Command::Policy(args) => args.run(),
        Command::Docs(args) => args.run(),
        Command::Completions(args) => {
            args.run(Cli::command());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => args.run(Cli::command()),
        Command::HostExec(args) => args.run(),
        Command::HostServe(args) => args.run(),
        Command::Version => {
            say!("helve {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|fault| {
        remark!("error: {fault}");
        fault.exit_code()
    })
}

/// Parses the command line. Building all commands takes longer than some need to run, so frequently started ones are
/// built alone.
fn parse_command_line() -> Command {
    match std::env::args_os().nth(1).as_deref().and_then(|it| it.to_str()) {
        Some("mcp") => parse_single_command("mcp", Command::Mcp),
        Some("call") => parse_single_command("call", Command::Call),
        Some("run") => parse_single_command("run", Command::Run),
        _ => Cli::parse().command,
    }
}

/// The command with this name, if the command line starts with it.
fn parse_single_command<A: Args>(name: &'static str, wrap: fn(A) -> Command) -> Command {
    let only = A::augment_args(clap::Command::new(name));
    let mut helve = clap::Command::new("helve").version(env!("CARGO_PKG_VERSION")).subcommand(only);
    let matches = helve.get_matches_mut();
    let args = matches.subcommand_matches(name).map(A::from_arg_matches);
    match args {
        Some(Ok(args)) => wrap(args),
        Some(Err(error)) => error.format(&mut helve).exit(),
        // The name matched; parsing with all commands reports the error.
        None => Cli::parse().command,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_has_an_example() {
        let mut helve = super::Cli::command();
        helve.build();
        for command in helve.get_subcommands().filter(|it| it.get_name() != "help") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("helve "), "{}", command.get_name());
        }
        helve.debug_assert();
    }
}
