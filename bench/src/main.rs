//! Helve beside the plain programs that do the same work: every figure is a ratio of two sides measured in turns.

mod data;
mod desk;
mod groups;
mod measure;
mod report;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};

use crate::{measure::Effort, report::Report};

const HELP: &str = "\
Usage: bench/run [--only GROUP[,GROUP]] [--like TEXT] [--quick] [--calm] [--helve PATH] [--out DIR]

  --only GROUP   engine, files, search, patch, exec, mcp, memory, schedules, forge or web; all of them when left out
  --like TEXT    only comparisons with this text in their name
  --quick        fewer pairs and smaller trees: to see that it runs, not for figures
  --calm         before all other work of the machine; needs root
  --helve PATH   the `helve` that the group mcp starts; the one beside this program when left out
  --out DIR      where results.json and results.md go";

/// What was asked for on the command line.
struct Wishes {
    only: Vec<String>,
    like: String,
    quick: bool,
    helve: Option<PathBuf>,
    out: PathBuf,
}

fn main() -> ExitCode {
    helve_hosts::inner_stage();
    helve_web::child_stage();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("echo") => groups::echo(),
        Some("--help" | "-h") => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => wishes(args).and_then(|wishes| run(&wishes)),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn wishes(args: Vec<String>) -> Result<Wishes> {
    let mut wishes =
        Wishes { only: Vec::new(), like: String::new(), quick: false, helve: None, out: "bench/out".into() };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value; see --help"));
        match arg.as_str() {
            "--only" => wishes.only.extend(value()?.split(',').map(str::to_owned)),
            "--like" => wishes.like = value()?,
            "--quick" => wishes.quick = true,
            "--helve" => wishes.helve = Some(value()?.into()),
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
fn run(wishes: &Wishes) -> Result<ExitCode> {
    let effort = if wishes.quick { Effort::quick() } else { Effort::full() };
    let mut report = Report::new(effort, wishes.helve.clone(), wishes.like.clone());
    for (name, group) in groups::ALL {
        if wishes.only.is_empty() || wishes.only.iter().any(|it| it == name) {
            report.begin(name);
            if let Err(error) = group(&mut report) {
                report.fail(&format!("{error:#}"));
            }
        }
    }
    report.write(&wishes.out)?;
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
