//! The outer sandbox: arguments for bubblewrap and the search for its binary.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use helve_contract::ports::SandboxLevel;

use super::view::{FilesystemView, SYSTEM_DIRS};
use crate::supervise::{Mounts, REQUIRED_CAPABILITIES};

/// The path of the sandbox init helper inside the sandbox.
const HELPER_PATH: &str = "/run/helve-stage";

/// The path of the proxy socket inside the sandbox.
pub(super) const PROXY_SOCKET_PATH: &str = "/run/helve-proxy";

/// Only these directories are searched, never `PATH`: a `bwrap` in the workspace is untrusted.
const TRUSTED_DIRS: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin"];

/// Finds bubblewrap, or returns why it is unavailable.
pub(super) fn find() -> Result<PathBuf, String> {
    let mut trouble = format!("bwrap was not found in {}; install bubblewrap", TRUSTED_DIRS.join(", "));
    for dir in TRUSTED_DIRS {
        let Ok(program) = fs::canonicalize(Path::new(dir).join("bwrap")) else { continue };
        let above = program.parent().map(Path::to_owned);
        match [Some(program.clone()), above].into_iter().flatten().find_map(|path| untrusted_reason(&path)) {
            None => return Ok(program),
            Some(why) => trouble = why,
        }
    }
    Err(trouble)
}

/// Why a file or directory is untrusted: other users could have changed it.
fn untrusted_reason(path: &Path) -> Option<String> {
    let Ok(about) = fs::metadata(path) else { return Some(format!("{} cannot be read", path.display())) };
    if about.mode() & 0o022 != 0 {
        return Some(format!("{} may be changed by others, and is not trusted", path.display()));
    }
    // In a user namespace the machine's root appears as the overflow user, or as the only existing user.
    if ![0, 65534, rustix::process::geteuid().as_raw()].contains(&about.uid()) {
        return Some(format!("{} belongs to another user, and is not trusted", path.display()));
    }
    None
}

/// Which optional features of bubblewrap are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BwrapVariant {
    /// The init helper mounts the protected paths when the command is known, so the sandbox can be prepared earlier.
    /// Some systems do not allow it.
    pub(super) late_mounts: bool,
    /// Whether bubblewrap forbids further namespaces. Old versions cannot, nor can any where `/proc` is read-only.
    /// The seccomp filter forbids them too.
    pub(super) no_new_namespaces: bool,
}

impl BwrapVariant {
    /// All variants, the best one first.
    pub(super) const ALL: [Self; 4] = [
        Self { late_mounts: true, no_new_namespaces: true },
        Self { late_mounts: false, no_new_namespaces: true },
        Self { late_mounts: true, no_new_namespaces: false },
        Self { late_mounts: false, no_new_namespaces: false },
    ];
}

/// The inputs of the outer sandbox.
pub(super) struct BwrapOptions<'a> {
    pub(super) level: SandboxLevel,
    pub(super) view: &'a FilesystemView,
    pub(super) stage: &'a Path,
    pub(super) finish: BwrapVariant,
    pub(super) network: bool,
    /// The proxy socket, if commands may reach some hosts.
    pub(super) proxy: Option<&'a Path>,
    pub(super) scratch: Option<&'a Path>,
    /// Directories and whether they are writable, outermost first.
    pub(super) roots: &'a [(PathBuf, bool)],
    /// Additional symbolic links to them.
    pub(super) names: &'a [(PathBuf, PathBuf)],
    /// Hidden paths inside them.
    pub(super) hidden: &'a [PathBuf],
    pub(super) mounts: &'a Mounts,
}

/// The arguments up to and including the helper's path, and the mounted paths.
pub(super) fn build_args(walls: &BwrapOptions<'_>) -> (Vec<OsString>, Vec<PathBuf>) {
    let mut args = BwrapArgs { words: Vec::with_capacity(128), places: Vec::with_capacity(32) };
    args.flags(&["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    if !walls.network {
        args.flags(&["--unshare-net"]);
    }
    args.flags(&["--cap-drop", "ALL"]);
    if walls.finish.late_mounts {
        for power in REQUIRED_CAPABILITIES {
            args.flags(&["--cap-add", power]);
        }
    } else if walls.finish.no_new_namespaces {
        args.flags(&["--disable-userns"]);
    }
    args.flags(&["--new-session", "--die-with-parent", "--as-pid-1", "--hostname", "sandbox"]);
    for dir in SYSTEM_DIRS {
        args.system(Path::new(dir));
    }
    for secret in &walls.view.hidden {
        args.hide(secret);
    }
    match walls.level {
        SandboxLevel::Nested => args.flags(&["--ro-bind", "/proc", "/proc"]),
        _ => args.flags(&["--proc", "/proc"]),
    }
    // Every mount costs 0.1 ms, so read-only places are plain directories.
    args.flags(&["--dev", "/dev", "--ro-bind-try", "/sys/devices/system", "/sys/devices/system", "--dir", "/run"]);
    if walls.network {
        args.resolver();
    }
    if let Some(socket) = walls.proxy {
        args.bind("--ro-bind", socket, Path::new(PROXY_SOCKET_PATH));
    }
    match walls.scratch {
        Some(dir) => args.bind("--bind", dir, Path::new("/tmp")),
        None => args.flags(&["--perms", "1777", "--tmpfs", "/tmp"]),
    }
    args.path_option("--tmpfs", &walls.view.home);
    for (name, dir) in walls.names {
        args.link(dir, name);
    }
    for (place, layer) in layers(walls) {
        match layer {
            Layer::Tool => args.bind("--ro-bind-try", place, place),
            Layer::ReadOnlyRoot => args.bind("--ro-bind", place, place),
            Layer::WritableRoot => args.bind("--bind", place, place),
            Layer::Pinned => args.bind("--bind-try", place, place),
            Layer::Protected => args.bind("--ro-bind-try", place, place),
            Layer::Hidden => args.hide(place),
        }
    }
    // Last, because a root inside a hidden directory needs a mount point there.
    for place in walls.hidden.iter().filter(|place| place.is_dir()) {
        args.path_option("--remount-ro", place);
    }
    args.bind("--ro-bind", walls.stage, Path::new(HELPER_PATH));
    args.flags(&["--remount-ro", "/", "--chdir", "/", "--", HELPER_PATH]);
    (args.words, args.places)
}

/// What is mounted at a path. The last of several at one path is visible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Tool,
    ReadOnlyRoot,
    WritableRoot,
    Pinned,
    Protected,
    Hidden,
}

/// All mounts of the session, outermost first. A bind mount shows a directory with its whole content, so mounts over
/// a part of it must follow.
fn layers<'a>(walls: &BwrapOptions<'a>) -> Vec<(&'a Path, Layer)> {
    let in_root = |dir: &Path| walls.roots.iter().any(|(root, _)| dir.starts_with(root));
    let tools = walls.view.tools.iter().filter(|dir| !in_root(dir)).map(|dir| (dir, Layer::Tool));
    let roots = walls
        .roots
        .iter()
        .map(|(dir, writable)| (dir, if *writable { Layer::WritableRoot } else { Layer::ReadOnlyRoot }));
    let mut all: Vec<_> = tools.chain(roots).chain(walls.hidden.iter().map(|place| (place, Layer::Hidden))).collect();
    if !walls.finish.late_mounts {
        all.extend(walls.mounts.pinned.iter().map(|dir| (dir, Layer::Pinned)));
        all.extend(walls.mounts.read_only.iter().map(|place| (place, Layer::Protected)));
    }
    let mut all: Vec<(&Path, Layer)> = all.into_iter().map(|(place, layer)| (place.as_path(), layer)).collect();
    all.sort();
    all
}

struct BwrapArgs {
    words: Vec<OsString>,
    /// The mount points.
    places: Vec<PathBuf>,
}

impl BwrapArgs {
    fn flags(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(OsString::from));
    }

    fn path_option(&mut self, option: &str, path: &Path) {
        self.words.extend([OsString::from(option), path.into()]);
        self.places.push(path.to_owned());
    }

    fn bind(&mut self, option: &str, from: &Path, to: &Path) {
        self.words.extend([OsString::from(option), from.into(), to.into()]);
        self.places.push(from.to_owned());
        if from != to {
            self.places.push(to.to_owned());
        }
    }

    /// Adds a symbolic link, which is not a mount point.
    fn link(&mut self, target: &Path, at: &Path) {
        self.words.extend([OsString::from("--symlink"), target.into(), at.into()]);
    }

    /// Adds a system directory, or the link in its place.
    fn system(&mut self, dir: &Path) {
        match fs::read_link(dir) {
            Ok(target) => self.link(&target, dir),
            Err(_) if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) => {
                self.bind("--ro-bind", dir, dir);
            }
            Err(_) => {}
        }
    }

    /// Hides a path.
    fn hide(&mut self, path: &Path) {
        if path.is_dir() {
            self.path_option("--tmpfs", path);
        } else {
            self.bind("--ro-bind", Path::new("/dev/null"), path);
        }
    }

    /// The resolver configuration is often a link into `/run`, which is empty inside the sandbox.
    fn resolver(&mut self) {
        if let Ok(real) = fs::canonicalize("/etc/resolv.conf")
            && real.starts_with("/run")
        {
            self.bind("--ro-bind", &real, &real);
        }
    }
}
