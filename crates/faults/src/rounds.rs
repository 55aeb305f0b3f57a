//! Rounds of work with one fault each, and the count of what came of them.

use std::{
    collections::BTreeMap,
    fmt, fs,
    time::{Duration, Instant},
};

use crate::{
    Branches, Deed, Desk, Dice, Disk, Files, Hand, Inject, Model, Notes, Outcome, Patches, Plans, Spills, Talks,
    deeds::PLAN, disk, may_trace, wrong_events,
};

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Something acknowledged is not there.
    Lost(String),
    /// Something is half there.
    Partial(String),
    /// Something of ours was left behind.
    Litter(String),
    /// The program ended in a way of its own making: a panic, a code that means nothing.
    Ended(String),
}

/// What is done to a round.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Killed so long after its start.
    KilledAtStart(Duration),
    /// Killed so long after its first answer.
    Killed(Duration),
    /// A system call fails.
    Call(Inject),
    /// The disk is full after the first answer, and has room again later.
    Full,
}

impl Fault {
    /// Its name in the report.
    pub fn name(&self) -> String {
        match self {
            Self::KilledAtStart(_) => "killed while it starts".into(),
            Self::Killed(_) => "killed at work".into(),
            Self::Call(inject) => format!("{} {}", inject.calls, inject.what),
            Self::Full => "disk full".into(),
        }
    }
}

/// What all rounds came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// How often each fault was there.
    pub faults: BTreeMap<String, u64>,
    /// Steps that were acknowledged, by what they are.
    pub acknowledged: BTreeMap<&'static str, u64>,
    /// Steps that were refused.
    pub refused: u64,
    /// Rounds that nobody answered to the end.
    pub cut: u64,
    /// What must never be, with the round.
    pub wrong: Vec<(String, Wrong)>,
}

impl Tally {
    fn count(&self, kind: impl Fn(&Wrong) -> bool) -> usize {
        self.wrong.iter().filter(|(_, it)| kind(it)).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = self.faults.iter().filter(|(name, _)| !name.starts_with('('));
        writeln!(out, "faults injected: {}", met.map(|(_, count)| count).sum::<u64>())?;
        for (name, count) in &self.faults {
            writeln!(out, "  {count:>6}  {name}")?;
        }
        writeln!(out, "acknowledged: {}", self.acknowledged.values().sum::<u64>())?;
        for (name, count) in &self.acknowledged {
            writeln!(out, "  {count:>6}  {name}")?;
        }
        writeln!(out, "refused in words: {}, rounds cut off: {}", self.refused, self.cut)?;
        writeln!(out, "lost: {}", self.count(|it| matches!(it, Wrong::Lost(_))))?;
        writeln!(out, "partial: {}", self.count(|it| matches!(it, Wrong::Partial(_))))?;
        writeln!(out, "left behind: {}", self.count(|it| matches!(it, Wrong::Litter(_))))?;
        writeln!(out, "bad ends: {}", self.count(|it| matches!(it, Wrong::Ended(_))))?;
        for (round, wrong) in self.wrong.iter().take(40) {
            writeln!(out, "  {round}: {wrong:?}")?;
        }
        Ok(())
    }
}

/// How many steps a round has at most.
const STEPS: u64 = 40;

/// Does one round: works until the fault has had its way, starts anew, looks.
pub fn one_round(
    desk: &Desk,
    deed: &mut dyn Deed,
    fault: &Fault,
    small: Option<&Disk>,
    dice: &mut Dice,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let label = format!("{} / {fault:?}", deed.name());
    let log = desk.path("strace.log");
    let wrap = if let Fault::Call(inject) = fault { inject.told(&log) } else { Vec::new() };
    if let Err(error) = deed.begin(desk) {
        // A small disk may have no room for what must be there before.
        return if small.is_some() { Ok(()) } else { Err(error) };
    }
    let words = deed.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut hand = Hand::of(desk, &wrap, &words)?;
    if let Fault::KilledAtStart(moment) = fault {
        hand.kill_after(*moment);
    }
    let steps = if matches!(fault, Fault::Call(_)) { 6 } else { STEPS };
    let mut sheltered = true;
    for step in 0..steps {
        let outcome = deed.act(&mut hand, dice)?;
        match outcome {
            Outcome::Acknowledged => *tally.acknowledged.entry(deed.name()).or_default() += 1,
            Outcome::Refused(words) => {
                tally.refused += 1;
                // After a refusal the ledger is uncertain, so it looks before it goes on.
                tally.wrong.extend(deed.check(desk)?.into_iter().map(|it| (format!("{label} {words}"), it)));
            }
            Outcome::Gone => {
                tally.cut += 1;
                break;
            }
            Outcome::Nothing => break,
        }
        match (fault, small) {
            (Fault::Killed(moment), _) if step == 0 => hand.kill_after(*moment),
            (Fault::Full, Some(disk)) if step == 2 => disk.fill(dice.roll(20_000))?,
            (Fault::Full, Some(disk)) if step == 8 => disk.free()?,
            (Fault::Full, _) if step == 12 => break,
            _ => {}
        }
        sheltered &= !matches!(fault, Fault::Full | Fault::Call(_));
    }
    if let (Fault::Full, Some(disk)) = (fault, small) {
        // A round that ended early leaves it full.
        _ = disk.free();
    }
    let answered = hand.answered;
    let ran = hand.end()?;
    // The N-th call of a kind does not come in every round.
    let met = !matches!(fault, Fault::Call(_)) || fs::read_to_string(&log).is_ok_and(|it| it.contains("(INJECTED)"));
    *tally.faults.entry(if met { fault.name() } else { "(a call that did not come)".into() }).or_default() += 1;
    _ = fs::remove_file(&log);
    let killed = ran.code == -1 && matches!(fault, Fault::Killed(_) | Fault::KilledAtStart(_));
    if !killed && !ran.is_sane() {
        tally.wrong.push((label.clone(), Wrong::Ended(format!("code {}: {:.300}", ran.code, ran.err))));
    }
    // The next start puts right what is to be put right.
    let next = desk.run(&["call", "write", "--dialect", "solo", r#"{"path":"next.txt","content":"next"}"#])?;
    if next.code != 0 {
        tally.wrong.push((label.clone(), Wrong::Ended(format!("the next start: {} {}", next.out, next.err))));
    }
    tally.wrong.extend(deed.check(desk)?.into_iter().map(|it| (label.clone(), it)));
    let events = wrong_events(&desk.events(), answered, !sheltered)?;
    tally.wrong.extend(events.into_iter().map(|it| (label.clone(), it)));
    _ = fs::remove_file(desk.events());
    tally.wrong.extend(desk.litter().into_iter().map(|it| (label.clone(), Wrong::Litter(it))));
    Ok(())
}

/// The system calls that keep data, and how each may fail. `strace` leaves a call out whose result it makes up, so that a
/// short write cannot be had from it but as one of nothing; a disk that fills up makes real ones.
pub const CALLS: [(&str, &[&str]); 6] = [
    ("write,pwrite64", &["error=ENOSPC", "error=EIO", "error=EINTR", "retval=0"]),
    ("fsync", &["error=EIO", "error=ENOSPC"]),
    ("fdatasync", &["error=EIO", "error=ENOSPC"]),
    ("rename,renameat,renameat2", &["error=EIO", "error=ENOSPC", "error=EXDEV"]),
    ("openat,openat2", &["error=EIO", "error=ENOSPC", "error=EINTR", "error=EMFILE"]),
    ("ftruncate", &["error=EIO"]),
];

/// Rounds of all kinds until the time is over.
pub fn mixed(time: Duration, seed: u64, told: &mut dyn FnMut(&Tally)) -> anyhow::Result<Tally> {
    let until = Instant::now() + time;
    let (mut dice, mut tally) = (Dice::new(seed), Tally::default());
    let traces = may_trace();
    while Instant::now() < until {
        // A fresh desk now and then, so that starts without a store are among them.
        let (model, artifacts) = Model::of_all_work()?;
        let desk = model.at(Desk::new()?);
        let mut deeds: Vec<Box<dyn Deed>> = vec![
            Box::<Files>::default(),
            Box::<Patches>::default(),
            Box::<Notes>::default(),
            Box::<Plans>::default(),
            Box::<Spills>::default(),
            Box::<Talks>::default(),
            Box::<Branches>::default(),
            Box::new(artifacts),
        ];
        // Everything on one small disk, where this process may mount one.
        let small =
            if disk::is_inside() && dice.roll(4) == 0 { Some(Disk::mount(&desk.path(""), 4096)?) } else { None };
        for name in ["home", "work"] {
            fs::create_dir_all(desk.path(name))?;
        }
        for _ in 0..10 {
            let which = dice.roll(deeds.len() as u64) as usize;
            let fault = match (&small, dice.roll(10)) {
                (Some(_), _) => Fault::Full,
                (None, 0) => Fault::KilledAtStart(Duration::from_millis(dice.roll(150))),
                (None, 1..6) if traces => Fault::Call(any_call(&desk, &mut dice)),
                _ => Fault::Killed(Duration::from_micros(dice.roll(60_000))),
            };
            if let Some(deed) = deeds.get_mut(which) {
                one_round(&desk, deed.as_mut(), &fault, small.as_ref(), &mut dice, &mut tally)?;
            }
            told(&tally);
            if Instant::now() >= until {
                break;
            }
        }
        let refused = model.heard()?.1.into_iter();
        tally.wrong.extend(refused.map(|it| ("a history that a strict provider refuses".into(), Wrong::Partial(it))));
    }
    Ok(tally)
}

/// Some call that keeps data, failing at some point; only where it is about this desk, so that the program starts.
fn any_call(desk: &Desk, dice: &mut Dice) -> Inject {
    let (calls, faults) = dice.pick(&CALLS).unwrap_or(("fsync", &["error=EIO"]));
    let what = dice.pick(faults).unwrap_or("error=EIO");
    let mut at = 1 + dice.roll(6);
    if dice.roll(3) == 0 {
        at += dice.roll(40);
    }
    let inject = Inject { calls, what: what.to_owned(), at, about: Vec::new() };
    let db = desk.store().display().to_string();
    inject.about(
        ["work", "work/sub", "work/story.txt", PLAN, &format!("{PLAN}/specs"), &format!("{PLAN}/tasks")]
            .map(|it| desk.path(it))
            .into_iter()
            .chain([desk.events()])
            .map(|it| it.display().to_string())
            .chain([db.clone(), format!("{db}-wal"), desk.state().display().to_string()]),
    )
}
