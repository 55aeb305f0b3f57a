//! Clock jumps under the real program, and days with clock changes.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use helve_faults::{MockModelThread, SKIPPED, TestEnv};
use helve_script::ModelScript;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The library that `faketime` puts before a program. By itself it leaves the program's own number to be stopped by.
fn faketime() -> Option<String> {
    let tried = Command::new("faketime").args(["-f", "+10h", "env"]).stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(tried.stdout).ok()?;
    said.lines().find(|line| line.starts_with("LD_PRELOAD=")).map(str::to_owned)
}

/// An hour, as the store counts time.
const HOUR: i64 = 3_600_000_000;

/// Drives the schedules with a clock that is this many hours off, until this many runs have ended and the driver has
/// ticked twice more.
fn drive(desk: &TestEnv, store: &Connection, library: &str, hours: i64, ended: i64) {
    let off = format!("FAKETIME={hours:+}h");
    let wrap = ["env".to_owned(), library.to_owned(), off.clone(), "DONT_FAKE_MONOTONIC=1".to_owned()];
    let mut command = desk.command(&wrap, &["schedule", "drive"]);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64 + hours * HOUR;
    let witness = |at: i64| store.execute("UPDATE schedules SET next = ?1 WHERE goal = 'witness'", [at]).unwrap();
    let count = |goal: &str| -> i64 {
        let sql = "SELECT count(*) FROM schedule_runs JOIN schedules ON schedules.id = schedule \
                   WHERE goal = ?1 AND schedule_runs.status = 'success'";
        store.query_row(sql, [goal], |row| row.get(0)).unwrap()
    };
    let is_put_off = |now: i64| -> bool {
        let sql = "SELECT count(*) FROM schedules WHERE goal = 'witness' AND next > ?1 AND NOT EXISTS \
                   (SELECT 1 FROM schedule_runs WHERE schedule = schedules.id AND schedule_runs.status <> 'success')";
        store.query_row(sql, [now], |row| row.get::<_, i64>(0)).unwrap() > 0
    };
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < until, "{what}, {off}: {:?}", runs(store));
            thread::sleep(Duration::from_millis(50));
        }
    };
    witness(now() + 100_000 * HOUR);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait("a run does not come", &|| count("look") >= ended);
    // Whatever storms does so in the looks in which the witness is seen.
    for _ in 0..2 {
        let before = count("witness");
        witness(now() - 1_000_000);
        wait("the driver does not look", &|| {
            // What the driver has to write about the last run may undo it.
            if count("witness") == before && is_put_off(now()) {
                witness(now() - 1_000_000);
            }
            count("witness") > before
        });
    }
    assert_eq!(count("look"), ended, "{off}: {:?}", runs(store));
    let open = "SELECT count(*) FROM schedule_runs WHERE status <> 'success'";
    assert_eq!(store.query_row(open, [], |row| row.get::<_, i64>(0)), Ok(0), "{off}: {:?}", runs(store));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait().unwrap();
}

/// Due, begun, attempt and status of all runs.
fn runs(store: &Connection) -> Vec<(String, String, i64, String)> {
    let time = |name: &str| format!("datetime({name} / 1000000, 'unixepoch')");
    let sql = format!("SELECT {}, {}, attempt, status FROM schedule_runs", time("due"), time("started"));
    let mut all = store.prepare(&sql).unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_clock_that_jumps_makes_nothing_run_twice_and_nothing_stall() {
    let Some(library) = faketime() else {
        eprintln!("{SKIPPED}: FAKETIME IS NOT HERE");
        return;
    };
    let model = MockModelThread::start(ModelScript::new([]).fallback("Done.")).unwrap();
    let desk = model.configure(TestEnv::new().unwrap());
    for goal in ["look", "witness"] {
        let args = json!({ "goal": goal, "cadence_type": "interval", "cadence_value": "3600" }).to_string();
        assert_eq!(desk.run(&["call", "schedule_create", &args]).unwrap().code, 0);
    }
    let store = Connection::open(desk.store()).unwrap();
    store.busy_timeout(Duration::from_secs(20)).unwrap();
    let drive = |hours: i64, ended: i64| drive(&desk, &store, &library, hours, ended);
    drive(0, 0);
    // Ten hours ahead: ten were missed, and are made up for once.
    drive(10, 1);
    drive(10, 1);
    // Back a year: what has run does not run again.
    drive(-365 * 24, 1);
    // Put right again: a year was missed, and is made up for once; and nothing has stalled.
    drive(0, 2);
    drive(0, 2);
    drive(12, 3);
}

/// Zones, each with three days on which its clocks change.
const ZONES: [(&str, [&str; 3]); 12] = [
    ("Europe/Berlin", ["2026-03-29", "2026-10-25", "2027-03-28"]),
    ("Europe/London", ["2026-03-29", "2026-10-25", "2027-03-28"]),
    ("America/New_York", ["2026-03-08", "2026-11-01", "2027-03-14"]),
    ("America/St_Johns", ["2026-03-08", "2026-11-01", "2027-03-14"]),
    ("America/Sao_Paulo", ["2017-10-15", "2018-02-18", "2018-11-04"]),
    ("America/Santiago", ["2025-04-06", "2025-09-07", "2026-04-05"]),
    ("Africa/Cairo", ["2025-04-25", "2025-10-31", "2026-04-24"]),
    ("Africa/Casablanca", ["2025-02-23", "2025-04-06", "2026-02-15"]),
    ("Asia/Beirut", ["2025-03-30", "2025-10-26", "2026-03-29"]),
    ("Australia/Lord_Howe", ["2025-10-05", "2026-04-05", "2026-10-04"]),
    ("Australia/Sydney", ["2025-10-05", "2026-04-05", "2026-10-04"]),
    ("Pacific/Auckland", ["2025-09-28", "2026-04-05", "2026-09-27"]),
];

/// Answers of `helve schedule next` to many questions at once.
fn next(desk: &TestEnv, questions: &[Value]) -> Vec<Vec<String>> {
    let mut command = desk.command(&[], &["schedule", "next", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for question in questions {
        writeln!(input, "{question}").unwrap();
    }
    drop(input);
    let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let times = |line: &str| -> Vec<String> {
        let answer: Value = serde_json::from_str(line).unwrap();
        answer["next"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    out.lines().map(times).collect()
}

/// Hours of UTC since 1970, of `2026-03-29T01:00:00Z`.
fn hours(time: &str) -> f64 {
    let part = |from: usize, to: usize| time[from..to].parse::<i64>().unwrap();
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    // Days before a date in the Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    (days * 24 + part(11, 13)) as f64 + part(14, 16) as f64 / 60.0
}

#[test]
fn a_daily_job_comes_once_a_day_in_twelve_zones_over_three_changes() {
    let desk = TestEnv::new().unwrap();
    let mut questions = Vec::new();
    for (zone, days) in ZONES {
        for day in days {
            // From noon four days before, in UTC; nine days that hold the change.
            let start = format!("{day}T12:00:00Z");
            for expr in ["0 0 * * *", "30 1 * * *", "30 2 * * *", "15 3 * * *", "*/30 * * * *"] {
                let n = if expr.starts_with('*') { 200 } else { 4 };
                questions.push(json!({ "expr": expr, "tz": zone, "start": before(&start), "n": n }));
            }
        }
    }
    for (question, times) in questions.iter().zip(next(&desk, &questions)) {
        let steps: Vec<f64> = times.windows(2).map(|pair| hours(&pair[1]) - hours(&pair[0])).collect();
        if times.len() > 100 {
            // A change by whole or half hours never breaks a rhythm of half hours.
            assert!(steps.iter().all(|it| (it - 0.5).abs() < 1e-9), "{question}: {steps:?}");
        } else {
            // Never twice within a day, and never a day without: 24 hours, one more or one less.
            assert!(steps.iter().all(|it| (23.0 - 0.51..=25.01).contains(it)), "{question}: {steps:?} {times:?}");
            assert!((steps.iter().sum::<f64>() - 72.0).abs() <= 1.01, "{question}: {steps:?}");
        }
    }
    assert_eq!(questions.len(), 12 * 3 * 5);
}

/// Two days earlier; every day of the table is at least the third of its month or follows one of 28 days or more.
fn before(time: &str) -> String {
    let day: i64 = time[8..10].parse().unwrap();
    let month: i64 = time[5..7].parse().unwrap();
    let (month, day) = if day > 2 { (month, day - 2) } else { (month - 1, day + 26) };
    format!("{}-{month:02}-{day:02}{}", &time[..4], &time[10..])
}
