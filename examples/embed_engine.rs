//! Helve as a library: an engine over a folder, and two calls as a model would make them.
//!
//! Run it with `cargo run -p helve-cli --example embed_engine`.

use std::sync::Arc;

use helve_contract::{Call, PathRules, Ports, Root, Session, Workspace};
use helve_engine::{Engine, Gate, Mode, protected_path_rules};
use helve_hosts::LocalHost;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // Where the session may go: one folder that may be changed, with the protected names left alone.
    let folder = std::env::temp_dir().join(format!("helve-embed-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let dialect = helve_dialects::claude();
    let roots = [Root::writable(folder.canonicalize()?)];
    let workspace = Workspace::new(roots, PathRules::new(protected_path_rules()), dialect.path_style);

    // What it can reach: files of this machine, no programs.
    let ports = Ports::new(Arc::new(LocalHost::new()));
    let session = Arc::new(Session::new("example", workspace, ports));

    // What the model can call, and what is asked before.
    let engine = Engine::builder(dialect)
        .only(vec!["Read".into(), "Write".into()])
        .gate(Gate::new(Mode::AcceptEdits))
        .build()?;
    for spec in engine.specs() {
        println!("offers {}", spec.name);
    }

    let file = folder.canonicalize()?.join("hello.txt").display().to_string();
    let write = serde_json::json!({ "file_path": file, "content": "Hello from a tool.\n" });
    let reply = engine.run("Write", write, Call::new("call-1", session.clone())).await;
    println!("{}", reply.text);

    // A model's arguments come as text, and not always as good JSON.
    let reply = engine.run("Read", format!("{{'file_path': '{file}',}}"), Call::new("call-2", session)).await;
    println!("{}", reply.text);

    std::fs::remove_dir_all(folder)?;
    Ok(())
}
