//! The host tests in a container: of a real engine if `HELVE_DOCKER_HOST` names one, otherwise of a test server that
//! implements the API on loopback and runs programs on this machine.

use std::{
    collections::{HashMap, HashSet},
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use helve_contract::{
    Workspace,
    ports::{Host, TerminalSize},
};
use helve_hosts::{DockerConfig, LocalHost};
use serde_json::{Value, json};

use crate::{
    folder::Folder,
    programs::{self, program_stories},
    remote::all_stories,
    sandbox::{Place, finish},
    stub::{Request, Server},
    suite,
};

/// What a placeholder for an engine knows.
#[derive(Default)]
struct Engine {
    images: HashSet<String>,
    containers: HashMap<String, Value>,
    programs: HashMap<String, Program>,
    count: u32,
    asked: Vec<String>,
}

#[derive(Clone)]
struct Program {
    wanted: Value,
    running: bool,
    code: Option<i32>,
}

type Shared = Arc<Mutex<Engine>>;

/// Prints which engine the tests use, and returns how to reach it.
fn engine() -> (DockerConfig, Shared, Option<Server>) {
    let state = Shared::default();
    let own = format!("{}:{}", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if let Ok(endpoint) = std::env::var("HELVE_DOCKER_HOST") {
        println!("docker: a real engine at {endpoint}");
        let image = std::env::var("HELVE_DOCKER_IMAGE").unwrap_or_else(|_| "debian:12".into());
        return (DockerConfig { endpoint, image, user: Some(own), ..DockerConfig::default() }, state, None);
    }
    println!("docker: a stand-in on loopback that runs programs here; HELVE_DOCKER_HOST names a real engine");
    let shared = state.clone();
    let server = Server::start(move |request| answer(request, &shared));
    let endpoint = format!("tcp://127.0.0.1:{}", server.port);
    (DockerConfig { endpoint, user: Some(own), ..DockerConfig::default() }, state, Some(server))
}

fn answer(request: Request, state: &Shared) {
    let mut engine = state.lock().unwrap();
    engine.asked.push(format!("{} {}", request.method, request.path));
    let path = request.path.clone();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (status, body) = match (request.method.as_str(), &parts[..]) {
        ("GET", ["version"]) => (200, json!({ "Version": "27.1", "ApiVersion": "1.46" })),
        ("GET", ["images", "debian:12", "json"]) => (200, json!({ "Id": "sha256:1" })),
        ("GET", ["images", .., "json"]) => (404, json!({ "message": "No such image" })),
        ("POST", ["images", "create"]) => {
            let image = request.query["fromImage"].clone();
            engine.images.insert(image);
            (200, json!({ "status": "Pulled" }))
        }
        ("POST", ["containers", "create"]) => {
            let wanted = request.json();
            if !engine.images.contains(wanted["Image"].as_str().unwrap()) {
                (404, json!({ "message": "No such image" }))
            } else {
                engine.count += 1;
                let id = format!("c{}", engine.count);
                engine.containers.insert(id.clone(), wanted);
                (201, json!({ "Id": id, "Warnings": [] }))
            }
        }
        ("POST", ["containers", id, "start"]) => {
            (if engine.containers.contains_key(*id) { 204 } else { 404 }, Value::Null)
        }
        ("DELETE", ["containers", id]) => {
            (if engine.containers.remove(*id).is_some() { 204 } else { 404 }, Value::Null)
        }
        ("POST", ["containers", id, "exec"]) if engine.containers.contains_key(*id) => {
            engine.count += 1;
            let id = format!("e{}", engine.count);
            let program = Program { wanted: request.json(), running: false, code: None };
            engine.programs.insert(id.clone(), program);
            (201, json!({ "Id": id }))
        }
        ("POST", ["exec", id, "start"]) => {
            let (id, wanted) = ((*id).to_owned(), engine.programs[*id].wanted.clone());
            engine.programs.get_mut(&id).unwrap().running = true;
            drop(engine);
            return run(request, &id, &wanted, state);
        }
        ("POST", ["exec", _, "resize"]) => (200, Value::Null),
        ("GET", ["exec", id, "json"]) => {
            let program = &engine.programs[*id];
            (200, json!({ "Running": program.running, "ExitCode": program.code }))
        }
        _ => (404, json!({ "message": "No such container" })),
    };
    drop(engine);
    request.answer(status, body);
}

/// Runs a program as the engine would: a session of its own, output in frames over the line that is taken over.
fn run(request: Request, id: &str, wanted: &Value, state: &Shared) {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let with_input = wanted["AttachStdin"].as_bool() == Some(true);
    let terminal = wanted["Tty"].as_bool() == Some(true);
    let mut command = Command::new("setsid");
    if terminal {
        // A terminal is one stream: what was written first is read first.
        command.args(["sh", "-c", r#"exec "$@" 2>&1"#, "sh"]);
    }
    command
        .args(words(&wanted["Cmd"]))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs(words(&wanted["Env"]).iter().filter_map(|it| it.split_once('=')))
        .current_dir(wanted["WorkingDir"].as_str().unwrap_or("/"))
        .stdin(if with_input { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let detached = request.json()["Detach"].as_bool() == Some(true);
    let mut line = request.line.get_ref().try_clone().unwrap();
    if detached {
        request.answer(200, Value::Null);
    } else {
        assert_eq!(request.headers["upgrade"], "tcp");
        line.write_all(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").unwrap();
        if let Some(mut stdin) = child.stdin.take() {
            let mut from = request.line;
            // Copied manually: the kernel's copy would hold the pipe until there is more data.
            thread::spawn(move || {
                let mut bytes = [0; 8192];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if stdin.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    }
    let out = Arc::new(Mutex::new(line.try_clone().unwrap()));
    let pumps = [
        pump(child.stdout.take().unwrap(), 1, terminal, out.clone()),
        pump(child.stderr.take().unwrap(), 2, terminal, out),
    ];
    let status = child.wait().unwrap();
    let code = status.code().or(std::os::unix::process::ExitStatusExt::signal(&status).map(|it| 128 + it));
    {
        let mut engine = state.lock().unwrap();
        let program = engine.programs.get_mut(id).unwrap();
        (program.running, program.code) = (false, code);
    }
    for pump in pumps {
        pump.join().unwrap();
    }
    _ = line.shutdown(Shutdown::Both);
}

fn pump(
    mut from: impl Read + Send + 'static,
    stream: u8,
    terminal: bool,
    to: Arc<Mutex<TcpStream>>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 8192];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut frame = if terminal { vec![] } else { vec![stream, 0, 0, 0] };
            if !terminal {
                frame.extend((count as u32).to_be_bytes());
            }
            frame.extend(&bytes[..count]);
            _ = to.lock().unwrap().write_all(&frame);
        }
    })
}

#[tokio::test]
async fn the_stories_hold_in_a_container() {
    let (docker, state, _server) = engine();
    let open = async |workspace: Workspace| -> LocalHost { docker.open(&workspace).await.unwrap() };
    all_stories!(open);
    program_stories!(open);
    assert_eq!(state.lock().unwrap().containers.len(), 0, "a container was left behind");
}

#[tokio::test]
async fn a_session_makes_one_container_and_removes_it() {
    let (docker, state, server) = engine();
    if server.is_none() {
        return;
    }
    let place = Place::new();
    let host = docker.open_lazy(programs::workspace(&place));
    assert_eq!(state.lock().unwrap().asked, [""; 0]);
    let running = host.spawn(&place.script("sleep 1000")).await.unwrap();
    assert_eq!(finish(host.spawn(&place.script("echo hi")).await.unwrap()).await.out, "hi\n");
    let (asked, wanted) = {
        let engine = state.lock().unwrap();
        (engine.asked.clone(), engine.containers["c1"].clone())
    };
    assert_eq!(
        asked[..6],
        [
            "POST /containers/create",
            "POST /images/create",
            "POST /containers/create",
            "POST /containers/c1/start",
            "POST /containers/c1/exec",
            "POST /exec/e2/start"
        ]
    );
    assert_eq!(wanted["HostConfig"]["Mounts"][0]["Target"], json!(place.0));
    assert_eq!((&wanted["HostConfig"]["NetworkMode"], &wanted["Image"]), (&json!("none"), &json!("debian:12")));
    // The host goes first; its program keeps the container until it goes too.
    drop(host);
    assert_eq!(state.lock().unwrap().containers.len(), 1);
    drop(running);
    assert_eq!(state.lock().unwrap().containers.len(), 0);
}

#[tokio::test]
async fn a_daemon_that_holds_the_output_does_not_hold_up_the_answer() {
    let (docker, _, _server) = engine();
    let place = Place::new();
    let host = docker.open(&programs::workspace(&place)).await.unwrap();
    let ran = finish(host.spawn(&place.script("setsid sleep 1000 & echo started; exit 4")).await.unwrap()).await;
    assert_eq!((ran.out.as_str(), ran.exit.code, ran.exit.left_behind), ("started\n", 4, true));
}

#[tokio::test]
async fn a_terminal_is_one_stream() {
    let (docker, _, _server) = engine();
    let place = Place::new();
    let host = docker.open(&programs::workspace(&place)).await.unwrap();
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let command = helve_contract::ports::ProcessSpec { terminal, ..place.script("echo one; exit 2") };
    let ran = finish(host.spawn(&command).await.unwrap()).await;
    assert_eq!((ran.out.replace('\r', "").as_str(), ran.err.as_str(), ran.exit.code), ("one\n", "", 2));
}

#[tokio::test]
async fn a_check_says_what_the_engine_has() {
    let (docker, _, server) = engine();
    if server.is_none() {
        return;
    }
    let endpoint = docker.endpoint.clone();
    let facts = docker.probe().await.unwrap();
    let answers = format!("the container engine 27.1 answers at {endpoint}");
    assert_eq!(facts, [answers.clone(), "the image debian:12 is there".to_owned()]);
    let other = DockerConfig { image: "registry.example/team/tools:3".into(), ..docker };
    let image = "the image registry.example/team/tools:3 is not there; it is pulled for the first command";
    assert_eq!(other.probe().await.unwrap(), [answers, image.to_owned()]);
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_told() {
    let docker = DockerConfig { endpoint: "unix:///nowhere/docker.sock".into(), ..DockerConfig::default() };
    let Err(error) = docker.open(&Folder::new().workspace()).await else { panic!("it opened") };
    let error = error.to_string();
    assert!(error.starts_with("the container engine at unix:///nowhere/docker.sock cannot be reached"), "{error}");
}
