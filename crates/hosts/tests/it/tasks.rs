//! Tasks: what they wrote, how they end, and who may ask.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command as Program,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use helve_contract::{
    Call, PathRules, PathStyle, Ports, Root, Session, Workspace,
    ports::{
        Host, ProcessExit, ProcessSpec, ProcessStatus, SandboxLevel, Signal, StdinSource, TaskId, TaskOutput, Tasks,
        WaitUntil,
    },
};
use helve_hosts::{LevelPolicy, LocalHost, Sandbox, TaskRunner};

use crate::sandbox::{Place, settings, stage, survivors, unique_sleep};

/// A runner in a place, and calls of its session.
struct Desk {
    place: Place,
    files: Place,
    host: Arc<dyn Host>,
    runner: TaskRunner,
    call: Call,
}

impl Desk {
    fn new() -> Self {
        Self::with(LevelPolicy::BestOrNone)
    }

    fn with(wanted: LevelPolicy) -> Self {
        let (place, files) = (Place::new(), Place::new());
        let host: Arc<dyn Host> = Arc::new(LocalHost::with_spawner(Arc::new(Sandbox::new(settings(wanted)).unwrap())));
        let runner = TaskRunner::new(host.clone(), files.0.join("out"));
        let call = call(&place, &host, "one");
        Self { place, files, host, runner, call }
    }

    async fn start(&self, script: &str) -> TaskId {
        self.start_for(script, None).await
    }

    async fn start_for(&self, script: &str, time: Option<Duration>) -> TaskId {
        self.runner.start(&self.call, self.place.script(script), time, script).await.unwrap()
    }

    /// The task's end and all of its output that memory has.
    async fn finish(&self, id: &TaskId) -> (ProcessStatus, TaskOutput) {
        let info = self.runner.wait(&self.call, id, WaitUntil::Exit).await.unwrap();
        (info.status, self.runner.output(&self.call, id, 0, usize::MAX).await.unwrap())
    }
}

fn call(place: &Place, host: &Arc<dyn Host>, session: &str) -> Call {
    let workspace = Workspace::new([Root::writable(&place.0)], PathRules::default(), PathStyle::Relative);
    let ports = Ports::new(host.clone());
    Call::new("call", Arc::new(Session::new(session, workspace, ports)))
}

fn exit(code: i32) -> ProcessExit {
    ProcessExit { code, signal: (code > 128).then(|| code - 128), left_behind: false, denials: Vec::new(), dir: None }
}

#[tokio::test]
async fn keeps_both_streams_apart_and_together() {
    let desk = Desk::new();
    let id = desk.start("echo out; sleep 0.05; echo err >&2; sleep 0.05; printf 'a\\0b\\377'; exit 4").await;
    let (state, output) = desk.finish(&id).await;
    assert_eq!(state, ProcessStatus::Exited(exit(4)));
    let wanted = TaskOutput {
        merged: "out\nerr\na\\x00b\\xff".into(),
        stdout: "out\na\\x00b\\xff".into(),
        stderr: "err\n".into(),
        next: 12,
        skipped: 0,
    };
    assert_eq!(output, wanted);
}

#[tokio::test]
async fn output_is_read_while_the_task_runs() {
    let desk = Desk::new();
    let command =
        ProcessSpec { stdin: StdinSource::Open, ..desk.place.script("while read l; do echo got $l; done; echo end") };
    let id = desk.runner.start(&desk.call, command, None, "loop").await.unwrap();
    let mut from = 0;
    for word in ["one", "two"] {
        desk.runner.input(&desk.call, &id, format!("{word}\n").as_bytes()).await.unwrap();
        let output = loop {
            let output = desk.runner.output(&desk.call, &id, from, 100).await.unwrap();
            if !output.merged.is_empty() {
                break output;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(output.merged, format!("got {word}\n"));
        from = output.next;
    }
    let info = desk.runner.wait(&desk.call, &id, WaitUntil::Now).await.unwrap();
    assert_eq!((info.status, info.output_bytes, info.command.as_str()), (ProcessStatus::Running, 16, "loop"));
    let info = desk.runner.stop(&desk.call, &id).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Stopped(exit(143)));
    assert_eq!(desk.runner.stop(&desk.call, &id).await.unwrap().status, info.status);
    let error = desk.runner.input(&desk.call, &id, b"x").await.unwrap_err().to_string();
    assert_eq!(error, format!("task `{id}` has ended"));
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_ended_with_all_it_started() {
    let desk = Desk::new();
    let nap = unique_sleep();
    let script = format!(
        "trap '' TERM; (setsid bash -c 'trap \"\" TERM; sleep {nap}' &); echo partial; while :; do sleep {nap}; done"
    );
    let start = Instant::now();
    let id = desk.start_for(&script, Some(Duration::from_millis(300))).await;
    let (state, output) = desk.finish(&id).await;
    assert_eq!((state, output.merged.as_str()), (ProcessStatus::TimedOut(exit(137)), "partial\n"));
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(survivors(&nap).await, 0);
}

#[tokio::test]
async fn another_session_sees_nothing() {
    let desk = Desk::new();
    let id = desk.start("sleep 5").await;
    let other = call(&desk.place, &desk.host, "two");
    let error = desk.runner.signal(&other, &id, Signal::Kill).await.unwrap_err().to_string();
    assert_eq!(error, format!("no task `{id}` in this session; there are none"));
    assert_eq!(desk.runner.list(&other).await, []);
    let error = desk.runner.output(&desk.call, &TaskId("1".into()), 0, 1).await.unwrap_err().to_string();
    assert_eq!(error, format!("no task `1` in this session; there are {id}"));
}

#[tokio::test]
async fn a_wait_ends_with_time_or_with_the_caller() {
    let desk = Desk::new();
    let id = desk.start("sleep 30").await;
    let info = desk.runner.wait(&desk.call, &id, WaitUntil::For(Duration::from_millis(50))).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Running);
    desk.call.cancel.cancel();
    let info = desk.runner.wait(&desk.call, &id, WaitUntil::Exit).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Running);
    assert!(matches!(desk.runner.stop(&desk.call, &id).await.unwrap().status, ProcessStatus::Stopped(_)));
}

#[tokio::test]
async fn stopped_from_many_sides_a_task_ends_once() {
    for round in 0..24 {
        let desk = Desk::with(LevelPolicy::Exactly(SandboxLevel::None));
        let id = desk.start(["sleep 300", "true", "exit 3"][round % 3]).await;
        if round % 4 == 3 {
            desk.call.cancel.cancel();
        }
        for _ in 0..round * round {
            tokio::task::yield_now().await;
        }
        let stop = async || desk.runner.stop(&desk.call, &id).await.unwrap().status;
        let (one, two, three) = tokio::join!(stop(), stop(), stop());
        assert!(one != ProcessStatus::Running && one == two && two == three, "{round}: {one:?} {two:?} {three:?}");
        // Whoever asks later hears the same.
        assert_eq!([stop().await, desk.runner.list(&desk.call).await[0].status.clone()], [one.clone(), one]);
        let error = desk.runner.signal(&desk.call, &id, Signal::Kill).await.unwrap_err().to_string();
        assert_eq!(error, format!("task `{id}` has ended"));
    }
}

#[tokio::test]
async fn what_stands_still_is_ended_by_the_clock() {
    let zombie = "python3 -c 'import os, time; os.fork() or os._exit(0); time.sleep(1000)'";
    for script in ["kill -STOP $$; echo never", "mkfifo p; cat p", "(kill -STOP $BASHPID) & wait", zombie] {
        let desk = Desk::new();
        let id = desk.start_for(script, Some(Duration::from_millis(500))).await;
        let (state, output) = desk.finish(&id).await;
        assert!(matches!(state, ProcessStatus::TimedOut(_)), "{script}: {state:?}");
        assert_eq!(output.merged, "", "{script}");
        assert_eq!(desk.runner.list(&desk.call).await[0].status, state, "{script}");
    }
}

#[tokio::test]
async fn input_is_bytes_and_not_too_many_of_them() {
    let desk = Desk::new();
    let script = "head -c 10 | od -An -tx1; cat | wc -c";
    let command = ProcessSpec { stdin: StdinSource::Open, ..desk.place.script(script) };
    let id = desk.runner.start(&desk.call, command, None, "bytes").await.unwrap();
    // Neither an interrupt nor a title of a window: there is no terminal to obey it.
    desk.runner.input(&desk.call, &id, b"\x03\x04\x1b]0;PWN\x07").await.unwrap();
    let error = desk.runner.input(&desk.call, &id, &vec![0; (1 << 20) + 1]).await.unwrap_err().to_string();
    assert_eq!(error, "1048577 bytes are more than the 1048576 that may be sent at once; send them in parts");
    let output = loop {
        let output = desk.runner.output(&desk.call, &id, 0, 100).await.unwrap().merged;
        if output.ends_with('\n') {
            break output;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(output, " 03 04 1b 5d 30 3b 50 57 4e 07\n");
    // Signals are names of a list, not numbers.
    for signal in ["9", "SIGSTOP; id", "-9", ""] {
        assert!(Signal::parse(signal).unwrap_err().to_string().starts_with("unknown signal"), "{signal}");
    }
    desk.runner.stop(&desk.call, &id).await.unwrap();
}

#[tokio::test]
async fn progress_is_told_in_small_pieces() {
    let mut desk = Desk::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = told.clone();
    desk.call.progress = Some(Arc::new(move |text: &str| listener.lock().unwrap().push(text.to_owned())));
    let id =
        desk.start("echo one; sleep 0.3; echo two; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo three").await;
    desk.finish(&id).await;
    let told = told.lock().unwrap();
    assert!(told.len() > 1 && told[0] == "one\n", "{told:?}");
    assert!(told.iter().all(|piece| piece.len() <= 4096));
    assert!(told.last().unwrap().ends_with("three\n"));
}

#[tokio::test]
async fn long_output_is_whole_in_a_private_file() {
    let desk = Desk::new();
    let id = desk.start("seq 1 300000; printf '\\033[31m\\0end'").await;
    let (_, output) = desk.finish(&id).await;
    let info = desk.runner.wait(&desk.call, &id, WaitUntil::Now).await.unwrap();
    let file = info.output_file.unwrap();
    let bytes = fs::read(&file).unwrap();
    assert_eq!((bytes.len() as u64, info.output_bytes), (info.output_bytes, 1_988_895 + 9));
    assert!(bytes.starts_with(b"1\n2\n3\n") && bytes.ends_with(b"300000\n\x1b[31m\0end"));
    assert!(output.merged.starts_with("1\n2\n3\n") && output.merged.len() == 512 << 10);
    let end = desk.runner.output(&desk.call, &id, info.output_bytes - 20, 100).await.unwrap();
    assert_eq!(end.merged, "999\n300000\n\\x00end");
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(desk.files.0.join("out").to_str().unwrap())), (0o600, 0o700));
    desk.runner.forget(&desk.call, &id).await;
    assert!(desk.runner.list(&desk.call).await.is_empty() && fs::exists(file).unwrap());
}

#[tokio::test]
async fn one_too_many_is_refused_and_the_oldest_finished_is_forgotten() {
    let desk = Desk::with(LevelPolicy::Exactly(SandboxLevel::None));
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(desk.start("sleep 30").await);
    }
    let error = desk.runner.start(&desk.call, desk.place.script("true"), None, "true").await.unwrap_err();
    assert_eq!(error.to_string(), "64 commands are running in this session already, which is the most; stop one first");
    for id in &ids {
        desk.runner.stop(&desk.call, id).await.unwrap();
    }
    let id = desk.start("true").await;
    desk.finish(&id).await;
    let listed: Vec<_> = desk.runner.list(&desk.call).await.into_iter().map(|info| info.id).collect();
    assert_eq!(listed.len(), 64);
    assert!(!listed.contains(&ids[0]) && listed.contains(&ids[1]) && listed.contains(&id));
}

#[tokio::test]
async fn dropping_the_runner_ends_everything() {
    let desk = Desk::new();
    let nap = unique_sleep();
    for _ in 0..5 {
        desk.start(&format!("setsid sleep {nap} & sleep {nap}")).await;
    }
    let Desk { runner, .. } = desk;
    drop(runner);
    assert_eq!(survivors(&nap).await, 0);
}

#[tokio::test]
async fn ending_a_session_ends_its_tasks_only() {
    let desk = Desk::new();
    let (ours, theirs) = (unique_sleep(), unique_sleep());
    desk.start(&format!("sleep {ours}")).await;
    let other = call(&desk.place, &desk.host, "two");
    let id = desk.runner.start(&other, desk.place.script(&format!("sleep {theirs}")), None, "x").await.unwrap();
    desk.runner.end_session("one");
    assert_eq!(survivors(&ours).await, 0);
    assert_eq!(desk.runner.wait(&other, &id, WaitUntil::Now).await.unwrap().status, ProcessStatus::Running);
}

/// The most memory this process has used, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// Runs in a process of its own, because it looks at how much memory the process has used.
#[tokio::test(flavor = "current_thread")]
#[ignore = "a part of `sixty_four_floods_at_once_are_bounded`"]
async fn sixty_four_floods() {
    let desk = Desk::with(LevelPolicy::Exactly(SandboxLevel::None));
    let scripts = ["yes", "yes >&2", "cat /dev/zero", "while :; do echo out; echo err >&2; done"];
    let mut ids = Vec::new();
    for at in 0..64 {
        ids.push(desk.start_for(scripts[at % 4], Some(Duration::from_secs(4))).await);
    }
    for id in &ids {
        desk.runner.wait(&desk.call, id, WaitUntil::Now).await.unwrap();
        desk.runner.output(&desk.call, id, 0, 1000).await.unwrap();
    }
    for id in &ids {
        let info = desk.runner.wait(&desk.call, id, WaitUntil::Exit).await.unwrap();
        assert!(matches!(info.status, ProcessStatus::TimedOut(_)) && info.output_bytes > 0, "{info:?}");
    }
    println!("{} MiB at most", peak());
    assert!(peak() < 256, "{} MiB", peak());
}

#[test]
fn sixty_four_floods_at_once_are_bounded() {
    let done = Program::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tasks::sixty_four_floods", "--nocapture"])
        .env("HELVE_IT_STAGE", stage())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    print!("{text}");
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
}
