//! The contract of every host about programs, as tests that need only the host.

use std::time::Duration;

use helve_contract::{
    Access, Workspace,
    ports::{Expect, Host, NetworkAccess, Process, ProcessEvent, ProcessSpec, Signal, Span, StdinSource, Streams},
};

use crate::sandbox::finish;

/// All stories, each with a host and a directory of its own.
macro_rules! program_stories {
    ($connect:expr) => {
        $crate::programs::program_stories! { $connect,
            both_streams_and_the_code input_that_is_given input_that_comes_later starts_where_it_is_told
            files_and_programs_see_the_same_folder a_signal_ends_the_tree dropping_ends_the_tree
            a_flood_is_taken_piece_by_piece many_at_once an_end_is_told_again says_what_does_not_exist
            merged_streams_keep_their_order
        }
    };
    ($connect:expr, $($story:ident)*) => {
        $({
            let ground = $crate::sandbox::Place::new();
            let workspace = $crate::programs::workspace(&ground);
            let host = $connect(workspace.clone()).await;
            $crate::programs::$story(&host, &workspace).await;
            println!("    {}", stringify!($story));
        })*
    };
}
pub(crate) use program_stories;

/// A workspace over a place where programs run.
pub(crate) fn workspace(place: &crate::sandbox::Place) -> Workspace {
    let root = helve_contract::Root::writable(&place.0);
    Workspace::new([root], helve_contract::PathRules::default(), helve_contract::PathStyle::Relative)
}

pub(crate) use crate::order::merged_streams_keep_their_order;

pub(crate) fn script(workspace: &Workspace, script: &str) -> ProcessSpec {
    let top = workspace.primary_root(Access::Read).unwrap();
    ProcessSpec {
        script: Some(script.to_owned()),
        argv: Vec::new(),
        cwd: top.clone(),
        roots: vec![workspace.primary_root(Access::Write).unwrap()],
        env: Vec::new(),
        stdin: StdinSource::Closed,
        network: NetworkAccess::Configured,
        terminal: None,
        report_cwd: false,
        streams: Streams::Separate,
    }
}

pub(crate) async fn both_streams_and_the_code(host: &dyn Host, workspace: &Workspace) {
    let ran = finish(host.spawn(&script(workspace, "echo out; echo err >&2; exit 7")).await.unwrap()).await;
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.exit.code, ran.exit.signal), ("out\n", "err\n", 7, None));
}

pub(crate) async fn input_that_is_given(host: &dyn Host, workspace: &Workspace) {
    let given =
        ProcessSpec { stdin: StdinSource::Bytes(b"one\ntwo\n".to_vec()), ..script(workspace, "wc -l; echo done") };
    let ran = finish(host.spawn(&given).await.unwrap()).await;
    assert_eq!((ran.out.replace(' ', "").as_str(), ran.exit.code), ("2\ndone\n", 0));
    // Without any, the program is at the end of its input at once.
    let ran = finish(host.spawn(&script(workspace, "wc -c")).await.unwrap()).await;
    assert_eq!(ran.out.trim(), "0");
}

pub(crate) async fn input_that_comes_later(host: &dyn Host, workspace: &Workspace) {
    let talk = "read name; echo hello $name; read name; echo bye $name; cat";
    let mut process = host.spawn(&ProcessSpec { stdin: StdinSource::Open, ..script(workspace, talk) }).await.unwrap();
    process.write(b"ann\n").await.unwrap();
    assert_eq!(told(&mut *process, "hello ann\n").await, "hello ann\n");
    process.write(b"bob\nrest").await.unwrap();
    assert_eq!(told(&mut *process, "bye bob\nrest").await, "bye bob\nrest");
    process.close_stdin().await.unwrap();
    let ran = finish(process).await;
    assert_eq!((ran.out.as_str(), ran.exit.code), ("", 0));
}

pub(crate) async fn starts_where_it_is_told(host: &dyn Host, workspace: &Workspace) {
    let file = workspace.check("inner/a b/file".as_ref(), Access::Write, None).unwrap();
    host.write(&file, b"", Expect::Anything).await.unwrap();
    let dir = workspace.check("inner/a b".as_ref(), Access::Read, None).unwrap();
    let there = ProcessSpec { cwd: dir.clone(), ..script(workspace, "pwd; echo $GREETING") };
    let there = ProcessSpec { env: vec![("GREETING".into(), "it's me".into())], ..there };
    let ran = finish(host.spawn(&there).await.unwrap()).await;
    assert_eq!(ran.out, format!("{}\nit's me\n", dir.host_path().display()));
}

pub(crate) async fn files_and_programs_see_the_same_folder(host: &dyn Host, workspace: &Workspace) {
    let file = workspace.check("note.txt".as_ref(), Access::Write, None).unwrap();
    host.write(&file, b"from the host\n", Expect::Absent).await.unwrap();
    let ran = finish(host.spawn(&script(workspace, "cat note.txt; echo more >> note.txt")).await.unwrap()).await;
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("from the host\n", ""));
    let read = host.read(&file, Span::first(100)).await.unwrap();
    assert_eq!(String::from_utf8(read.bytes).unwrap(), "from the host\nmore\n");
}

/// Appends to a file twenty times a second from a detached grandchild, and prints when it starts.
const HEART: &str = "setsid sh -c 'while :; do echo x >> beat; sleep 0.05; done' & \
     while ! test -s beat; do sleep 0.01; done; echo up; sleep 1000";

pub(crate) async fn a_signal_ends_the_tree(host: &dyn Host, workspace: &Workspace) {
    let mut process = host.spawn(&script(workspace, HEART)).await.unwrap();
    assert_eq!(told(&mut *process, "up\n").await, "up\n");
    process.signal(Signal::Terminate).await.unwrap();
    let ran = finish(process).await;
    assert_ne!(ran.exit.code, 0);
    assert_silence(host, workspace).await;
}

pub(crate) async fn dropping_ends_the_tree(host: &dyn Host, workspace: &Workspace) {
    let mut process = host.spawn(&script(workspace, HEART)).await.unwrap();
    assert_eq!(told(&mut *process, "up\n").await, "up\n");
    drop(process);
    assert_silence(host, workspace).await;
}

/// Waits up to ten seconds until nothing is appended for half a second.
async fn assert_silence(host: &dyn Host, workspace: &Workspace) {
    let beat = workspace.check("beat".as_ref(), Access::Read, None).unwrap();
    let mut last = host.stat(&beat).await.unwrap().size;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = host.stat(&beat).await.unwrap().size;
        if now == last {
            return;
        }
        last = now;
    }
    panic!("it still runs");
}

pub(crate) async fn a_flood_is_taken_piece_by_piece(host: &dyn Host, workspace: &Workspace) {
    let mut process = host.spawn(&script(workspace, "yes | head -c 20000000")).await.unwrap();
    let mut count = 0;
    let exit = loop {
        match process.next().await {
            ProcessEvent::Stdout(piece) => count += piece.len(),
            ProcessEvent::Stderr(piece) => panic!("{}", String::from_utf8_lossy(&piece)),
            ProcessEvent::Exit(exit) => break exit,
        }
        if count < 100_000 {
            // Somebody who reads slowly holds up the program, and nothing else.
            let top = workspace.primary_root(Access::Read).unwrap();
            host.list(&top).await.unwrap();
        }
    };
    assert_eq!((count, exit.code), (20_000_000, 0));
}

pub(crate) async fn many_at_once(host: &dyn Host, workspace: &Workspace) {
    let mut running = Vec::new();
    for number in 0..6 {
        let one = ProcessSpec { stdin: StdinSource::Open, ..script(workspace, &format!("cat; exit {number}")) };
        running.push(host.spawn(&one).await.unwrap());
    }
    for (number, mut process) in running.into_iter().enumerate().rev() {
        process.write(format!("I am {number}").as_bytes()).await.unwrap();
        process.close_stdin().await.unwrap();
        let ran = finish(process).await;
        assert_eq!((ran.out, ran.exit.code), (format!("I am {number}"), number as i32));
    }
}

pub(crate) async fn an_end_is_told_again(host: &dyn Host, workspace: &Workspace) {
    let mut process = host.spawn(&script(workspace, "exit 3")).await.unwrap();
    for _ in 0..3 {
        let ProcessEvent::Exit(exit) = process.next().await else { panic!("output") };
        assert_eq!(exit.code, 3);
    }
    // Too late, but no harm.
    process.signal(Signal::Kill).await.unwrap();
}

pub(crate) async fn says_what_does_not_exist(host: &dyn Host, workspace: &Workspace) {
    let ran = finish(host.spawn(&script(workspace, "no-such-program-here")).await.unwrap()).await;
    assert_eq!(ran.exit.code, 127);
    assert!(ran.err.contains("no-such-program-here"), "{}", ran.err);
}

/// Output until this much has come.
async fn told(process: &mut dyn Process, wanted: &str) -> String {
    let mut seen = Vec::new();
    while seen.len() < wanted.len() {
        match process.next().await {
            ProcessEvent::Stdout(piece) => seen.extend(piece),
            ProcessEvent::Stderr(piece) => panic!("{}", String::from_utf8_lossy(&piece)),
            ProcessEvent::Exit(exit) => panic!("it ended: {exit:?}, after {}", String::from_utf8_lossy(&seen)),
        }
    }
    String::from_utf8(seen).unwrap()
}

#[tokio::test]
async fn the_stories_hold_here() {
    for level in crate::sandbox::all_levels() {
        println!("{}:", level.name());
        let connect = async |_| {
            let sandbox = crate::sandbox::at(level);
            helve_hosts::LocalHost::with_spawner(std::sync::Arc::new(sandbox))
        };
        program_stories!(connect);
    }
}
