//! Rounds of work with one fault each, and their totals.

use std::{
    collections::BTreeMap,
    fmt, fs,
    time::{Duration, Instant},
};

use crate::{
    BatchProcess, ConversationWorkload, FileWorkload, MergeWorkload, MockModelThread, NoteWorkload, PatchWorkload, Rng,
    ScheduleWorkload, SmallDisk, SpillWorkload, StepOutcome, SyscallFault, TestEnv, Workload, deeds::PLAN_DIR, disk,
    strace_available, verify_events,
};

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Something acknowledged is missing.
    Lost(String),
    /// Something is partially written.
    Partial(String),
    /// Helve left temporary files behind.
    LeftoverFiles(String),
    /// The program ended abnormally: a panic or an unknown exit code.
    Crashed(String),
}

/// The fault of a round.
#[derive(Clone, Debug)]
pub enum InjectedFault {
    /// Killed so long after its start.
    KilledAtStart(Duration),
    /// Killed so long after its first answer.
    Killed(Duration),
    /// A system call fails.
    Syscall(SyscallFault),
    /// The disk is full after the first answer, and has room again later.
    DiskFull,
}

impl InjectedFault {
    /// Its name in the report.
    pub fn name(&self) -> String {
        match self {
            Self::KilledAtStart(_) => "killed while it starts".into(),
            Self::Killed(_) => "killed at work".into(),
            Self::Syscall(inject) => format!("{} {}", inject.calls, inject.what),
            Self::DiskFull => "disk full".into(),
        }
    }
}

/// What all rounds came to.
#[derive(Debug, Default)]
pub struct Totals {
    /// How often each fault was there.
    pub faults: BTreeMap<String, u64>,
    /// Steps that were acknowledged, by what they are.
    pub acknowledged: BTreeMap<&'static str, u64>,
    /// Steps that were refused.
    pub refused: u64,
    /// Rounds that nobody answered to the end.
    pub interrupted: u64,
    /// What must never be, with the round.
    pub wrong: Vec<(String, Violation)>,
}

impl Totals {
    fn count(&self, kind: impl Fn(&Violation) -> bool) -> usize {
        self.wrong.iter().filter(|(_, it)| kind(it)).count()
    }
}

impl fmt::Display for Totals {
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
        writeln!(out, "refused in words: {}, rounds cut off: {}", self.refused, self.interrupted)?;
        writeln!(out, "lost: {}", self.count(|it| matches!(it, Violation::Lost(_))))?;
        writeln!(out, "partial: {}", self.count(|it| matches!(it, Violation::Partial(_))))?;
        writeln!(out, "left behind: {}", self.count(|it| matches!(it, Violation::LeftoverFiles(_))))?;
        writeln!(out, "bad ends: {}", self.count(|it| matches!(it, Violation::Crashed(_))))?;
        for (round, wrong) in self.wrong.iter().take(40) {
            writeln!(out, "  {round}: {wrong:?}")?;
        }
        Ok(())
    }
}

/// How many steps a round has at most.
const MAX_STEPS: u64 = 40;

/// Runs one round: works until the fault occurs, restarts, verifies.
pub fn run_round(
    desk: &TestEnv,
    deed: &mut dyn Workload,
    fault: &InjectedFault,
    small: Option<&SmallDisk>,
    dice: &mut Rng,
    tally: &mut Totals,
) -> anyhow::Result<()> {
    let label = format!("{} / {fault:?}", deed.name());
    let log = desk.path("strace.log");
    let wrap = if let InjectedFault::Syscall(inject) = fault { inject.args_with_log(&log) } else { Vec::new() };
    if let Err(error) = deed.prepare(desk) {
        // A small disk may have no room for what must be there before.
        return if small.is_some() { Ok(()) } else { Err(error) };
    }
    let words = deed.args();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut hand = BatchProcess::start_with_args(desk, &wrap, &words)?;
    if let InjectedFault::KilledAtStart(moment) = fault {
        hand.kill_after(*moment);
    }
    let steps = if matches!(fault, InjectedFault::Syscall(_)) { 6 } else { MAX_STEPS };
    let mut sheltered = true;
    for step in 0..steps {
        let outcome = deed.step(&mut hand, dice)?;
        match outcome {
            StepOutcome::Acknowledged => *tally.acknowledged.entry(deed.name()).or_default() += 1,
            StepOutcome::Refused(words) => {
                tally.refused += 1;
                // After a refusal the ledger is uncertain, so it verifies before it continues.
                tally.wrong.extend(deed.verify(desk)?.into_iter().map(|it| (format!("{label} {words}"), it)));
            }
            StepOutcome::NoResponse => {
                tally.interrupted += 1;
                break;
            }
            StepOutcome::Finished => break,
        }
        match (fault, small) {
            (InjectedFault::Killed(moment), _) if step == 0 => hand.kill_after(*moment),
            (InjectedFault::DiskFull, Some(disk)) if step == 2 => disk.fill(dice.below(20_000))?,
            (InjectedFault::DiskFull, Some(disk)) if step == 8 => disk.free()?,
            (InjectedFault::DiskFull, _) if step == 12 => break,
            _ => {}
        }
        sheltered &= !matches!(fault, InjectedFault::DiskFull | InjectedFault::Syscall(_));
    }
    if let (InjectedFault::DiskFull, Some(disk)) = (fault, small) {
        // A round that ended early leaves it full.
        _ = disk.free();
    }
    let answered = hand.answered;
    let ran = hand.wait()?;
    // The N-th call of a kind does not occur in every round.
    let met = !matches!(fault, InjectedFault::Syscall(_))
        || fs::read_to_string(&log).is_ok_and(|it| it.contains("(INJECTED)"));
    *tally.faults.entry(if met { fault.name() } else { "(a call that did not come)".into() }).or_default() += 1;
    _ = fs::remove_file(&log);
    let killed = ran.code == -1 && matches!(fault, InjectedFault::Killed(_) | InjectedFault::KilledAtStart(_));
    if !killed && !ran.exited_normally() {
        tally.wrong.push((label.clone(), Violation::Crashed(format!("code {}: {:.300}", ran.code, ran.err))));
    }
    // The next start does the recovery.
    let next = desk.run(&["call", "write", "--dialect", "solo", r#"{"path":"next.txt","content":"next"}"#])?;
    if next.code != 0 {
        tally.wrong.push((label.clone(), Violation::Crashed(format!("the next start: {} {}", next.out, next.err))));
    }
    tally.wrong.extend(deed.verify(desk)?.into_iter().map(|it| (label.clone(), it)));
    let events = verify_events(&desk.events(), answered, !sheltered)?;
    tally.wrong.extend(events.into_iter().map(|it| (label.clone(), it)));
    _ = fs::remove_file(desk.events());
    tally.wrong.extend(desk.leftover_files().into_iter().map(|it| (label.clone(), Violation::LeftoverFiles(it))));
    Ok(())
}

/// The system calls that store data, and how each may fail. `strace` skips a call whose result it injects, so it
/// cannot simulate short writes; a full disk produces real ones.
pub const SYSCALL_FAULTS: [(&str, &[&str]); 6] = [
    ("write,pwrite64", &["error=ENOSPC", "error=EIO", "error=EINTR", "retval=0"]),
    ("fsync", &["error=EIO", "error=ENOSPC"]),
    ("fdatasync", &["error=EIO", "error=ENOSPC"]),
    ("rename,renameat,renameat2", &["error=EIO", "error=ENOSPC", "error=EXDEV"]),
    ("openat,openat2", &["error=EIO", "error=ENOSPC", "error=EINTR", "error=EMFILE"]),
    ("ftruncate", &["error=EIO"]),
];

/// Rounds of all kinds until the time is over.
pub fn run_mixed(time: Duration, seed: u64, told: &mut dyn FnMut(&Totals)) -> anyhow::Result<Totals> {
    let until = Instant::now() + time;
    let (mut dice, mut tally) = (Rng::new(seed), Totals::default());
    let traces = strace_available();
    while Instant::now() < until {
        // A new environment from time to time, so that starts without a store are included.
        let (model, artifacts) = MockModelThread::for_workloads()?;
        let desk = model.configure(TestEnv::new()?);
        let mut deeds: Vec<Box<dyn Workload>> = vec![
            Box::<FileWorkload>::default(),
            Box::<PatchWorkload>::default(),
            Box::<NoteWorkload>::default(),
            Box::<ScheduleWorkload>::default(),
            Box::<SpillWorkload>::default(),
            Box::<ConversationWorkload>::default(),
            Box::<MergeWorkload>::default(),
            Box::new(artifacts),
        ];
        // Everything on one small disk, where this process may mount one.
        let small = if disk::in_mount_namespace() && dice.below(4) == 0 {
            Some(SmallDisk::mount(&desk.path(""), 4096)?)
        } else {
            None
        };
        for name in ["home", "work"] {
            fs::create_dir_all(desk.path(name))?;
        }
        for _ in 0..10 {
            let which = dice.below(deeds.len() as u64) as usize;
            let fault = match (&small, dice.below(10)) {
                (Some(_), _) => InjectedFault::DiskFull,
                (None, 0) => InjectedFault::KilledAtStart(Duration::from_millis(dice.below(150))),
                (None, 1..6) if traces => InjectedFault::Syscall(random_syscall_fault(&desk, &mut dice)),
                _ => InjectedFault::Killed(Duration::from_micros(dice.below(60_000))),
            };
            if let Some(deed) = deeds.get_mut(which) {
                run_round(&desk, deed.as_mut(), &fault, small.as_ref(), &mut dice, &mut tally)?;
            }
            told(&tally);
            if Instant::now() >= until {
                break;
            }
        }
        let refused = model.requests()?.1.into_iter();
        tally
            .wrong
            .extend(refused.map(|it| ("a history that a strict provider refuses".into(), Violation::Partial(it))));
    }
    Ok(tally)
}

/// Some call that keeps data, failing at some point; only where it is about this desk, so that the program starts.
fn random_syscall_fault(desk: &TestEnv, dice: &mut Rng) -> SyscallFault {
    let (calls, faults) = dice.pick(&SYSCALL_FAULTS).unwrap_or(("fsync", &["error=EIO"]));
    let what = dice.pick(faults).unwrap_or("error=EIO");
    let mut at = 1 + dice.below(6);
    if dice.below(3) == 0 {
        at += dice.below(40);
    }
    let inject = SyscallFault { calls, what: what.to_owned(), at, about: Vec::new() };
    let db = desk.store().display().to_string();
    inject.on_paths(
        ["work", "work/sub", "work/story.txt", PLAN_DIR, &format!("{PLAN_DIR}/specs"), &format!("{PLAN_DIR}/tasks")]
            .map(|it| desk.path(it))
            .into_iter()
            .chain([desk.events()])
            .map(|it| it.display().to_string())
            .chain([db.clone(), format!("{db}-wal"), desk.state().display().to_string()]),
    )
}
