//! A tool that does nothing, through the whole pipeline: what the engine itself costs.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use helve_contract::{Effects, Entry, Reply, Spec};
use helve_engine::{Builder, Events};
use serde_json::{Value, json};

use crate::{
    desk::{Desk, in_memory},
    report::{Aim, Duel, Report},
};

/// What a model sends.
const ARGS: &str = r#"{"path": "src/main.rs", "limit": 20}"#;

pub(super) fn run(report: &mut Report) -> Result<()> {
    let (_held, root) = in_memory()?;
    let one = desk(&root, 1, Events::none())?;
    let entry = one.engine.get("noop_0").context("the tool is not there")?.clone();

    report.duel(
        Duel::of("no-op call", "the tool alone, arguments parsed").aim(Aim::Micros(5.0)),
        &mut |times| one.repeat(times, "noop_0", ARGS),
        &mut |times| {
            one.wait(async {
                for _ in 0..times {
                    let args: Value = serde_json::from_str(ARGS)?;
                    entry.run(args, one.call()).await.map_err(|error| anyhow::anyhow!("{error}"))?;
                }
                Ok(())
            })
        },
    )?;
    for tools in [10, 100, 1000] {
        let many = desk(&root, tools, Events::none())?;
        let last = format!("noop_{}", tools - 1);
        report.duel(
            Duel::of(&format!("no-op call, {tools} tools"), "no-op call, 1 tool").aim(Aim::Ratio(1.1)),
            &mut |times| many.repeat(times, &last, ARGS),
            &mut |times| one.repeat(times, "noop_0", ARGS),
        )?;
    }
    let recorded = desk(&root, 1, Events::file(root.join("events.ndjson"), "bench")?)?;
    report.duel(
        Duel::of("no-op call, events to a file", "no-op call, no events"),
        &mut |times| recorded.repeat(times, "noop_0", ARGS),
        &mut |times| one.repeat(times, "noop_0", ARGS),
    )
}

/// An engine with this many tools that do nothing, beside those of its dialect.
fn desk(root: &std::path::Path, tools: usize, events: Events) -> Result<Desk> {
    Desk::with("solo", root, |builder| Ok((0..tools).map(noop).fold(builder, Builder::tool).events(events)))
}

fn noop(number: usize) -> Entry {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "limit": { "type": "integer", "minimum": 1 } },
        "required": ["path"],
    });
    let spec = Spec {
        name: format!("noop_{number}"),
        aliases: Vec::new(),
        description: "Does nothing.".to_owned(),
        schema,
        output: None,
        effects: Effects::READS,
        tier: None,
        timeout: Duration::from_secs(60),
    };
    Entry::dynamic(spec, |_, _| async { Ok(Reply::from("done")) }.boxed())
}
