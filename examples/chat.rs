//! The loop as a library: a conversation about a folder, line by line.
//!
//! Run it with `cargo run -p helve-agent --example chat`; it finds a model by a well-known key or on this machine.

use std::{io::Write, sync::Arc};

use helve_agent::{
    Agent, AgentEvent, Engine, TurnStopReason,
    model::{ModelConfig, OpenAi, discover},
};
use helve_contract::{PathRules, Ports, Root, Session, Workspace};
use helve_engine::{Gate, Mode, protected_path_rules};
use helve_hosts::LocalHost;
use helve_store::SqliteStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let found = discover(&|name: &str| std::env::var(name).ok(), &ModelConfig::default()).await?;
    println!("{} (from {})", found.endpoint.model, found.source);
    let model = OpenAi::new(found.endpoint)?;
    model.fetch_model_info().await;

    // The tools of one dialect over the present folder; what only looks may run, the rest is refused.
    let dialect = helve_dialects::claude();
    let roots = [Root::writable(std::env::current_dir()?)];
    let workspace = Workspace::new(roots, PathRules::new(protected_path_rules()), dialect.path_style);
    let store = SqliteStore::open(std::env::temp_dir().join("helve-chat.db"))?;
    let ports = Ports { store: Arc::new(store), ..Ports::new(Arc::new(LocalHost::new())) };
    let session = Arc::new(Session::new(format!("chat-{}", std::process::id()), workspace, ports));
    let only = ["Read", "Glob", "Grep"].map(str::to_owned).to_vec();
    let engine = Arc::new(Engine::builder(dialect).only(only).gate(Gate::new(Mode::Default)).build()?);

    let mut agent = Agent::new(engine, session, Arc::new(model));
    agent.listener = Arc::new(|event: &AgentEvent| match event {
        AgentEvent::Text(text) => {
            print!("{text}");
            _ = std::io::stdout().flush();
        }
        AgentEvent::ToolCallStarted { name, input, .. } => println!("[{name} {input}]"),
        AgentEvent::Retrying { why, .. } => println!("[{why}; asking again]"),
        _ => {}
    });
    for line in std::io::stdin().lines() {
        match agent.send_text(&line?).await?.stop_reason {
            TurnStopReason::Completed => println!(),
            ended => println!("\n[{ended:?}]"),
        }
    }
    Ok(())
}
