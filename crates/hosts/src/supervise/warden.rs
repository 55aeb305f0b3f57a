//! The warden: one thread of the engine, parent of all stages for as long as the engine lives.
//!
//! The kernel ties a child's fate to the *thread* that made it, and threads of a pool come and go; so there is one that
//! stays. It also buries the dead, lets go of what was kept for them, and keeps a stage at hand for the next command.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{
    cgroup::{Nursery, Shares},
    launch::{Kept, Wires, pipe},
    mark::Mark,
    own::stage_edition,
    plan::MARKER,
};

/// How long a stage is kept at hand while nothing is run.
const IDLE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// To look, and not to wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What a stage is born with. All else comes with the plan, so that two of one kind are the same.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) program: PathBuf,
    /// What its outer walls look like.
    pub(super) args: Vec<OsString>,
    /// Which files and folders they are made of: a wall is about these, and not about their names.
    pub(super) places: Vec<Mark>,
    /// What it may have, where it is to be held to that.
    pub(super) shares: Option<Shares>,
}

/// A stage to start, and whom to tell.
pub(super) struct Job {
    pub(super) command: Command,
    /// What it may have, where it is to be held to that.
    pub(super) shares: Option<Shares>,
    /// Its kind, where one like it can be kept at hand.
    pub(super) kind: Option<Kind>,
    pub(super) started: Box<dyn FnOnce(io::Result<Born>) + Send>,
    pub(super) end: End,
}

/// What is done when a stage is gone.
pub(super) struct End {
    pub(super) keep: Kept,
    pub(super) gone: Box<dyn FnOnce() + Send>,
}

/// A stage that was started.
pub(super) struct Born {
    pub(super) handle: Arc<OwnedFd>,
    /// The group that holds its memory and that of others.
    pub(super) memory: Option<Arc<Path>>,
}

/// A stage that was started before anybody needed it. It waits for a plan, and ends when its socket closes.
pub(super) struct Spare {
    pub(super) wires: Wires,
    pub(super) born: Born,
    kind: Kind,
}

enum Word {
    Start(Box<Job>),
    /// The spare with this handle has a command now.
    Taken(Arc<OwnedFd>, Kind, End),
}

struct Ward {
    child: Child,
    handle: Arc<OwnedFd>,
    end: End,
}

/// The thread that starts and buries.
pub(super) struct Warden {
    words: Mutex<mpsc::Sender<Word>>,
    bell: OwnedFd,
    spare: Arc<Mutex<Option<Spare>>>,
}

impl Warden {
    pub(super) fn get() -> io::Result<&'static Self> {
        static ONE: OnceLock<Warden> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warden) = ONE.get() {
            return Ok(warden);
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (words, inbox) = mpsc::channel();
        let spare = Arc::default();
        let mut round = Round { wards: Vec::new(), nursery: None, last: None, spare: Arc::clone(&spare) };
        let ear = bell.try_clone()?;
        thread::Builder::new().name("helve-warden".into()).spawn(move || round.watch(&inbox, &ear))?;
        Ok(ONE.get_or_init(|| Self { words: Mutex::new(words), bell, spare }))
    }

    /// Has a stage started.
    pub(super) fn hire(&self, job: Job) {
        self.say(Word::Start(Box::new(job)));
    }

    /// The stage at hand, if it is of this kind and lives.
    pub(super) fn spare(&self, kind: &Kind) -> Option<Spare> {
        let spare = lock(&self.spare).take_if(|it| it.kind == *kind)?;
        let lives = poll(&mut [PollFd::new(&*spare.born.handle, PollFlags::IN)], Some(&AT_ONCE)) == Ok(0);
        lives.then_some(spare)
    }

    /// Says what is to be done when a stage that was at hand is gone, and has another one made.
    pub(super) fn taken(&self, handle: Arc<OwnedFd>, kind: Kind, end: End) {
        self.say(Word::Taken(handle, kind, end));
    }

    fn say(&self, word: Word) {
        // Were the thread gone, the word would be dropped with its senders, and whoever waits would learn of it.
        _ = self.words.lock().unwrap_or_else(PoisonError::into_inner).send(word);
        _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

fn lock(spare: &Mutex<Option<Spare>>) -> MutexGuard<'_, Option<Spare>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread looks after.
struct Round {
    wards: Vec<Ward>,
    nursery: Option<Nursery>,
    /// What was started last. Who has run two will run a third.
    last: Option<Kind>,
    spare: Arc<Mutex<Option<Spare>>>,
}

impl Round {
    fn watch(&mut self, inbox: &mpsc::Receiver<Word>, ear: &OwnedFd) {
        loop {
            let idle = lock(&self.spare).is_some().then_some(&IDLE);
            let mut files = vec![PollFd::new(ear, PollFlags::IN)];
            files.extend(self.wards.iter().map(|ward| PollFd::new(&*ward.handle, PollFlags::IN)));
            match poll(&mut files, idle) {
                Ok(0) => _ = lock(&self.spare).take(),
                Ok(_) => {}
                Err(_) => continue,
            }
            let ended: Vec<bool> = files.iter().skip(1).map(|file| !file.revents().is_empty()).collect();
            drop(files);
            for at in (0..ended.len()).rev().filter(|at| ended[*at]) {
                self.bury(at);
            }
            _ = rustix::io::read(ear, &mut [0_u8; 8]);
            while let Ok(word) = inbox.try_recv() {
                match word {
                    Word::Start(job) => self.start(*job),
                    Word::Taken(handle, kind, end) => self.hand_over(&handle, kind, end),
                }
            }
        }
    }

    fn bury(&mut self, at: usize) {
        let mut ward = self.wards.swap_remove(at);
        _ = ward.child.wait();
        lock(&self.spare).take_if(|it| Arc::ptr_eq(&it.born.handle, &ward.handle));
        ward.end.meet();
    }

    fn start(&mut self, mut job: Job) {
        self.enter(job.shares);
        let begun = begin(&mut job.command);
        // The command holds the stage's ends of all pipes; they must close here, or no end would ever be seen.
        drop(job.command);
        match begun {
            Ok((child, handle)) => {
                (job.started)(Ok(self.born(&handle)));
                self.wards.push(Ward { child, handle, end: job.end });
            }
            Err(error) => (job.started)(Err(error)),
        }
        if job.kind.is_some() && job.kind == self.last {
            self.last.clone().into_iter().for_each(|kind| self.make_spare(kind));
        }
        self.last = job.kind;
    }

    fn hand_over(&mut self, handle: &Arc<OwnedFd>, kind: Kind, end: End) {
        match self.wards.iter_mut().find(|ward| Arc::ptr_eq(&ward.handle, handle)) {
            Some(ward) => ward.end = end,
            None => end.meet(),
        }
        self.make_spare(kind);
    }

    /// Starts a stage that nobody needs yet. Where that fails, the next command starts its own and says why.
    fn make_spare(&mut self, kind: Kind) {
        if lock(&self.spare).as_ref().is_some_and(|it| it.kind == kind) {
            return;
        }
        self.enter(kind.shares);
        let Ok((wires, mut command)) = wire(&kind.program, &kind.args) else { return };
        let Ok((child, handle)) = begin(&mut command) else { return };
        let born = self.born(&handle);
        self.wards.push(Ward { child, handle, end: End { keep: Kept::default(), gone: Box::new(|| {}) } });
        *lock(&self.spare) = Some(Spare { wires, born, kind });
    }

    fn enter(&mut self, shares: Option<Shares>) {
        if let Some(shares) = shares {
            Nursery::enter(&mut self.nursery, shares);
        }
    }

    fn born(&self, handle: &Arc<OwnedFd>) -> Born {
        Born { handle: handle.clone(), memory: self.nursery.as_ref().and_then(Nursery::memory) }
    }
}

impl End {
    fn meet(self) {
        self.keep.let_go();
        (self.gone)();
    }
}

/// Starts a program; it, and a handle that is never another's.
fn begin(command: &mut Command) -> io::Result<(Child, Arc<OwnedFd>)> {
    let mut child = command.spawn()?;
    match open_handle(&child) {
        Ok(handle) => Ok((child, Arc::new(handle))),
        Err(error) => {
            _ = child.kill();
            _ = child.wait();
            Err(error)
        }
    }
}

fn open_handle(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("a child without a number"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Makes the ways to a stage and its command line.
pub(super) fn wire(program: &Path, args: &[OsString]) -> io::Result<(Wires, Command)> {
    let (control, theirs) = UnixStream::pair()?;
    let (out, out_theirs) = pipe()?;
    let (err, err_theirs) = pipe()?;
    let mut command = Command::new(program);
    command
        .args(args)
        .arg(MARKER)
        .arg(stage_edition())
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(out_theirs))
        .stderr(Stdio::from(err_theirs))
        .process_group(0);
    Ok((Wires { control, out, err, input: None, terminal: None }, command))
}
