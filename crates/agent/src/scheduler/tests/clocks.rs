//! Clock jumps: no bursts, no stalls, no double runs.

use super::*;

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

#[tokio::test]
async fn a_clock_that_goes_back_repeats_nothing() {
    let stage = SchedulerFixture::new();
    stage.add("a", |_| {}).await;
    for _ in 0..5 {
        stage.after(60).await;
    }
    stage.after(-240).await;
    for _ in 0..10 {
        stage.after(30).await;
    }
    let mut seen = stage.seen();
    assert_eq!(seen, ["a 60#1", "a 120#1", "a 180#1", "a 240#1", "a 300#1", "a 360#1"]);
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

#[tokio::test]
async fn a_clock_that_was_a_year_ahead_does_not_stall_anything() {
    let stage = SchedulerFixture::new();
    stage.add("a", |_| {}).await;
    stage.add("b", |it| it.cadence = Cadence::Cron { expression: "*/5 * * * *".into(), timezone: "UTC".into() }).await;
    stage.after(60).await;
    // The clock is a year ahead for a while …
    stage.seen();
    assert_eq!(stage.after(YEAR).await.started, 2);
    assert_eq!(stage.seen(), ["a 120#1", "b 300#1"]);
    // … and is put right again.
    assert_eq!(stage.after(-YEAR).await.started, 0);
    stage.after(60).await;
    stage.after(240).await;
    // What was due at 120 and at 300 has been made up for meanwhile, and is not repeated.
    assert_eq!(stage.seen(), ["a 180#1"]);
    // The same for a driver that starts afterwards.
    let next = stage.another(ScriptedRunner::default());
    assert_eq!(next.after(300).await.started, 2);
}

#[tokio::test]
async fn a_clock_that_leaps_ahead_makes_up_once() {
    let stage = SchedulerFixture::new();
    stage.add("a", |_| {}).await;
    stage.after(60).await;
    assert_eq!(stage.after(10 * HOUR).await, TickSummary { started: 1, taken_over: 0, skipped: 599 });
    assert_eq!(stage.tick().await, TickSummary::default());
    assert_eq!(stage.schedule("a").await.next, Some(at(10 * HOUR + 120)));
}

#[tokio::test]
async fn a_leap_does_not_take_runs_from_those_who_live() {
    let (one, two) = {
        let one = SchedulerFixture::with(closed(), SchedulerConfig::default());
        one.add("a", |it| it.cadence = Cadence::Once { at: at(60) }).await;
        let two = one.another(ScriptedRunner::default());
        (one, two)
    };
    one.clock.forward(60);
    one.driver.tick().await.unwrap();
    two.tick().await;
    for leap in [10 * HOUR, -YEAR] {
        one.clock.forward(leap);
        assert_eq!(two.tick().await, TickSummary::default(), "it waits for a sign of life");
        one.driver.tick().await.unwrap();
        assert_eq!(two.tick().await, TickSummary::default());
    }
    one.script.door.as_ref().unwrap().add_permits(1);
    one.driver.wait_idle().await;
    assert_eq!((one.last("a").await.attempt, two.seen()), (1, vec![]));
}

#[tokio::test]
async fn a_daily_job_runs_once_a_day_over_both_changes_of_the_clocks() {
    for (from, days) in [("2026-03-27T12:00:00Z", 4), ("2026-10-23T12:00:00Z", 4)] {
        let stage = SchedulerFixture::new();
        *stage.clock.0.lock().unwrap() = from.parse().unwrap();
        stage
            .add("a", |it| {
                it.cadence = Cadence::Cron { expression: "30 2 * * *".into(), timezone: "Europe/Berlin".into() };
                it.next = helve_tools::schedule::cadence::next_run(&it.cadence, start(), from.parse().unwrap());
            })
            .await;
        // A quarter of an hour at a time, through the gap and through the hour that comes twice.
        for _ in 0..days * 24 * 4 {
            stage.after(900).await;
        }
        assert_eq!(stage.seen().len(), days);
    }
}
