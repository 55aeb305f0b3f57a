//! The client's directories narrow its session, and its tools may change while it lasts.

use std::{fs, path::Path, sync::Arc};

use futures::FutureExt;
use helve_contract::{
    Access, Effects, Entry, PathGlob, PathRule, PathRules, PathStyle, Ports, Reply, Root, Session, Workspace,
    ports::NoHost,
};
use helve_engine::Engine;
use helve_mcp::{HttpConfig, McpServerConfig, McpService};
use serde_json::{Value, json};

use crate::{
    client::Client,
    dialect::{dialect, spec},
    web::{Site, Web},
};

const NEWEST: &str = "2025-11-25";

/// A tool that says where the session may go.
fn whereabouts() -> Entry {
    let none = json!({ "type": "object", "properties": {} });
    Entry::dynamic(spec("whereabouts", "Says where.", &none, Effects::READS), |_, call| {
        async move {
            call.workspace_root()?;
            let dirs = call.session.workspace.roots().iter().map(|root| root.dir.display().to_string());
            Ok(Reply::from(dirs.collect::<Vec<_>>().join(" ")))
        }
        .boxed()
    })
}

fn late(description: &str) -> Entry {
    let none = json!({ "type": "object", "properties": {} });
    Entry::dynamic(spec("late", description, &none, Effects::READS), |_, _| async { Ok("here".into()) }.boxed())
}

fn server(top: &Path) -> (Arc<Engine>, Arc<McpService>) {
    let engine = Arc::new(Engine::builder(dialect()).tool(whereabouts()).build().unwrap());
    let workspace = Workspace::new([Root::writable(top)], PathRules::default(), PathStyle::Absolute);
    let session = Arc::new(Session::new("s", workspace, Ports::new(Arc::new(NoHost))));
    (engine.clone(), Arc::new(McpService::new(engine, session, McpServerConfig::default())))
}

fn answer(client: &mut Client, asked: &Value, folders: &[&Path]) {
    assert_eq!(asked["method"], "roots/list", "{asked}");
    let roots: Vec<_> = folders.iter().map(|it| json!({ "uri": format!("file://{}", it.display()) })).collect();
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": roots } }));
}

fn text(said: &Value) -> String {
    said["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_clients_folders_narrow_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    let (one, two) = (top.join("one"), top.join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    std::os::unix::fs::symlink("/etc", top.join("out")).unwrap();
    let mut client = Client::at(server(&top).1);
    client.hello(NEWEST, &json!({ "roots": { "listChanged": true } }));

    let asked = client.call("whereabouts", json!({}));
    answer(&mut client, &asked, &[&one, Path::new("/etc"), &top.join("out"), Path::new("/no/such")]);
    assert_eq!(text(&client.next()), one.display().to_string());
    assert_eq!(text(&client.call("whereabouts", json!({}))), one.display().to_string(), "it is asked once");

    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    client.send(&changed);
    let asked = client.call("whereabouts", json!({}));
    answer(&mut client, &asked, &[&two]);
    assert_eq!(text(&client.next()), two.display().to_string());

    client.send(&changed);
    let asked = client.call("whereabouts", json!({}));
    answer(&mut client, &asked, &[Path::new("/etc"), &two]);
    assert_eq!(text(&client.next()), two.display().to_string());

    client.send(&changed);
    let asked = client.call("whereabouts", json!({}));
    answer(&mut client, &asked, &[Path::new("/")]);
    assert_eq!(text(&client.next()), top.display().to_string(), "never more than the workspace");
}

/// Some agents name the directory they were started in as their only root, wherever the server works.
#[test]
fn folders_that_do_not_overlap_the_workspace_change_nothing() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let top = dir.path().canonicalize().unwrap();
    for folders in [&[elsewhere.path()][..], &[Path::new("/no/such")], &[Path::new("/etc"), elsewhere.path()]] {
        let mut client = Client::at(server(&top).1);
        client.hello(NEWEST, &json!({ "roots": {} }));
        let asked = client.call("whereabouts", json!({}));
        answer(&mut client, &asked, folders);
        assert_eq!(text(&client.next()), top.display().to_string(), "{folders:?}");
    }
}

/// The operator chose the workspace: a directory that may not become a root changes nothing, and stays protected.
#[test]
fn a_client_that_opened_a_protected_folder_has_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    fs::create_dir(top.join("secret")).unwrap();
    let rule = PathRule::new(PathGlob::new("secret"), Access::Read, "is denied");
    let workspace = Workspace::new([Root::writable(&top)], PathRules::new([rule]), PathStyle::Absolute);
    let session = Arc::new(Session::new("s", workspace, Ports::new(Arc::new(NoHost))));
    let engine = Arc::new(Engine::builder(dialect()).tool(whereabouts()).build().unwrap());
    let mut client = Client::at(Arc::new(McpService::new(engine, session, McpServerConfig::default())));
    client.hello(NEWEST, &json!({ "roots": {} }));
    let asked = client.call("whereabouts", json!({}));
    answer(&mut client, &asked, &[&top.join("secret")]);
    assert_eq!(text(&client.next()), top.display().to_string());
}

#[test]
fn a_client_that_cannot_say_or_says_nothing_has_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    let mut client = Client::at(server(&top).1);
    client.hello(NEWEST, &json!({}));
    assert_eq!(text(&client.call("whereabouts", json!({}))), top.display().to_string());

    let mut client = Client::at(server(&top).1);
    client.hello(NEWEST, &json!({ "roots": {} }));
    let asked = client.call("whereabouts", json!({}));
    let error = json!({ "code": -32603, "message": "no" });
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error }));
    assert_eq!(text(&client.next()), top.display().to_string());
}

#[test]
fn a_script_that_offers_roots_is_not_kept_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::at(server(dir.path()).1);
    client.hello(NEWEST, &json!({ "roots": {} }));
    let asked = client.call("echo", json!({ "text": "hi" }));
    assert_eq!(asked["method"], "roots/list");
    assert_eq!(client.leave().last().map(text).as_deref(), Some("hi"));
}

#[test]
fn clients_hear_of_new_tools() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, server) = server(dir.path());
    let mut client = Client::at(server);
    client.hello(NEWEST, &json!({}));
    let listed = |client: &mut Client| client.ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len();
    let before = listed(&mut client);

    engine.replace_external_tools(vec![whereabouts(), late("Comes late.")]).unwrap();
    assert_eq!(client.next(), json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {} }));
    assert_eq!(listed(&mut client), before + 1);
    assert_eq!(text(&client.call("late", json!({}))), "here");

    engine.replace_external_tools(vec![whereabouts()]).unwrap();
    assert_eq!(client.next()["method"], "notifications/tools/list_changed");
    assert_eq!(client.call("late", json!({}))["error"]["code"], -32602);
}

#[test]
fn roots_are_asked_for_on_the_stream_of_the_call() {
    let site = Site::with(HttpConfig::default());
    let mut web = Web::at(site.at);
    web.hello(NEWEST, &json!({ "roots": {} }));
    let mut flow = web.call(7, "draw");
    let asked = std::iter::from_fn(|| flow.event()).find(|(_, it)| it["method"] == "roots/list").unwrap().1;
    let said = web.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } }));
    assert_eq!(said.status, 202);
    let done = std::iter::from_fn(|| flow.event()).find(|(_, it)| it["id"] == 7).unwrap().1;
    assert_eq!(done["result"]["isError"], false, "{done}");
}
