//! Compares Helve with programs that do the same work: every figure is a ratio of interleaved measurements.

mod data;
mod desk;
mod groups;
mod growth;
mod http;
mod measure;
mod page;
mod peers;
mod plot;
mod report;
mod wire;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};

use crate::{
    measure::{BenchEffort, Scale},
    report::BenchReport,
};

const HELP: &str = "\
Usage: bench/run [--only GROUP[,GROUP]] [--like TEXT] [--quick | --check] [--calm] [--write PAGE] [--helve PATH] [--out DIR]

  --only GROUP   engine, start, mcp, http, files, search, exec, patch, memory, schedules, shell, forge, web or load;
                 all of them when left out
  --like TEXT    only comparisons with this text in their name
  --quick        fewer rounds and smaller trees: to see that it runs, not for figures
  --check        short, for CI: fails where an aim is missed five times over
  --calm         before all other work of the machine; needs root
  --write PAGE   write the tables into this page, between its two marks, and pictures beside it
  --helve PATH   the `helve` that is started; the one beside this program when left out
  --out DIR      where results.json, results.md and the pictures go

Peers come from `bench/peers`. HELVE_CALLS=N: calls of each of the 50 clients in the group load.";

/// What was asked for on the command line.
struct BenchArgs {
    only: Vec<String>,
    like: String,
    scale: Scale,
    helve: Option<PathBuf>,
    write: Option<PathBuf>,
    out: PathBuf,
}

fn main() -> ExitCode {
    helve_hosts::run_helper_if_requested();
    helve_web::run_parser_if_requested();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if matches!(args.first().map(String::as_str), Some("--help" | "-h")) {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match parse_args(args).and_then(|wishes| run(&wishes)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn parse_args(args: Vec<String>) -> Result<BenchArgs> {
    let mut wishes = BenchArgs {
        only: Vec::new(),
        like: String::new(),
        scale: Scale::Full,
        helve: None,
        write: None,
        out: "bench/out".into(),
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value; see --help"));
        match arg.as_str() {
            "--only" => wishes.only.extend(value()?.split(',').map(str::to_owned)),
            "--like" => wishes.like = value()?,
            "--quick" => wishes.scale = Scale::Quick,
            "--check" => wishes.scale = Scale::Check,
            "--helve" => wishes.helve = Some(value()?.into()),
            "--write" => wishes.write = Some(value()?.into()),
            "--out" => wishes.out = value()?.into(),
            other => bail!("unknown option {other}; see --help"),
        }
    }
    if let Some(name) = wishes.only.iter().find(|name| !groups::ALL.iter().any(|(known, _)| known == name)) {
        let known: Vec<_> = groups::ALL.iter().map(|(name, _)| *name).collect();
        bail!("there is no group {name}; there are {}", known.join(", "));
    }
    Ok(wishes)
}

/// Runs the groups. What fails is told, and the others still run.
fn run(wishes: &BenchArgs) -> Result<ExitCode> {
    let effort = match wishes.scale {
        Scale::Full => BenchEffort::full(),
        Scale::Quick => BenchEffort::quick(),
        Scale::Check => BenchEffort::check(),
    };
    let mut report = BenchReport::new(effort, wishes.helve.clone(), wishes.like.clone());
    let short = |name: &str| wishes.scale != Scale::Check || groups::CHECK_GROUPS.contains(&name);
    for (name, group) in groups::ALL {
        let named = wishes.only.iter().any(|it| it == name);
        if named || (wishes.only.is_empty() && short(name)) {
            report.begin(name);
            if let Err(error) = group(&mut report) {
                report.fail(&format!("{error:#}"));
            }
        }
    }
    report.write(&wishes.out)?;
    if let Some(page) = &wishes.write {
        report.write_into(page)?;
    }
    let faults = report.failures();
    for fault in &faults {
        eprintln!("FAILED: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
