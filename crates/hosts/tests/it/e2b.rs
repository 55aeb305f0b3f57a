//! The host tests in a sandbox: of a real service if `HELVE_E2B_URL` and `HELVE_E2B_KEY` are set, otherwise of a test
//! server that implements the API on loopback.

use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::Workspace;
use helve_hosts::{E2bConfig, E2bHost, HostSettings, RemoteClient};
use serde_json::{Value, json};

use crate::{
    folder::Folder,
    programs::{self, program_stories},
    remote::all_stories,
    sandbox::{Place, finish},
    stub::{Request, Server},
    suite,
};

/// What a placeholder for the service knows.
#[derive(Default)]
struct Service {
    sandboxes: Vec<String>,
    count: u32,
    children: HashMap<u64, (Child, Option<ChildStdin>)>,
    asked: Vec<Value>,
}

type Shared = Arc<Mutex<Service>>;

fn service() -> (E2bConfig, Shared, Option<Server>) {
    let state = Shared::default();
    let far = env!("CARGO_BIN_EXE_helve-far");
    if let (Ok(url), Ok(key)) = (std::env::var("HELVE_E2B_URL"), std::env::var("HELVE_E2B_KEY")) {
        println!("e2b: the real service at {url}");
        let url = (url != "https://api.e2b.app").then_some(url);
        let template = std::env::var("HELVE_E2B_TEMPLATE").ok();
        return (E2bConfig { url, template, upload: Some(far.into()), ..E2bConfig::with_key(key) }, state, None);
    }
    println!(
        "e2b: a stand-in on loopback that runs processes here; HELVE_E2B_URL and HELVE_E2B_KEY name a real service"
    );
    let shared = state.clone();
    let server = Server::start(move |request| answer(request, &shared));
    let url = Some(format!("http://127.0.0.1:{}", server.port));
    (E2bConfig { url, program: Some(far.into()), ..E2bConfig::with_key("k") }, state, Some(server))
}

fn answer(request: Request, state: &Shared) {
    let header = |name: &str| request.headers.get(name).map_or("", String::as_str).to_owned();
    let path = request.path.clone();
    let known = if path.starts_with("/sandboxes") {
        ["k", env!("CARGO_PKG_VERSION")].contains(&header("x-api-key").as_str())
    } else {
        header("x-access-token") == "t"
    };
    if !known {
        return request.answer(401, json!({ "code": 401, "message": "Invalid API key" }));
    }
    let mut service = state.lock().unwrap();
    let (status, body) = match (request.method.as_str(), path.as_str()) {
        ("POST", "/sandboxes") => {
            service.count += 1;
            let id = format!("s{}", service.count);
            service.sandboxes.push(id.clone());
            service.asked.push(request.json());
            (
                201,
                json!({ "sandboxID": id, "templateID": "base", "clientID": "c", "envdVersion": "0.2.0", "envdAccessToken": "t" }),
            )
        }
        ("GET", "/sandboxes") => (200, service.sandboxes.iter().map(|id| json!({ "sandboxID": id })).collect()),
        ("DELETE", path) => {
            let id = path.trim_start_matches("/sandboxes/").to_owned();
            service.sandboxes.retain(|it| *it != id);
            (204, Value::Null)
        }
        ("POST", "/files") => {
            let boundary = header("content-type").split_once("boundary=").unwrap().1.to_owned();
            let start = request.body.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
            let end = request.body.len() - format!("\r\n--{boundary}--\r\n").len();
            assert_eq!(request.query["username"], "user");
            fs::write(&request.query["path"], &request.body[start..end]).unwrap();
            (200, json!([{ "path": request.query["path"], "name": "helve", "type": "file" }]))
        }
        ("POST", "/process.Process/Start") => {
            drop(service);
            assert_eq!(header("e2b-sandbox-port"), "49983");
            return start(request, state);
        }
        ("POST", "/process.Process/SendInput") => {
            let wanted = request.json();
            let bytes = BASE64.decode(wanted["input"]["stdin"].as_str().unwrap()).unwrap();
            let pid = wanted["process"]["pid"].as_u64().unwrap();
            // Taken out while it is written to: a pipe that is full must not hold up the others.
            let pipe = service.children.get_mut(&pid).and_then(|it| it.1.take());
            drop(service);
            let Some(mut pipe) = pipe else { return request.answer(404, json!({ "message": "no such process" })) };
            let written = pipe.write_all(&bytes).and_then(|()| pipe.flush());
            service = state.lock().unwrap();
            if let Some(child) = service.children.get_mut(&pid) {
                child.1 = Some(pipe);
            }
            if written.is_ok() { (200, json!({})) } else { (500, json!({ "message": "it reads no more" })) }
        }
        ("POST", "/process.Process/SendSignal") => {
            let pid = request.json()["process"]["pid"].as_u64().unwrap();
            if let Some((child, input)) = service.children.get_mut(&pid) {
                *input = None;
                _ = child.kill();
            }
            (200, json!({}))
        }
        _ => (404, json!({ "code": 404, "message": "not found" })),
    };
    drop(service);
    request.answer(status, body);
}

/// Runs a process and tells its events as they come.
fn start(mut request: Request, state: &Shared) {
    let length = u32::from_be_bytes(request.body[1..5].try_into().unwrap()) as usize;
    let wanted: Value = serde_json::from_slice(&request.body[5..5 + length]).unwrap();
    let arguments = wanted["process"]["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let mut child = Command::new(wanted["process"]["cmd"].as_str().unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (pid, input, mut output) = (u64::from(child.id()), child.stdin.take(), child.stdout.take().unwrap());
    state.lock().unwrap().children.insert(pid, (child, input));
    let line = request.line.get_mut();
    line.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let mut tell = |flag: u8, body: Value| {
        let body = body.to_string();
        let mut message = vec![flag];
        message.extend((body.len() as u32).to_be_bytes());
        message.extend(body.bytes());
        // In two chunks, cut anywhere: a reader must not take one for a message.
        let (one, two) = message.split_at(3);
        [one, two].iter().all(|piece| {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            line.write_all(&chunk).is_ok()
        })
    };
    tell(0, json!({ "event": { "start": { "pid": pid } } }));
    tell(0, json!({ "event": { "keepalive": {} } }));
    let mut bytes = vec![0; 30_000];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        if !tell(0, json!({ "event": { "data": { "stdout": BASE64.encode(&bytes[..count]) } } })) {
            break;
        }
    }
    let child = state.lock().unwrap().children.remove(&pid);
    if let Some((mut child, input)) = child {
        drop(input);
        _ = child.kill();
        _ = child.wait();
    }
    tell(0, json!({ "event": { "end": { "exitCode": 0, "exited": true, "status": "exit status 0" } } }));
    tell(2, json!({}));
    _ = line.write_all(b"0\r\n\r\n");
}

#[tokio::test]
async fn the_stories_hold_in_a_sandbox() {
    let (e2b, state, _server) = service();
    let open = async |workspace: Workspace| -> RemoteClient { e2b.open(&workspace).await.unwrap() };
    all_stories!(open);
    program_stories!(open);
    // Whatever still held one has been given up; it goes as soon as that is seen to.
    for _ in 0..1000 {
        if state.lock().unwrap().sandboxes.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("a sandbox was left behind");
}

#[tokio::test]
async fn the_program_is_brought_along() {
    let (e2b, state, server) = service();
    if server.is_none() {
        return;
    }
    let home = Place::new();
    let far = env!("CARGO_BIN_EXE_helve-far");
    let e2b = E2bConfig { program: None, upload: Some(far.into()), home: Some(home.0.clone()), ..e2b };
    let place = Place::new();
    let host = e2b.open(&programs::workspace(&place)).await.unwrap();
    assert_eq!(home.names(), ["helve"]);
    let ran = finish(helve_contract::ports::Host::spawn(&host, &place.script("echo hi")).await.unwrap()).await;
    assert_eq!((ran.out.as_str(), ran.exit.code), ("hi\n", 0), "{}", ran.err);
    let asked = state.lock().unwrap().asked[0].clone();
    let metadata = json!({ "helve": "session" });
    let wanted = json!({ "templateID": "base", "timeout": 300, "secure": true, "allow_internet_access": false, "metadata": metadata });
    assert_eq!(asked, wanted);
}

#[tokio::test]
async fn settings_open_a_host_in_a_sandbox() {
    let (e2b, state, server) = service();
    if server.is_none() {
        return;
    }
    let place = Place::new();
    let workspace = programs::workspace(&place);
    let settings = |key_variable: &str| {
        HostSettings::E2b(E2bHost {
            key_variable: key_variable.to_owned(),
            url: e2b.url.clone(),
            program: e2b.program.clone(),
            workspace: place.0.clone(),
            ..E2bHost::default()
        })
    };
    let missing = settings("HELVE_IT_NO_SUCH_KEY").probe().await.unwrap_err().to_string();
    assert_eq!(missing, "the environment variable HELVE_IT_NO_SUCH_KEY holds no E2B key; set it");
    assert!(settings("HELVE_IT_NO_SUCH_KEY").open(&workspace, None).is_err());
    // A variable of Cargo's whose value the service does not know.
    let wrong = settings("CARGO_PKG_NAME").probe().await.unwrap_err().to_string();
    assert_eq!(wrong, "the sandbox service did not list its sandboxes (401): Invalid API key");
    // The placeholder knows this value as its key, too.
    let host = settings("CARGO_PKG_VERSION").open(&workspace, None).unwrap();
    assert_eq!(state.lock().unwrap().count, 0, "nothing is made before the first use");
    let ran = finish(host.spawn(&place.script("echo hi")).await.unwrap()).await;
    assert_eq!((ran.out.as_str(), ran.exit.code), ("hi\n", 0), "{}", ran.err);
    let facts = settings("CARGO_PKG_VERSION").probe().await.unwrap();
    assert!(facts[0].ends_with("accepts the key; 1 sandboxes run for it"), "{facts:?}");
}

#[tokio::test]
async fn a_wrong_key_is_told() {
    let (e2b, _, server) = service();
    if server.is_none() {
        return;
    }
    let e2b = E2bConfig { key: "wrong".into(), ..e2b };
    let Err(error) = e2b.open(&Folder::new().workspace()).await else { panic!("it opened") };
    assert_eq!(error.to_string(), "the sandbox service did not make a sandbox (401): Invalid API key");
}
