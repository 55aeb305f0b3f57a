//! The outer walls: the arguments for bubblewrap, and where it is found.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use helve_contract::ports::SandboxLevel;

use super::view::{FilesystemView, SYSTEM_DIRS};
use crate::supervise::{Mounts, REQUIRED_CAPABILITIES};

/// Where the stage is seen from inside.
const HELPER_PATH: &str = "/run/helve-stage";

/// Where the socket of the proxy is seen from inside.
pub(super) const PROXY_SOCKET_PATH: &str = "/run/helve-proxy";

/// Only these folders are searched, never `PATH`: a `bwrap` in the workspace is not a sandbox.
const TRUSTED_DIRS: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin"];

/// The bubblewrap of this machine, or why there is none.
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

/// Why a file or folder cannot be trusted: somebody else could have changed it.
fn untrusted_reason(path: &Path) -> Option<String> {
    let Ok(about) = fs::metadata(path) else { return Some(format!("{} cannot be read", path.display())) };
    if about.mode() & 0o022 != 0 {
        return Some(format!("{} may be changed by others, and is not trusted", path.display()));
    }
    // In a user namespace the machine's root appears as the overflow user, or as the only user there is.
    if ![0, 65534, rustix::process::geteuid().as_raw()].contains(&about.uid()) {
        return Some(format!("{} belongs to another user, and is not trusted", path.display()));
    }
    None
}

/// Who raises the last of the outer walls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BwrapVariant {
    /// The stage, when the command is known: only then can the rest be built before. Some systems leave it no power to.
    pub(super) late_mounts: bool,
    /// Whether further namespaces are forbidden. Older editions cannot, nor can anybody where `/proc` is read-only. The
    /// filter of calls does, too.
    pub(super) no_new_namespaces: bool,
}

impl BwrapVariant {
    /// All ways, the best one first.
    pub(super) const ALL: [Self; 4] = [
        Self { late_mounts: true, no_new_namespaces: true },
        Self { late_mounts: false, no_new_namespaces: true },
        Self { late_mounts: true, no_new_namespaces: false },
        Self { late_mounts: false, no_new_namespaces: false },
    ];
}

/// All that decides what the outer walls look like.
pub(super) struct BwrapOptions<'a> {
    pub(super) level: SandboxLevel,
    pub(super) view: &'a FilesystemView,
    pub(super) stage: &'a Path,
    pub(super) finish: BwrapVariant,
    pub(super) network: bool,
    /// The socket of the proxy, where commands may reach some hosts.
    pub(super) proxy: Option<&'a Path>,
    pub(super) scratch: Option<&'a Path>,
    /// Folders and whether they may be written, the outermost first.
    pub(super) roots: &'a [(PathBuf, bool)],
    /// Other names that lead to them.
    pub(super) names: &'a [(PathBuf, PathBuf)],
    /// Places inside them that are not seen.
    pub(super) hidden: &'a [PathBuf],
    pub(super) mounts: &'a Mounts,
}

/// The arguments, up to and with the stage's path; and the places that are mounted.
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
    // Every mount costs a tenth of a millisecond, so what need not be written is a plain folder.
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
    // At the end: a root inside a hidden folder needs a folder there to be mounted on.
    for place in walls.hidden.iter().filter(|place| place.is_dir()) {
        args.path_option("--remount-ro", place);
    }
    args.bind("--ro-bind", walls.stage, Path::new(HELPER_PATH));
    args.flags(&["--remount-ro", "/", "--chdir", "/", "--", HELPER_PATH]);
    (args.words, args.places)
}

/// What is mounted at a place. Of several at one place the last is seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Tool,
    ReadOnlyRoot,
    WritableRoot,
    Pinned,
    Protected,
    Hidden,
}

/// All mounts of the session, the outermost first: a mount takes a folder as it is outside, with everything in it, so that
/// what covers a part of the folder must come after it.
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
    /// What is mounted, or mounted over.
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

    /// A link, which is only a name and no place.
    fn link(&mut self, target: &Path, at: &Path) {
        self.words.extend([OsString::from("--symlink"), target.into(), at.into()]);
    }

    /// A folder of the system, or the link that stands in its place.
    fn system(&mut self, dir: &Path) {
        match fs::read_link(dir) {
            Ok(target) => self.link(&target, dir),
            Err(_) if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) => {
                self.bind("--ro-bind", dir, dir);
            }
            Err(_) => {}
        }
    }

    /// Nothing is seen in its place.
    fn hide(&mut self, path: &Path) {
        if path.is_dir() {
            self.path_option("--tmpfs", path);
        } else {
            self.bind("--ro-bind", Path::new("/dev/null"), path);
        }
    }

    /// The file that names resolvers is often a link into `/run`, which is new inside.
    fn resolver(&mut self) {
        if let Ok(real) = fs::canonicalize("/etc/resolv.conf")
            && real.starts_with("/run")
        {
            self.bind("--ro-bind", &real, &real);
        }
    }
}
