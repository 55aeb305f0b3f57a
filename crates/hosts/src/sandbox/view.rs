//! The files that a command sees: the system and its tools, but no secrets of the user.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::{
    environment::SYSTEM_PATH,
    hidden::{HOME_SECRETS, covered, secrets_of},
    identity,
    settings::SandboxConfig,
};
use crate::supervise::PathGrant;

/// Directories of the system that are read by everything.
pub(super) const SYSTEM_DIRS: [&str; 11] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu"];

/// Beneath `/etc`; relevant only for root, because other users cannot read them.
const SYSTEM_SECRETS: [&str; 18] = [
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssh",
    "ssl/private",
    "krb5.keytab",
    "NetworkManager/system-connections",
    "wpa_supplicant",
    "netplan",
    "openvpn",
    "wireguard",
    "letsencrypt",
    "kubernetes",
    "rancher",
    "docker",
];

/// Tool directories beneath the user's home, with the subdirectories that a command needs.
const TOOL_HOMES: [(&str, &[&str]); 18] = [
    (".cargo", &["bin", "registry", "git"]),
    (".rustup", &[""]),
    (".pyenv", &[""]),
    (".nvm", &["versions", "alias"]),
    (".fnm", &[""]),
    (".volta", &["bin", "tools"]),
    (".bun", &["bin", "install"]),
    (".deno", &["bin"]),
    (".rbenv", &[""]),
    (".asdf", &[""]),
    (".sdkman", &["candidates"]),
    (".juliaup", &[""]),
    (".ghcup", &["bin", "ghc"]),
    (".opam", &[""]),
    (".local", &["bin", "lib", "share/uv", "share/mise", "share/pnpm", "share/fnm", "share/virtualenvs"]),
    ("go", &["bin", "pkg"]),
    ("miniconda3", &[""]),
    ("anaconda3", &[""]),
];

/// Device files that a command may use without a private `/dev`.
pub(super) const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/fd"];

/// Facts about this machine, looked up once.
#[derive(Clone, Debug)]
pub(super) struct FilesystemView {
    /// The user's home.
    pub(super) home: PathBuf,
    /// The homes of people on this machine, the user's first.
    pub(super) homes: Vec<PathBuf>,
    /// Where programs are looked for.
    pub(super) path: Vec<PathBuf>,
    /// Directories of tools outside of the system's.
    pub(super) tools: Vec<PathBuf>,
    /// Secrets of the system that must be hidden.
    pub(super) hidden: Vec<PathBuf>,
    /// What git is told of the user.
    pub(super) git_config: Option<String>,
    /// The readable paths without mounts: the system without its secrets.
    pub(super) system: Vec<(PathBuf, PathGrant)>,
}

impl FilesystemView {
    pub(super) fn detect(settings: &SandboxConfig) -> Self {
        let home = home(settings);
        let wanted: Vec<PathBuf> = if settings.path.is_empty() {
            env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect()
        } else {
            settings.path.clone()
        };
        let mut path: Vec<PathBuf> = Vec::new();
        for dir in wanted.into_iter().chain(SYSTEM_PATH.iter().map(PathBuf::from)) {
            // A relative entry would run programs of the workspace. An unreadable one would turn "not found" into
            // "permission denied".
            if dir.is_absolute() && dir != home && dir.is_dir() && !path.contains(&dir) {
                path.push(dir);
            }
        }
        let tools = tool_dirs(&path, &home);
        let hidden = if rustix::process::geteuid().is_root() {
            SYSTEM_SECRETS.iter().map(|name| Path::new("/etc").join(name)).filter(|path| path.exists()).collect()
        } else {
            Vec::new()
        };
        let git_config = identity::git_config(&home);
        let homes = homes(&home);
        let mut view = Self { home, homes, path, tools, hidden, git_config, system: Vec::new() };
        view.system = view.system_grants();
        view
    }

    fn system_grants(&self) -> Vec<(PathBuf, PathGrant)> {
        let mut grants = Vec::new();
        for dir in SYSTEM_DIRS.iter().map(PathBuf::from) {
            if dir == Path::new("/etc") && !self.hidden.is_empty() {
                self.grant_except_secrets(&dir, &mut grants);
            } else {
                grants.push((dir, PathGrant::Read));
            }
        }
        grants.extend(["/proc", "/sys/devices/system"].map(|dir| (PathBuf::from(dir), PathGrant::Read)));
        grants.extend(DEVICES.iter().map(|file| (PathBuf::from(file), PathGrant::Write)));
        grants
    }

    /// Grants a directory's entries one by one, except secrets; Landlock has no exceptions.
    fn grant_except_secrets(&self, dir: &Path, grants: &mut Vec<(PathBuf, PathGrant)>) {
        grants.push((dir.to_owned(), PathGrant::List));
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if self.hidden.contains(&path) {
                continue;
            }
            if self.hidden.iter().any(|secret| secret.starts_with(&path)) {
                self.grant_except_secrets(&path, grants);
            } else {
                grants.push((path, PathGrant::Read));
            }
        }
    }
}

/// The user's home.
pub(super) fn home(settings: &SandboxConfig) -> PathBuf {
    let home = settings.home.clone().or_else(|| env::var_os("HOME").map(PathBuf::from));
    let home = home.filter(|home| home.is_absolute() && *home != Path::new("/"));
    let home = home.unwrap_or_else(|| PathBuf::from("/nonexistent"));
    fs::canonicalize(&home).unwrap_or(home)
}

/// The homes of root and of people, by the machine's list of users. `HOME` may name another directory than the list.
fn homes(own: &Path) -> Vec<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let listed = users.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(2);
        let id: u32 = fields.next()?.parse().ok()?;
        let home = fs::canonicalize(fields.nth(2)?).ok()?;
        ((id == 0 || id >= 1000) && home != Path::new("/")).then_some(home)
    });
    let mut homes: Vec<PathBuf> = std::iter::once(own.to_owned()).chain(listed).collect();
    let mut seen = std::collections::HashSet::new();
    homes.retain(|home| seen.insert(home.clone()));
    homes
}

/// What must be hidden from a program that sees these directories: Helve's private files, and users' keys and tokens.
pub(crate) fn hidden_places(private: &[PathBuf], seen: &[PathBuf]) -> Vec<PathBuf> {
    let homes = homes(&home(&SandboxConfig::default()));
    let own = private.iter().filter_map(|place| fs::canonicalize(place).ok());
    covered(secrets_of(&homes, seen).into_iter().chain(own).collect(), seen)
}

/// Directories that programs on the path need, where they are not the system's.
fn tool_dirs(path: &[PathBuf], home: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut add = |dir: PathBuf| {
        if dir.is_dir() && !found.iter().any(|have| dir.starts_with(have)) {
            found.push(dir);
        }
    };
    for dir in path.iter().filter(|dir| !is_system(dir)) {
        related_dirs(dir, home).into_iter().for_each(&mut add);
        let Ok(inside) = dir.strip_prefix(home) else {
            add(dir.clone());
            continue;
        };
        let name = inside.components().next().map(|it| it.as_os_str().to_owned()).unwrap_or_default();
        match TOOL_HOMES.iter().find(|(tool, _)| name == *tool) {
            Some((tool, parts)) => parts.iter().for_each(|part| add(home.join(tool).join(part))),
            None => add(dir.clone()),
        }
        if name == ".cargo" {
            add(home.join(".rustup"));
        }
    }
    found
}

fn is_system(dir: &Path) -> bool {
    SYSTEM_DIRS.iter().any(|system| dir.starts_with(system))
}

/// The maximum number of programs per directory whose links are resolved.
const MAX_PROGRAMS: usize = 2000;

/// The directories that programs on the path need: their Python environment and its base, the unpacked toolchain, and
/// the same for the targets of links.
fn related_dirs(dir: &Path, home: &Path) -> Vec<PathBuf> {
    let mut folders = toolchain_dirs(dir, home);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_PROGRAMS) {
        if !entry.file_type().is_ok_and(|it| it.is_symlink()) {
            continue;
        }
        let real = fs::canonicalize(entry.path()).ok().filter(|it| it.is_file());
        let Some(holder) = real.as_deref().and_then(Path::parent) else { continue };
        if is_system(holder) || folders.iter().any(|have| holder.starts_with(have)) || !may_show(holder, home) {
            continue;
        }
        folders.push(holder.to_owned());
        folders.extend(toolchain_dirs(holder, home));
    }
    folders
}

/// The directories that belong to a directory of programs.
fn toolchain_dirs(dir: &Path, home: &Path) -> Vec<PathBuf> {
    let Some(prefix) = dir.parent().filter(|it| may_show(it, home)) else { return Vec::new() };
    if let Ok(text) = fs::read_to_string(prefix.join("pyvenv.cfg")) {
        let made_from = text.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == "home");
        let made_from = made_from.and_then(|(_, bin)| fs::canonicalize(bin.trim()).ok());
        let made_from = made_from.and_then(|bin| Some(bin.parent()?.to_owned()));
        let made_from = made_from.filter(|it| !is_system(it) && may_show(it, home));
        return std::iter::once(prefix.to_owned()).chain(made_from).collect();
    }
    if dir.file_name().is_none_or(|name| name != "bin") {
        return Vec::new();
    }
    // Go's own directory has this shape.
    if prefix.join("VERSION").is_file() && prefix.join("pkg").is_dir() {
        return vec![prefix.to_owned()];
    }
    ["lib", "lib64", "libexec", "include"].map(|name| prefix.join(name)).into_iter().filter(|it| it.is_dir()).collect()
}

/// Whether a directory may be shown completely: it is not the root, contains no home, and is or contains no secret.
fn may_show(dir: &Path, home: &Path) -> bool {
    let homes = ["/", "/home", "/root", "/var", "/tmp", "/run", "/srv", "/mnt", "/media"];
    let secret = |name: &&str| {
        let secret = home.join(name);
        secret.starts_with(dir) || dir.starts_with(&secret)
    };
    !home.starts_with(dir) && !homes.iter().any(|it| dir == Path::new(it)) && !HOME_SECRETS.iter().any(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_environment_is_seen_whole_and_a_home_is_not() {
        let top = fs::canonicalize(env::temp_dir()).unwrap().join(format!("helve-view-{}", std::process::id()));
        let home = top.join("home");
        for dir in [
            "home/venv/bin",
            "home/venv/lib",
            "home/python/bin",
            "home/kit/node/bin",
            "home/bin",
            "home/.ssh",
            "home/lib",
        ] {
            fs::create_dir_all(top.join(dir)).unwrap();
        }
        fs::write(home.join("venv/pyvenv.cfg"), format!("home = {}\nversion = 3\n", home.join("python/bin").display()))
            .unwrap();
        fs::write(home.join("kit/node/bin/node"), "").unwrap();
        fs::write(home.join(".ssh/id"), "").unwrap();
        symlink(home.join("kit/node/bin/node"), home.join("bin/node")).unwrap();
        symlink(home.join(".ssh/id"), home.join("bin/id")).unwrap();
        let found = tool_dirs(&[home.join("venv/bin"), home.join("bin")], &home);
        assert_eq!(found, ["venv", "python", "kit/node/bin", "bin"].map(|it| home.join(it)));
        fs::remove_dir_all(top).unwrap();
    }
}
