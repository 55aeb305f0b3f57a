//! Test binary: serves a host over standard input and output, or runs one command of an allowlist.

use std::{env, fs, io, process::ExitCode, sync::Arc};

use helve_hosts::{
    CommandAllowlist, LevelPolicy, LocalHost, Sandbox, SandboxConfig, check_forced_command, exec_forced_command, serve,
};

fn main() -> io::Result<ExitCode> {
    helve_hosts::run_helper_if_requested();
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["exec", list] => exec(list),
        _ => serve_stdio(),
    }
}

fn serve_stdio() -> io::Result<ExitCode> {
    let settings = SandboxConfig { level: LevelPolicy::BestOrNone, ..SandboxConfig::default() };
    let sandbox = Sandbox::new(settings).map_err(io::Error::other)?;
    let host = Arc::new(LocalHost::with_spawner(Arc::new(sandbox)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(host, tokio::io::stdin(), tokio::io::stdout()))?;
    // A thread that waits for input does not delay the exit.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

fn exec(list: &str) -> io::Result<ExitCode> {
    let allowed = CommandAllowlist::new(fs::read_to_string(list)?.lines()).map_err(io::Error::other)?;
    match check_forced_command(env::var("SSH_ORIGINAL_COMMAND").ok().as_deref(), &allowed) {
        Ok(argv) => Ok(ExitCode::from(exec_forced_command(&argv)? as u8)),
        Err(error) => {
            eprintln!("{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}
