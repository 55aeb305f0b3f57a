//! Kills at any moment: acknowledged writes survive, nothing is partial, and nothing is left behind.

use std::{
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use helve_faults::{
    BatchProcess, ConversationWorkload, FileWorkload, InjectedFault, MergeWorkload, MockModelThread, NoteWorkload,
    PatchWorkload, Rng, ScheduleWorkload, SpillWorkload, TestEnv, Totals, Workload, env_number, run_round, seed,
};
use helve_script::{ModelScript, ScriptStep};
use rusqlite::Connection;
use serde_json::json;

/// Kills a process with this workload repeatedly, in one environment.
fn killed_at(deed: &mut dyn Workload, usual: u64) {
    killed_on(&TestEnv::new().unwrap(), deed, usual);
}

fn killed_on(desk: &TestEnv, deed: &mut dyn Workload, usual: u64) {
    let (mut dice, mut tally) = (Rng::new(seed()), Totals::default());
    for _ in 0..env_number("HELVE_KILLS", usual) {
        let fault = match dice.below(5) {
            0 => InjectedFault::KilledAtStart(Duration::from_millis(dice.below(150))),
            _ => InjectedFault::Killed(Duration::from_micros(dice.below(60_000))),
        };
        run_round(desk, deed, &fault, None, &mut dice, &mut tally).unwrap();
    }
    eprintln!("{tally}");
    assert_eq!(tally.wrong, []);
    assert!(tally.acknowledged.values().sum::<u64>() > 0, "nothing was ever acknowledged");
}

#[test]
fn a_file_is_the_old_one_or_the_new_one() {
    killed_at(&mut FileWorkload::default(), 10);
}

#[test]
fn a_patch_is_there_as_a_whole_or_not_at_all() {
    killed_at(&mut PatchWorkload::default(), 12);
}

#[test]
fn notes_are_saved_changed_and_forgotten_in_one_step() {
    killed_at(&mut NoteWorkload::default(), 8);
}

#[test]
fn schedules_stay_made_and_stay_deleted() {
    killed_at(&mut ScheduleWorkload::default(), 8);
}

/// Whether commands run here; it is said where they do not.
fn runs_commands() -> bool {
    let desk = TestEnv::new().unwrap();
    let mut hand = BatchProcess::start(&desk, &[], "claude").unwrap();
    let tried = hand.call("Bash", json!({ "command": "git --version" })).unwrap();
    let runs = tried.is_some_and(|it| !it.is_error);
    if !runs {
        eprintln!("{}: NO SANDBOX HERE, OR NO GIT, SO NO COMMAND RUNS", helve_faults::SKIPPED);
    }
    runs
}

#[test]
fn an_output_that_was_named_is_whole() {
    if runs_commands() {
        killed_at(&mut SpillWorkload::default(), 4);
    }
}

#[test]
fn a_merge_that_was_told_is_there_and_no_branch_is_lost() {
    if runs_commands() {
        killed_at(&mut MergeWorkload::default(), 3);
    }
}

#[test]
fn a_turn_that_was_told_is_kept() {
    let (model, _) = MockModelThread::for_workloads().unwrap();
    killed_on(&model.configure(TestEnv::new().unwrap()), &mut ConversationWorkload::default(), 5);
    assert_eq!(model.requests().unwrap().1, Vec::<String>::new(), "every history was one that a strict provider takes");
}

#[test]
fn an_artifact_is_the_old_one_or_the_new_one() {
    let (model, mut artifacts) = MockModelThread::for_workloads().unwrap();
    killed_on(&model.configure(TestEnv::new().unwrap()), &mut artifacts, 4);
}

#[test]
fn a_conversation_goes_on_after_each_kill() {
    let mut dice = Rng::new(seed());
    // One file after the other until there are four, whatever happened before.
    let script = ModelScript::new([ScriptStep::computed(|request| {
        let said = request["messages"].to_string();
        let next = (1..=4).find(|at| !said.contains(&format!("wrote 2 bytes to part-{at}.txt")));
        match next {
            Some(at) => {
                ScriptStep::call("write", json!({ "path": format!("part-{at}.txt"), "content": format!("{at}\n") }))
            }
            None => ScriptStep::text("All four."),
        }
    })
    .repeat(10_000)]);
    let model = MockModelThread::start(script).unwrap();
    for _ in 0..env_number("HELVE_KILLS", 4).div_ceil(4) {
        let desk = model.configure(TestEnv::new().unwrap());
        let args = ["run", "write four files", "--dialect", "solo", "--mode", "bypassPermissions"];
        for turn in 0..4 {
            // A session that was begun is gone on with; one that was killed before is begun again.
            let mut words: Vec<&str> = args.into();
            if desk.store().exists() && desk.run(&["sessions", "list"]).unwrap().out.contains("write four") {
                words.push("--continue");
            }
            let mut command = desk.command(&[], &words);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_millis(30 + dice.below(200) * (turn + 1)));
            _ = child.kill();
            _ = child.wait();
        }
        let mut words: Vec<&str> = args.into();
        if desk.run(&["sessions", "list"]).unwrap().out.contains("write four") {
            words.push("--continue");
        }
        let ran = desk.run(&words).unwrap();
        assert_eq!((ran.code, ran.out.as_str()), (0, "All four.\n"), "{}", ran.err);
        for at in 1..=4 {
            let text = std::fs::read_to_string(desk.path(&format!("work/part-{at}.txt"))).unwrap();
            assert_eq!(text, format!("{at}\n"));
        }
    }
    assert_eq!(model.requests().unwrap().1, Vec::<String>::new(), "every history was one that a strict provider takes");
}

/// `helve schedule drive`, ended with the test.
struct Driver(Child);

impl Driver {
    fn start(desk: &TestEnv) -> Self {
        let mut command = desk.command(&[], &["schedule", "drive"]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn two_drivers_one_of_them_killed_run_every_occurrence_once() {
    let many = env_number("HELVE_OCCURRENCES", 6).min(45);
    let model = MockModelThread::start(ModelScript::new([]).fallback("Done.")).unwrap();
    let desk = model.configure(TestEnv::new().unwrap());
    let mut hand = BatchProcess::start(&desk, &[], "oxydra").unwrap();
    for at in 0..many {
        let args = json!({ "goal": format!("goal {at}"), "cadence_type": "interval", "cadence_value": "86400" });
        assert!(!hand.call("schedule_create", args).unwrap().unwrap().is_error);
    }
    hand.wait().unwrap();
    let store = Connection::open(desk.store()).unwrap();
    store.busy_timeout(Duration::from_secs(20)).unwrap();
    let past = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64 - 1_000_000;
    store.execute("UPDATE schedules SET next = ?1", [past]).unwrap();

    let mut dice = Rng::new(seed());
    let mut drivers = [Driver::start(&desk), Driver::start(&desk)];
    let count = |sql: &str| store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    let until = Instant::now() + Duration::from_secs(120);
    let mut killed = 0;
    while count("SELECT count(*) FROM schedule_runs WHERE status = 'success'") < many {
        assert!(Instant::now() < until, "the runs do not come to an end");
        thread::sleep(Duration::from_millis(20));
        // Once something runs, one of them dies, and another one takes its place. Its claims last for a minute, which is over
        // at once here; what the other one runs is claimed anew in time.
        if killed < env_number("HELVE_KILLS", 1) && count("SELECT count(*) FROM schedule_runs") > 0 {
            let one = &mut drivers[dice.below(2) as usize];
            one.kill();
            store.execute("UPDATE schedule_runs SET until = started WHERE status = 'running'", []).unwrap();
            // The sessions of those runs are claimed anew together with the runs.
            store.execute("UPDATE leases SET until = 0", []).unwrap();
            *one = Driver::start(&desk);
            killed += 1;
        }
    }
    assert_eq!(count("SELECT count(*) FROM schedule_runs"), many);
    assert_eq!(count("SELECT count(DISTINCT schedule || due) FROM schedule_runs"), many);
}
