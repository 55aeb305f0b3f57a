//! A tool of your own: a plain async function, called by a model beside the built-in ones.
//!
//! Run it with `cargo run -p helve-cli --example own_tool`.

use std::sync::Arc;

use helve_contract::{Call, Entry, PathRules, PathStyle, Ports, Result, Root, Session, Workspace, ports::Span};
use helve_engine::Engine;
use helve_macros::tool;

/// Counts the words of a file.
#[tool(reads, timeout = 10)]
async fn word_count(
    call: &Call,
    /// File to count.
    path: String,
) -> Result<String> {
    let path = call.check_read(path)?;
    call.report_progress("reading");
    let file = call.host().read(&path, Span::first(1 << 20)).await?;
    Ok(format!("{path}: {} words", String::from_utf8_lossy(&file.bytes).split_whitespace().count()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let here = Workspace::new([Root::readable(std::env::current_dir()?)], PathRules::default(), PathStyle::Relative);
    let ports = Ports::new(Arc::new(helve_hosts::LocalHost::new()));
    let mut call = Call::new("call-1", Arc::new(Session::new("example", here, ports)));
    call.progress = Some(Arc::new(|text| println!("… {text}")));

    let engine = Engine::builder(helve_dialects::preset()).tool(Entry::from_tool::<WordCount>()).build()?;
    println!("{}", engine.run("word_count", r#"{"path": "Cargo.toml"}"#, call).await.text);
    Ok(())
}
