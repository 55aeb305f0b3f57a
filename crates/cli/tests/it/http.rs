//! Tests of `helve mcp --http`: authentication and cleanup.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::desk::{Desk, mode};

/// A server that says where it is.
struct Site {
    child: Child,
    /// Address and port.
    at: String,
    token: String,
    file: String,
}

fn serve(desk: &Desk) -> Site {
    spawn(desk.command(&["mcp", "--http", "127.0.0.1:0"]))
}

fn spawn(mut command: Command) -> Site {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut after = |mark: &str| said.find_map(|line| Some(line.split_once(mark)?.1.to_owned())).unwrap();
    let at = after("http://").replace("/mcp", "");
    let token = after("Bearer ");
    let (token, file) = token.split_once(" (also in ").unwrap();
    Site { child, at, token: token.to_owned(), file: file.trim_end_matches(')').to_owned() }
}

fn ask(site: &Site, token: &str) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
    let mut stream = TcpStream::connect(&site.at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let (at, length) = (&site.at, body.len());
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_token_is_told_once_and_kept_for_the_owner() {
    let desk = Desk::new();
    let mut site = serve(&desk);
    assert_eq!(site.token.len(), 32);
    let file = std::path::Path::new(&site.file);
    assert_eq!((mode(file), std::fs::read_to_string(file).unwrap()), (0o600, format!("{}\n", site.token)));

    assert!(ask(&site, "guess").starts_with("HTTP/1.1 401"));
    let hello = ask(&site, &site.token);
    assert!(hello.starts_with("HTTP/1.1 200"), "{hello}");
    assert!(hello.contains("\"serverInfo\":{\"name\":\"helve\""), "{hello}");

    kill_process(Pid::from_child(&site.child), Signal::TERM).unwrap();
    assert_eq!(site.child.wait().unwrap().code(), Some(0));
    assert!(!file.exists());
}

#[test]
fn other_machines_need_a_token() {
    let ran = Desk::new().run(&["mcp", "--http", "0.0.0.0:0", "--no-auth"]);
    let why = "error: --http 0.0.0.0:0: other machines can reach it; leave --no-auth out\n";
    assert_eq!(ran.all(), (2, "", why));
}

#[test]
fn half_requests_do_not_stop_the_service() {
    let desk = Desk::new();
    let helve = desk.command(&["mcp", "--http", "127.0.0.1:0"]);
    // The system gives this server 256 open files and no more.
    let mut limited = Command::new("sh");
    limited.arg("-c").arg("ulimit -n 256 && exec \"$0\" \"$@\"").arg(helve.get_program()).args(helve.get_args());
    limited.env_clear();
    limited.envs(helve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(helve.get_current_dir().unwrap());
    let mut site = spawn(limited);
    let held: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(&site.at).unwrap();
            _ = stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ");
            stream
        })
        .collect();
    for _ in 0..3 {
        let hello = ask(&site, &site.token);
        assert!(hello.starts_with("HTTP/1.1 200"), "{hello}");
    }
    drop(held);
    kill_process(Pid::from_child(&site.child), Signal::TERM).unwrap();
    site.child.wait().unwrap();
}
