//! Cgroups, if this user may create them: the only limit that also applies to root.

use std::{
    fs, io,
    os::fd::RawFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use super::plan::ResourceLimits;

/// The limits of all commands in one cgroup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CgroupLimits {
    /// Processes of each of them.
    pub(super) processes: u64,
    /// Bytes of memory of all together.
    pub(super) memory: Option<u64>,
}

/// The cgroups that all commands with the same limits start in.
///
/// Moving a process into a cgroup synchronises all CPUs and takes longer than starting it. So the thread that starts
/// commands joins once, and its children inherit it. Only cgroups v1 accept single threads.
pub(super) struct SharedCgroup {
    shares: CgroupLimits,
    dirs: Vec<PathBuf>,
    memory: Option<Arc<Path>>,
}

impl SharedCgroup {
    /// How many commands may reach their limit at once.
    const PIDS_MULTIPLIER: u64 = 4;

    /// Moves the calling thread into the cgroups for these limits, if needed.
    pub(super) fn enter(now: &mut Option<Self>, shares: CgroupLimits) {
        if now.as_ref().is_some_and(|nursery| nursery.shares == shares) {
            return;
        }
        // The previous cgroups can be removed only after their last command has ended.
        let next = now.insert(Self { shares, dirs: Vec::new(), memory: None });
        let processes = shares.processes.saturating_mul(Self::PIDS_MULTIPLIER);
        next.dirs.extend(Self::join("pids", shares.processes, "pids.max", processes));
        let memory = shares.memory.and_then(|most| Self::join("memory", most, "memory.limit_in_bytes", most));
        next.memory = memory.as_deref().map(Arc::from);
        next.dirs.extend(memory);
    }

    /// A group of one controller, with the calling thread in it.
    fn join(controller: &str, name: u64, file: &str, limit: u64) -> Option<PathBuf> {
        let parent = v1_path(controller)?;
        remove_stale(&parent);
        let dir = parent.join(format!("helve-{}-{name}", std::process::id()));
        fs::create_dir(&dir).or_else(|error| if dir.is_dir() { Ok(()) } else { Err(error) }).ok()?;
        fs::write(dir.join(file), limit.to_string()).ok()?;
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        fs::write(dir.join("tasks"), thread).ok().map(|()| dir)
    }

    /// The group that holds the memory of all commands, if there is one.
    pub(super) fn memory(&self) -> Option<Arc<Path>> {
        self.memory.clone()
    }
}

impl Drop for SharedCgroup {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| _ = fs::remove_dir(dir));
    }
}

/// How often the OOM killer acted in a cgroup.
pub(super) fn oom_kill_count(dir: &Path) -> u64 {
    let texts =
        ["memory.events", "memory.oom_control"].iter().filter_map(|file| fs::read_to_string(dir.join(file)).ok());
    let count = |text: String| text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
    texts.filter_map(count).sum()
}

/// Whether all commands together can be held to an amount of memory here.
pub(crate) fn can_limit_memory() -> bool {
    v1_path("memory").is_some_and(|dir| rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok())
}

/// Three quarters of the machine's memory, or of this process's limit.
pub(crate) fn default_memory_limit() -> Option<u64> {
    let about = rustix::system::sysinfo();
    let machine = about.totalram.saturating_mul(about.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = parse_v1_path(&groups, "memory").map(|dir| dir.join("memory.limit_in_bytes"));
    let one = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let one = one.map(|group| Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/')).join("memory.max"));
    let limits = [own, one].into_iter().flatten().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.chain([machine]).min().map(|most| most / 4 * 3)
}

/// Whether commands can be held to a number of processes here.
pub(crate) fn can_limit() -> bool {
    v1_path("pids").is_some_and(|dir| rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok())
}

/// Removes cgroups of processes that no longer exist.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let engine = name.to_str().and_then(|name| name.strip_prefix("helve-")?.split_once('-')).map(|(pid, _)| pid);
        if engine.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // The kernel refuses while it is in use.
            _ = fs::remove_dir(entry.path());
        }
    }
}

/// A group for one command, in as many hierarchies as its limits need. Removed when dropped.
pub(crate) struct Cgroup {
    dirs: Vec<PathBuf>,
}

impl Cgroup {
    /// A new group with these limits; `None` where no limit needs one, or none can be made.
    pub(crate) fn new(limits: &ResourceLimits) -> Option<Self> {
        limits.memory?;
        let mut name = [0; 8];
        getrandom::fill(&mut name).ok()?;
        let name = format!("helve-{}-{:016x}", std::process::id(), u64::from_ne_bytes(name));
        let mut group = Self { dirs: Vec::new() };
        // The init helper and bubblewrap count too.
        let processes = (limits.processes + 3).to_string();
        group.add("pids", &name, &[("pids.max", &processes)]);
        if let Some(memory) = limits.memory.map(|bytes| bytes.to_string()) {
            let file = if v2_path("memory").is_some() { "memory.max" } else { "memory.limit_in_bytes" };
            group.add("memory", &name, &[(file, &memory)]);
        }
        (!group.dirs.is_empty()).then_some(group)
    }

    fn add(&mut self, controller: &str, name: &str, settings: &[(&str, &str)]) {
        let Some(parent) = v1_path(controller).or_else(|| v2_path(controller)) else { return };
        remove_stale(&parent);
        let dir = parent.join(name);
        if fs::create_dir(&dir).is_err() && !self.dirs.contains(&dir) {
            return;
        }
        let limited = settings.iter().all(|(file, value)| fs::write(dir.join(file), value).is_ok());
        if !limited && !self.dirs.contains(&dir) {
            _ = fs::remove_dir(&dir);
        } else if !self.dirs.contains(&dir) {
            self.dirs.push(dir);
        }
    }

    /// Moves a process, known by its handle, and its children into the group.
    pub(super) fn add_process(&self, handle: RawFd) -> io::Result<()> {
        let pid = pid_of(handle)?;
        let mut pids = vec![pid.clone()];
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        pids.extend(children.split_whitespace().map(str::to_owned));
        for dir in &self.dirs {
            for pid in &pids {
                fs::write(dir.join("cgroup.procs"), pid)?;
            }
        }
        Ok(())
    }

    /// Whether something in the group was killed because its memory was used up.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        self.dirs.iter().any(|dir| oom_kill_count(dir) > 0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in &self.dirs {
            // Only cgroups v2 have this file; it also kills processes that fork fast.
            _ = fs::write(dir.join("cgroup.kill"), "1");
            // Dead processes may take a moment to leave.
            for _ in 0..50 {
                match fs::remove_dir(dir) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => thread::sleep(Duration::from_millis(2)),
                    _ => break,
                }
            }
        }
    }
}

fn pid_of(handle: RawFd) -> io::Result<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{handle}"))?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .map(|pid| pid.trim().to_owned())
        .filter(|pid| !pid.starts_with('-'))
        .ok_or_else(|| io::Error::other("the process is gone"))
}

/// Where this process is in the hierarchy of one controller (version 1).
fn v1_path(controller: &str) -> Option<PathBuf> {
    parse_v1_path(&fs::read_to_string("/proc/self/cgroup").ok()?, controller)
}

fn parse_v1_path(groups: &str, controller: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        parts.next()?.split(',').any(|it| it == controller).then(|| parts.next()).flatten()
    })?;
    let dir = Path::new("/sys/fs/cgroup").join(controller).join(own.trim_start_matches('/'));
    dir.join("cgroup.procs").exists().then_some(dir)
}

/// Where this process is in the one hierarchy (version 2), if that controller may be used below it.
fn v2_path(controller: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let dir = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let enabled = fs::read_to_string(dir.join("cgroup.subtree_control")).ok()?;
    enabled.split_whitespace().any(|it| it == controller).then_some(dir)
}
