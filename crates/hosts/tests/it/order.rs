//! Output of both streams arrives in the order written, wherever the command runs.

use helve_contract::{
    Workspace,
    ports::{Host, Process, ProcessEvent, ProcessSpec, Streams},
};
use helve_hosts::Spawn as _;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::sandbox::{Place, all_levels, at};

/// A script that writes to the two streams in this order (`true` is standard error), and what it writes.
pub(crate) fn interleaved(order: &[bool]) -> (String, String) {
    let (mut script, mut expected) = (String::new(), String::new());
    for (at, is_error) in order.iter().enumerate() {
        let piece = format!("{}{at} ", if *is_error { 'e' } else { 'o' });
        script.push_str(&format!("printf '{piece}'{}\n", if *is_error { " >&2" } else { "" }));
        expected.push_str(&piece);
    }
    (script, expected)
}

/// Everything that a process reports as written, in the order reported.
pub(crate) async fn written(mut process: Box<dyn Process>) -> String {
    let mut all = Vec::new();
    loop {
        match process.next().await {
            ProcessEvent::Stdout(piece) | ProcessEvent::Stderr(piece) => all.extend(piece),
            ProcessEvent::Exit(exit) => {
                assert_eq!(exit.code, 0, "{}", String::from_utf8_lossy(&all));
                return String::from_utf8(all).unwrap();
            }
        }
    }
}

/// A story for every host: streams that alternate, and a child that writes between its parent's writes.
pub(crate) async fn merged_streams_keep_their_order(host: &dyn Host, workspace: &Workspace) {
    let order: Vec<bool> = (0..200_u32).map(|at| (at * at / 3) % 2 == 0).collect();
    let (script, expected) = interleaved(&order);
    let script = format!("{script}sh -c 'echo child; echo child >&2'\necho end >&2\n");
    let command = ProcessSpec { streams: Streams::Merged, ..crate::programs::script(workspace, &script) };
    assert_eq!(written(host.spawn(&command).await.unwrap()).await, format!("{expected}child\nchild\nend\n"));
}

#[test]
fn a_thousand_interleavings_arrive_in_order_at_every_level() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Place::new();
    for level in all_levels() {
        let sandbox = at(level);
        // Each case is a command with ten interleavings in it.
        let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
        runner
            .run(&vec(vec(any::<bool>(), 1..40), 10), |orders| {
                let (script, expected) = interleaved(&orders.concat());
                let command = ProcessSpec { streams: Streams::Merged, ..place.script(&script) };
                let all = runtime.block_on(async { written(sandbox.spawn(&command).await.unwrap()).await });
                prop_assert_eq!(all, expected, "{}", level.name());
                Ok(())
            })
            .unwrap();
    }
}

#[tokio::test]
async fn separate_streams_stay_separate() {
    let place = Place::new();
    for level in all_levels() {
        let command = place.script("echo out; echo err >&2; echo out2");
        let ran = crate::sandbox::run(&at(level), &command).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\nout2\n", "err\n"), "{}", level.name());
        let merged = ProcessSpec { streams: Streams::Merged, ..command };
        let ran = crate::sandbox::run(&at(level), &merged).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\nerr\nout2\n", ""), "{}", level.name());
    }
}
