//! Runs faults for a while, and counts injected faults, acknowledged steps and violations.

use std::{process::ExitCode, time::Duration};

use clap::Parser;

/// Kills, failing system calls and full disks against everything that Helve keeps, until the time is over.
#[derive(Parser)]
struct Args {
    /// How long, in minutes.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// The same seed makes the same choices.
    #[arg(long, env = "HELVE_SEED")]
    seed: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    helve_faults::exec_in_mount_namespace();
    let seed = args.seed.unwrap_or_else(helve_faults::seed);
    if !helve_faults::strace_available() {
        eprintln!("{}: strace is not here or may not trace; no system call will fail", helve_faults::SKIPPED);
    }
    if helve_faults::unshare_command().is_none() {
        eprintln!("{}: nothing can be mounted here; no disk will be full", helve_faults::SKIPPED);
    }
    let mut seen = 0;
    let tally = helve_faults::run_mixed(Duration::from_secs(args.minutes * 60), seed, &mut |tally| {
        for (round, wrong) in tally.wrong.iter().skip(seen) {
            eprintln!("!! {round}: {wrong:?}");
        }
        seen = tally.wrong.len();
    })?;
    println!("seed {seed}, {} min\n{tally}", args.minutes);
    Ok(if tally.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
