//! What every store does with schedules: an occurrence is claimed once, and nothing that was claimed is lost.

use std::{collections::HashSet, sync::Arc, time::Duration};

use helve_contract::{
    Error, Result,
    jiff::Timestamp,
    ports::{
        Cadence, ClaimedRun, LeaseClaim, MissedRunPolicy, Notification, OverlapPolicy, RunCompletion, Schedule,
        ScheduleFilter, ScheduleRun, ScheduleRunStatus, ScheduleStatus, Store,
    },
};

use crate::{
    sqlite::Place,
    suite::{LENGTH, Maker, at},
};

/// Runs the stories for a maker.
macro_rules! stories {
    ($maker:ty: $($story:ident)*) => { mod told { $(
        #[tokio::test]
        async fn $story() {
            super::$story::<$maker>().await;
        }
    )* } };
}

stories! { super::Place:
    keeps_a_schedule_as_it_was_told
    finds_schedules_by_what_is_known_of_them
    refuses_a_change_that_saw_an_older_state
    gives_what_is_due_the_longest_overdue_first
    an_occurrence_is_claimed_once_however_many_try
    an_occurrence_that_was_claimed_before_moves_on
    a_run_that_goes_on_keeps_the_next_one_away
    a_claim_that_ran_out_is_taken_over_and_labelled
    a_claim_from_before_the_clock_went_back_is_taken_over
    keeps_the_last_runs_and_those_that_go_on
    what_the_owner_decided_meanwhile_stands
    passes_over_what_is_left_out
    removes_a_schedule_with_its_runs
    another_tenant_finds_no_schedule_and_no_run
}

fn schedule(id: &str) -> Schedule {
    Schedule {
        id: id.into(),
        user: "ann".into(),
        name: Some(format!("Übung {id}")),
        goal: "do it".into(),
        cadence: Cadence::Interval { every_secs: 60 },
        notification: Notification::Conditional,
        status: ScheduleStatus::Active,
        session: Some("s".into()),
        channel: Some("log:x".into()),
        workspace: Some("/w".into()),
        dialect: Some("solo".into()),
        missed: MissedRunPolicy::All,
        created: at(0),
        updated: at(0),
        next: Some(at(60)),
        last_run: None,
        last_status: None,
        failures: 2,
        origin: None,
        skipped: 3,
    }
}

fn claim(schedule: &str, due: i64, run: &str) -> LeaseClaim {
    LeaseClaim {
        schedule: schedule.into(),
        due: at(due),
        next: Some(at(due + 60)),
        owner: "me".into(),
        length: LENGTH,
        run: run.into(),
        skipped: 0,
        overlap: OverlapPolicy::Skip,
    }
}

fn finish(run: ScheduleRun, status: Option<ScheduleStatus>) -> RunCompletion {
    let run = ScheduleRun {
        status: ScheduleRunStatus::Success,
        summary: "sum".into(),
        output: "all of it".into(),
        turns: 3,
        cost: 0.25,
        notified: true,
        ..run
    };
    RunCompletion { run, status, failures: 0, keep_runs: 20 }
}

/// Claims a second after the due time.
async fn take(place: &impl Maker, claim: &LeaseClaim) -> Option<ClaimedRun> {
    place.clock().set(claim.due.duration_since(at(0)).as_secs() + 1);
    place.store().claim_run(claim).await.unwrap()
}

/// What can be taken over at this time.
async fn over(place: &impl Maker, second: i64) -> Vec<ClaimedRun> {
    place.clock().set(second);
    place.store().take_over_expired("you", LENGTH, 9).await.unwrap()
}

async fn end(store: &dyn Store, claimed: ClaimedRun) -> Result<ScheduleRun> {
    store.finish_run(&claimed.lease, &finish(claimed.run, None)).await
}

async fn next(store: &dyn Store, id: &str) -> Option<Timestamp> {
    store.schedule(id).await.unwrap().unwrap().next
}

async fn keeps_a_schedule_as_it_was_told<M: Maker>() {
    let place = M::default();
    let full = Schedule {
        cadence: Cadence::Cron { expression: "30 2 * * *".into(), timezone: "Europe/Berlin".into() },
        last_run: Some(at(1)),
        last_status: Some(ScheduleRunStatus::Failed),
        ..schedule("a")
    };
    let empty = Schedule {
        cadence: Cadence::Once { at: at(7) },
        name: None,
        session: None,
        channel: None,
        workspace: None,
        dialect: None,
        next: None,
        ..schedule("b")
    };
    for one in [full, empty] {
        // The store sets both times.
        place.clock().set(5);
        let one = Schedule { created: at(5), updated: at(5), ..one };
        place.store().add_schedule(&one).await.unwrap();
        assert_eq!(place.store().schedule(&one.id).await.unwrap(), Some(one));
    }
    assert_eq!(place.store().schedule("c").await.unwrap(), None);
}

async fn finds_schedules_by_what_is_known_of_them<M: Maker>() {
    let place = M::default();
    let store = place.store();
    for (n, id) in ["a", "b", "c", "d"].iter().enumerate() {
        place.clock().set(n as i64);
        let mut one = schedule(id);
        match *id {
            "b" => one.status = ScheduleStatus::Paused,
            "c" => one.cadence = Cadence::Once { at: at(9) },
            "d" => one.user = "bob".into(),
            _ => {}
        }
        store.add_schedule(&one).await.unwrap();
    }
    let all = ScheduleFilter { limit: 50, ..ScheduleFilter::default() };
    let ann = ScheduleFilter { user: Some("ann".into()), ..all.clone() };
    for (which, want, total) in [
        (all.clone(), "dcba", 4),
        (ann.clone(), "cba", 3),
        (ScheduleFilter { name: Some("übung B".into()), ..all.clone() }, "b", 1),
        (ScheduleFilter { status: Some(ScheduleStatus::Paused), ..all.clone() }, "b", 1),
        (ScheduleFilter { cadence: Some("once".into()), ..all.clone() }, "c", 1),
        (ScheduleFilter { notification: Some(Notification::Never), ..all.clone() }, "", 0),
        (ScheduleFilter { session: Some("other".into()), ..all.clone() }, "", 0),
        (ScheduleFilter { offset: 1, limit: 1, ..ann.clone() }, "b", 3),
        (ScheduleFilter { offset: 9, ..ann }, "", 3),
        (ScheduleFilter { limit: 0, ..all }, "", 4),
    ] {
        let (found, count) = store.schedules(&which).await.unwrap();
        let ids: String = found.into_iter().map(|it| it.id).collect();
        assert_eq!((ids.as_str(), count), (want, total), "{which:?}");
    }
}

async fn refuses_a_change_that_saw_an_older_state<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    let seen = store.schedule("a").await.unwrap().unwrap();
    take(&place, &claim("a", 60, "r")).await.unwrap();
    let paused = Schedule { status: ScheduleStatus::Paused, next: None, ..seen.clone() };
    assert!(!store.update_schedule(&paused, seen.updated).await.unwrap());
    let seen = store.schedule("a").await.unwrap().unwrap();
    assert_eq!(seen.last_run, Some(at(61)));
    assert!(store.update_schedule(&Schedule { goal: "other".into(), ..seen.clone() }, seen.updated).await.unwrap());
    assert_eq!(store.runs("a", 5).await.unwrap().len(), 1, "its runs are still there");
    assert!(!store.update_schedule(&schedule("none"), at(0)).await.unwrap());
}

async fn gives_what_is_due_the_longest_overdue_first<M: Maker>() {
    let place = M::default();
    let store = place.store();
    for (id, due) in [("a", 30), ("b", 10), ("c", 20), ("d", 31)] {
        store.add_schedule(&Schedule { next: Some(at(due)), ..schedule(id) }).await.unwrap();
    }
    let paused = Schedule { status: ScheduleStatus::Paused, next: Some(at(1)), ..schedule("e") };
    store.add_schedule(&paused).await.unwrap();
    let ids = |found: Vec<Schedule>| found.into_iter().map(|it| it.id).collect::<String>();
    place.clock().set(30);
    assert_eq!(ids(store.due_schedules(9).await.unwrap()), "bca");
    assert_eq!(ids(store.due_schedules(2).await.unwrap()), "bc");
    place.clock().set(9);
    assert_eq!(ids(store.due_schedules(9).await.unwrap()), "");
    let ahead = Schedule { last_run: Some(at(99)), ..schedule("f") };
    store.add_schedule(&ahead).await.unwrap();
    assert_eq!(ids(store.begun_ahead(Duration::from_secs(89)).await.unwrap()), "f");
    assert_eq!(ids(store.begun_ahead(Duration::from_secs(90)).await.unwrap()), "");
}

async fn an_occurrence_is_claimed_once_however_many_try<M: Maker>() {
    let place = M::default();
    place.store().add_schedule(&schedule("a")).await.unwrap();
    place.clock().set(61);
    let all: Vec<_> = (0..8)
        .map(|n| {
            let store = place.store();
            let claim = LeaseClaim { owner: format!("o{n}"), ..claim("a", 60, &format!("r{n}")) };
            tokio::spawn(async move { store.claim_run(&claim).await.unwrap() })
        })
        .collect();
    let mut got = Vec::new();
    for one in all {
        got.extend(one.await.unwrap());
    }
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].run.attempt, got[0].run.status, got[0].run.due), (1, ScheduleRunStatus::Running, at(60)));
    let after = place.store().schedule("a").await.unwrap().unwrap();
    assert_eq!((after.next, after.last_run, after.skipped), (Some(at(120)), Some(at(61)), 3));
    let paused = Schedule { status: ScheduleStatus::Paused, ..schedule("p") };
    place.store().add_schedule(&paused).await.unwrap();
    assert_eq!(take(&place, &claim("p", 60, "x")).await, None);
    assert_eq!(take(&place, &claim("none", 60, "x")).await, None);
}

async fn an_occurrence_that_was_claimed_before_moves_on<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    let run = take(&place, &claim("a", 60, "r1")).await.unwrap();
    end(&*store, run).await.unwrap();
    // Somebody plans it for a time that it has had: the clock went back.
    let seen = store.schedule("a").await.unwrap().unwrap();
    assert!(store.update_schedule(&Schedule { next: Some(at(60)), ..seen.clone() }, seen.updated).await.unwrap());
    assert_eq!(take(&place, &claim("a", 60, "r2")).await, None);
    assert_eq!(next(&*store, "a").await, Some(at(120)));
    assert_eq!(store.runs("a", 5).await.unwrap().len(), 1);
}

async fn a_run_that_goes_on_keeps_the_next_one_away<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    let first = take(&place, &claim("a", 60, "r1")).await.unwrap();
    let wait = LeaseClaim { overlap: OverlapPolicy::Wait, ..claim("a", 120, "r2") };
    assert_eq!(take(&place, &wait).await, None);
    assert_eq!(next(&*store, "a").await, Some(at(120)), "it stays due");
    assert_eq!(take(&place, &LeaseClaim { overlap: OverlapPolicy::Skip, ..wait.clone() }).await, None);
    let seen = store.schedule("a").await.unwrap().unwrap();
    assert_eq!((seen.next, seen.skipped), (Some(at(180)), 4), "it is left out");
    let by_hand = LeaseClaim { overlap: OverlapPolicy::Manual, next: None, ..claim("a", 130, "r3") };
    assert_eq!(take(&place, &by_hand).await, None);
    end(&*store, first).await.unwrap();
    assert!(take(&place, &by_hand).await.is_some());
    assert_eq!(next(&*store, "a").await, Some(at(180)), "its plan stays");
}

async fn a_claim_that_ran_out_is_taken_over_and_labelled<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    let run = take(&place, &claim("a", 60, "r")).await.unwrap();
    assert_eq!(over(&place, 90).await, []);
    // A lease that is renewed lasts from then on.
    place.clock().set(65);
    assert_eq!(store.renew_lease(&run.lease, LENGTH).await.unwrap().until, at(95));
    assert_eq!(over(&place, 94).await, []);
    place.clock().set(95);
    let mut all = Vec::new();
    for n in 0..4 {
        let store = place.store();
        all.push(tokio::spawn(async move { store.take_over_expired(&format!("you{n}"), LENGTH, 9).await.unwrap() }));
    }
    let mut taken = Vec::new();
    for one in all {
        taken.extend(one.await.unwrap());
    }
    assert_eq!(taken.len(), 1);
    let again = taken.remove(0);
    assert_eq!((again.run.id.as_str(), again.run.attempt, again.run.due, again.run.started), ("r", 2, at(60), at(95)));
    // Whoever lost it can neither prolong nor end it.
    place.clock().set(100);
    assert!(matches!(store.renew_lease(&run.lease, LENGTH).await, Err(Error::LeaseLost(_))));
    assert!(matches!(store.release(&run.lease).await, Err(Error::LeaseLost(_))));
    assert!(matches!(end(&*store, run).await, Err(Error::LeaseLost(_))));
    end(&*store, again.clone()).await.unwrap();
    assert!(matches!(end(&*store, again).await, Err(Error::LeaseLost(_))));
    let kept = store.run("r").await.unwrap().unwrap();
    assert_eq!((kept.attempt, kept.status, kept.output.as_str()), (2, ScheduleRunStatus::Success, "all of it"));
    assert_eq!((kept.turns, kept.cost, kept.notified, kept.finished), (3, 0.25, true, Some(at(100))));
    assert_eq!(over(&place, 999).await, []);
}

async fn a_claim_from_before_the_clock_went_back_is_taken_over<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    take(&place, &claim("a", 60, "r")).await.unwrap();
    assert_eq!(over(&place, -9).await, [], "a little back is nothing");
    assert_eq!(over(&place, -90_000).await.len(), 1);
}

async fn keeps_the_last_runs_and_those_that_go_on<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    for n in 1..=6 {
        let run = take(&place, &claim("a", n * 60, &format!("r{n}"))).await.unwrap();
        if n < 6 {
            store.finish_run(&run.lease, &RunCompletion { keep_runs: 3, ..finish(run.run, None) }).await.unwrap();
        }
    }
    let runs = store.runs("a", 99).await.unwrap();
    let ids: Vec<_> = runs.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["r6", "r5", "r4", "r3"]);
    assert!(runs.iter().all(|it| it.output.is_empty()), "lists are short");
    assert_eq!(store.runs("a", 1).await.unwrap().len(), 1);
    assert_eq!(store.run("r1").await.unwrap(), None);
}

async fn what_the_owner_decided_meanwhile_stands<M: Maker>() {
    let place = M::default();
    let store = place.store();
    let change = async |id: &str, change: &dyn Fn(&mut Schedule)| {
        let seen = store.schedule(id).await.unwrap().unwrap();
        let mut new = seen.clone();
        change(&mut new);
        assert!(store.update_schedule(&new, seen.updated).await.unwrap());
    };
    let end = async |id: &str, meanwhile: &dyn Fn(&mut Schedule), status| {
        store.add_schedule(&schedule(id)).await.unwrap();
        let once = LeaseClaim { next: None, ..claim(id, 60, &format!("run {id}")) };
        let run = take(&place, &once).await.unwrap();
        change(id, meanwhile).await;
        store.finish_run(&run.lease, &finish(run.run, Some(status))).await.unwrap();
        let now = store.schedule(id).await.unwrap().unwrap();
        (now.status, now.next)
    };
    use ScheduleStatus::{Active, Completed, Disabled, Paused};
    assert_eq!(end("a", &|_| {}, Completed).await, (Completed, None));
    assert_eq!(end("b", &|it| it.next = Some(at(500)), Completed).await, (Active, Some(at(500))));
    assert_eq!(end("c", &|it| it.status = Paused, Disabled).await, (Paused, None));
    assert_eq!(end("d", &|it| it.next = Some(at(500)), Disabled).await, (Disabled, None));
    let seen = store.schedule("a").await.unwrap().unwrap();
    assert_eq!((seen.last_status, seen.failures), (Some(ScheduleRunStatus::Success), 0));
}

async fn passes_over_what_is_left_out<M: Maker>() {
    let place = M::default();
    let store = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    assert!(store.skip_occurrence("a", at(60), Some(at(600)), 9).await.unwrap());
    assert!(!store.skip_occurrence("a", at(60), Some(at(900)), 9).await.unwrap());
    let seen = store.schedule("a").await.unwrap().unwrap();
    assert_eq!((seen.next, seen.skipped), (Some(at(600)), 12));
}

async fn removes_a_schedule_with_its_runs<M: Maker>() {
    let place = M::default();
    let store: Arc<dyn Store> = place.store();
    store.add_schedule(&schedule("a")).await.unwrap();
    let run = take(&place, &claim("a", 60, "r")).await.unwrap();
    assert!(store.remove_schedule("a").await.unwrap());
    assert!(!store.remove_schedule("a").await.unwrap());
    assert_eq!(store.run("r").await.unwrap(), None);
    assert!(matches!(store.renew_lease(&run.lease, LENGTH).await, Err(Error::LeaseLost(_))));
    assert!(matches!(end(&*store, run).await, Err(Error::LeaseLost(_))));
    let left: HashSet<String> = store.runs("a", 9).await.unwrap().into_iter().map(|it| it.id).collect();
    assert!(left.is_empty());
}

async fn another_tenant_finds_no_schedule_and_no_run<M: Maker>() {
    let place = M::default();
    let (ours, theirs) = (place.store(), place.store_of("other"));
    ours.add_schedule(&schedule("a")).await.unwrap();
    place.clock().set(61);
    assert_eq!(theirs.schedule("a").await.unwrap(), None);
    assert_eq!(theirs.schedules(&ScheduleFilter { limit: 9, ..ScheduleFilter::default() }).await.unwrap().1, 0);
    assert!(theirs.due_schedules(9).await.unwrap().is_empty());
    assert!(theirs.claim_run(&claim("a", 60, "r")).await.unwrap().is_none());
    assert!(!theirs.skip_occurrence("a", at(60), None, 1).await.unwrap());
    let seen = ours.schedule("a").await.unwrap().unwrap();
    assert!(!theirs.update_schedule(&seen, seen.updated).await.unwrap());
    assert!(!theirs.remove_schedule("a").await.unwrap());
    let run = take(&place, &claim("a", 60, "r")).await.unwrap();
    assert_eq!((theirs.run("r").await.unwrap(), theirs.runs("a", 9).await.unwrap()), (None, Vec::new()));
    assert!(matches!(theirs.renew_lease(&run.lease, LENGTH).await, Err(Error::LeaseLost(_))));
    // The lease has run out, and only its tenant takes the run over.
    place.clock().set(1000);
    assert!(theirs.take_over_expired("you", LENGTH, 9).await.unwrap().is_empty());
    assert!(theirs.begun_ahead(Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(ours.take_over_expired("you", LENGTH, 9).await.unwrap().len(), 1);
}
