//! The loop as a library: a conversation about a folder, line by line.
//!
//! Run it with `cargo run -p helve-agent --example chat`; it finds a model by a well-known key or on this machine.

use std::{io::Write, sync::Arc};

use helve_agent::{
    Agent, Ended, Engine, Event,
    model::{OpenAi, Wanted, find},
};
use helve_contract::{PathRules, Ports, Root, Session, Workspace};
use helve_engine::{Gate, Mode, protected};
use helve_hosts::Local;
use helve_store::Sqlite;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let found = find(&|name: &str| std::env::var(name).ok(), &Wanted::default()).await?;
    println!("{} (from {})", found.endpoint.model, found.from);
    let model = OpenAi::new(found.endpoint)?;
    model.learn().await;

    // The tools of one dialect over the present folder; what only looks may run, the rest is refused.
    let dialect = helve_dialects::claude();
    let roots = [Root::writable(std::env::current_dir()?)];
    let workspace = Workspace::new(roots, PathRules::new(protected()), dialect.reading);
    let store = Sqlite::open(std::env::temp_dir().join("helve-chat.db"))?;
    let ports = Ports { store: Arc::new(store), ..Ports::new(Arc::new(Local::new())) };
    let session = Arc::new(Session::new(format!("chat-{}", std::process::id()), workspace, ports));
    let only = ["Read", "Glob", "Grep"].map(str::to_owned).to_vec();
    let engine = Arc::new(Engine::builder(dialect).only(only).gate(Gate::new(Mode::Default)).build()?);

    let mut agent = Agent::new(engine, session, Arc::new(model));
    agent.watcher = Arc::new(|event: &Event| match event {
        Event::Text(text) => {
            print!("{text}");
            _ = std::io::stdout().flush();
        }
        Event::Calling { name, input, .. } => println!("[{name} {input}]"),
        Event::Retrying { why, .. } => println!("[{why}; asking again]"),
        _ => {}
    });
    for line in std::io::stdin().lines() {
        match agent.say(&line?).await?.ended {
            Ended::Done => println!(),
            ended => println!("\n[{ended:?}]"),
        }
    }
    Ok(())
}
