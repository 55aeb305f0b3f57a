//! Between fork and exec: applies the inner sandbox to the command, step by step.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    process::{Resource, Rlimit, chdir, getrlimit, ioctl_tiocsctty, setrlimit, setsid},
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
    },
};

use super::{
    dir::CwdReporter,
    notify,
    plan::{LandlockRules, PlanStdin, Restrictions, RulesetBuilder, SandboxPlan, SocketPolicy, TreeTracking},
    rules::build_ruleset,
    seccomp::{self, Attributes},
    sys,
};

/// The files that came with a plan.
pub(super) struct PassedFds {
    stdin: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    rules: Option<OwnedFd>,
}

impl PassedFds {
    /// What each of them is, in the order in which the engine sends them.
    pub(super) fn with(plan: &SandboxPlan, files: Vec<OwnedFd>) -> Self {
        let mut files = files.into_iter();
        let made = plan.walls.as_ref().is_some_and(|walls| walls.rules.by == RulesetBuilder::Engine);
        Self {
            stdin: if plan.stdin == PlanStdin::Sent { files.next() } else { None },
            terminal: if plan.terminal { files.next() } else { None },
            rules: if made { files.next() } else { None },
        }
    }
}

/// Executes the command. Returns only on failure, with the reason. `supervisor` connects to the thread that answers
/// seccomp notifications.
pub(super) fn exec(
    plan: &SandboxPlan,
    sent: PassedFds,
    tell: Option<CwdReporter>,
    supervisor: Option<OwnedFd>,
) -> String {
    if let Err(error) = prepare(plan, sent, tell.as_ref(), supervisor.as_ref()) {
        return error;
    }
    let mut argv = plan.argv.iter();
    let Some(program) = argv.next() else { return "there is no program to start".to_owned() };
    let mut command = Command::new(program);
    command.args(argv).env_clear().envs(plan.env.iter().cloned());
    if tell.is_some() {
        command.env(CwdReporter::ENV_VAR.0, CwdReporter::ENV_VAR.1);
    }
    let error = command.exec();
    format!("cannot start {program}: {error}")
}

fn prepare(
    plan: &SandboxPlan,
    sent: PassedFds,
    tell: Option<&CwdReporter>,
    supervisor: Option<&OwnedFd>,
) -> Result<(), String> {
    sys::reset_signals();
    setsid().map_err(context("cannot make a session"))?;
    connect(plan, sent.stdin, sent.terminal)?;
    limit(plan)?;
    chdir(&plan.dir).map_err(|error| format!("cannot go to {}: {error}", plan.dir.display()))?;
    let Some(walls) = &plan.walls else {
        return close_files(tell);
    };
    if plan.tree == TreeTracking::Walk {
        drop_capabilities()?;
    }
    set_no_new_privs(true).map_err(context("cannot give up privileges"))?;
    restrict_files(&walls.rules, sent.rules)?;
    close_files(tell)?;
    filter_calls(walls, supervisor)
}

/// Loads the seccomp filter. If the kernel provides no listener (only one can exist, and an outer sandbox may own
/// it), the calls that need one are refused.
fn filter_calls(walls: &Restrictions, supervisor: Option<&OwnedFd>) -> Result<(), String> {
    let is_shared = walls.attribute_roots.is_some();
    let supervised = if is_shared { Attributes::Supervisor } else { Attributes::Kernel };
    if let Some(supervisor) = supervisor
        && let Ok(listener) = sys::load_filter_with_listener(&seccomp::filter(walls.sockets, supervised))
    {
        return notify::send_listener(supervisor, &listener).map_err(context("cannot hand over the listener"));
    }
    let attributes = if is_shared { Attributes::Nobody } else { Attributes::Kernel };
    let sockets = if walls.sockets == SocketPolicy::Own { SocketPolicy::NoConnect } else { walls.sockets };
    sys::load_filter(&seccomp::filter(sockets, attributes)).map_err(context("cannot load the filter of system calls"))
}

/// Closes all inherited files in the command, except the pipe for its working directory.
fn close_files(tell: Option<&CwdReporter>) -> Result<(), String> {
    sys::close_on_exec().map_err(context("cannot close files"))?;
    tell.map_or(Ok(()), CwdReporter::install).map_err(context("cannot open the way back for the folder"))
}

fn context<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

fn connect(plan: &SandboxPlan, stdin: Option<OwnedFd>, terminal: Option<OwnedFd>) -> Result<(), String> {
    let failed = context("cannot connect input and output");
    if let Some(terminal) = &terminal {
        ioctl_tiocsctty(terminal.as_fd()).map_err(context("cannot take the terminal"))?;
        sys::dup_to(terminal, 1).map_err(&failed)?;
        sys::dup_to(terminal, 2).map_err(&failed)?;
    } else if plan.merged {
        // Both use the same pipe, so that the reader gets writes in order.
        sys::dup_to(&io::stdout(), 2).map_err(&failed)?;
    }
    let nothing = File::open("/dev/null").map_err(&failed)?.into();
    let input = match plan.stdin {
        PlanStdin::Nothing => nothing,
        PlanStdin::Sent => stdin.unwrap_or(nothing),
        PlanStdin::Terminal => terminal.unwrap_or(nothing),
    };
    sys::dup_to(&input, 0).map_err(&failed)
}

fn limit(plan: &SandboxPlan) -> Result<(), String> {
    let (limits, tree) = (&plan.limits, plan.tree);
    // Without a PID namespace the kernel counts all processes of the user, so a tight limit would affect others.
    let processes = if tree == TreeTracking::Namespace { limits.processes } else { limits.processes.max(4096) };
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, processes),
    ]
    .into_iter()
    .chain(plan.data.map(|most| (Resource::Data, most)))
    {
        let now = getrlimit(resource);
        let most = now.maximum.map_or(most, |above| most.min(above));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(context("cannot set limits"))?;
    }
    // If the machine runs out of memory, commands are killed first. Not possible if `/proc` is read-only.
    _ = fs::write("/proc/self/oom_score_adj", "800");
    Ok(())
}

/// Without namespaces, root is root on the machine; without capabilities it only owns many files.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let failed = context("cannot drop capabilities");
    let have = rustix::thread::capabilities(None).map_err(&failed)?;
    if have.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // A kernel that does not know the capability refuses; that is fine.
            _ = remove_capability_from_bounding_set(capability);
        }
        let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
        set_capabilities_secure_bits(bits).map_err(&failed)?;
    }
    clear_ambient_capability_set().map_err(&failed)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(&failed)
}

fn restrict_files(rules: &LandlockRules, sent: Option<OwnedFd>) -> Result<(), String> {
    let made = match rules.by {
        RulesetBuilder::Engine => Some(sent.ok_or("the file rules did not come with the plan")?),
        RulesetBuilder::Stage => build_ruleset(&rules.grants)?,
    };
    match made {
        Some(made) => sys::restrict_self(&made).map_err(context("cannot take on the file rules")),
        None if rules.required => Err("the kernel has no Landlock, or it is turned off".to_owned()),
        None => Ok(()),
    }
}
