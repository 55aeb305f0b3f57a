//! Detects sandbox denials in the error output of a command and explains them.

use std::path::{Component, Path, PathBuf};

use helve_contract::ports::SandboxLevel;

use super::hidden::is_hidden;
use crate::supervise::{Launch, PathGrant, SocketPolicy};

/// Messages that a sandbox denial may cause.
const REFUSALS: [&str; 5] = [
    "Read-only file system",
    "Permission denied",
    "Operation not permitted",
    "Is a directory",
    "Device or resource busy",
];

/// Messages of programs without a network.
const NO_NETWORK: [&str; 9] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Could not resolve proxy",
    "getaddrinfo ENOTFOUND",
    "EAI_AGAIN",
    "failed to lookup address",
    "socket: Operation not permitted",
];

/// Messages of programs that run out of memory.
const NO_MEMORY: [&str; 8] = [
    "Cannot allocate memory",
    "out of memory",
    "Out of memory",
    "memory allocation of",
    "MemoryError",
    "memory exhausted",
    "std::bad_alloc",
    "ReserveShadowMemoryRange",
];

/// The message for a file that is missing or hidden.
const ABSENT: &str = "No such file or directory";

/// Longer lines are ignored.
const MAX_LINE_BYTES: usize = 2048;
/// The maximum number of paths that are named.
const MAX_PATHS: usize = 5;

/// The memory limits: of the command, of all commands together, of each process.
#[derive(Default)]
struct MemoryLimits {
    own: Option<u64>,
    of_all: Option<u64>,
    each: Option<u64>,
}

/// Scans the error output of a command for denials.
pub(crate) struct DenialDetector {
    level: SandboxLevel,
    sandboxed: bool,
    network_off: bool,
    dir: PathBuf,
    writable: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    names: Vec<(PathBuf, PathBuf)>,
    vault: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    partial: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
    memory: MemoryLimits,
    out_of_memory: bool,
    line: Vec<u8>,
    places: Vec<PathBuf>,
    network: bool,
    /// The command tried to access the vault.
    missed_vault: bool,
}

impl DenialDetector {
    pub(crate) fn of(launch: &Launch) -> Self {
        let plan = &launch.plan;
        let grants = plan.walls.iter().flat_map(|walls| &walls.rules.grants);
        Self {
            level: launch.level,
            sandboxed: plan.walls.is_some(),
            network_off: launch.network_off
                || plan.walls.as_ref().is_some_and(|walls| walls.sockets == SocketPolicy::Pairs),
            dir: plan.dir.clone(),
            writable: grants.filter(|(_, grant)| *grant == PathGrant::Write).map(|(place, _)| place.clone()).collect(),
            protected: launch.protected.clone(),
            names: launch.names.clone(),
            vault: launch.vault.clone(),
            hidden: launch.hidden.clone(),
            partial: launch.partial.clone(),
            read_only: launch.read_only.clone(),
            memory: MemoryLimits { own: plan.limits.memory, of_all: plan.limits.memory_of_all, each: plan.data },
            out_of_memory: false,
            line: Vec::new(),
            places: Vec::new(),
            network: false,
            missed_vault: false,
        }
    }

    /// Scans the next chunk of error output.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        if !self.sandboxed {
            return;
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.take_line();
            }
        }
    }

    fn take_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        self.network |= self.network_off && NO_NETWORK.iter().any(|words| line.contains(words));
        self.out_of_memory |= NO_MEMORY.iter().any(|words| line.contains(words));
        let mut complaints = REFUSALS.iter().chain([&ABSENT]);
        let Some(words) = complaints.find(|words| line.contains(**words)) else { return };
        let Some(place) = denied_path(&line, words) else { return };
        let place = self.real(&lexical(&self.dir.join(place)));
        if self.vault.iter().any(|vault| place.starts_with(vault)) && self.names_vault() {
            self.missed_vault = true;
            return;
        }
        if *words == ABSENT && !self.hides(&place) {
            return;
        }
        if self.places.len() < MAX_PATHS && self.is_sandbox_denial(&place, words) && !self.places.contains(&place) {
            self.places.push(place);
        }
    }

    /// The directory of a virtual name.
    fn real(&self, place: &Path) -> PathBuf {
        let beneath = |(name, dir): &(PathBuf, PathBuf)| Some(dir.join(place.strip_prefix(name).ok()?));
        self.names.iter().find_map(beneath).map_or_else(|| place.to_owned(), |real| lexical(&real))
    }

    /// The path that the model knows: with the virtual name of its root, if there is one.
    fn shown(&self, place: &Path) -> PathBuf {
        let beneath = |(name, dir): &(PathBuf, PathBuf)| Some(lexical(&name.join(place.strip_prefix(dir).ok()?)));
        self.names.iter().find_map(beneath).unwrap_or_else(|| place.to_owned())
    }

    /// Whether the model knows the vault by a virtual name.
    fn names_vault(&self) -> bool {
        self.names.iter().any(|(_, dir)| self.vault.contains(dir))
    }

    /// Whether a path is in a hidden place.
    fn hides(&self, place: &Path) -> bool {
        let seen: Vec<PathBuf> = self.writable.iter().chain(&self.read_only).cloned().collect();
        let hidden: Vec<PathBuf> = self.hidden.iter().chain(&self.vault).cloned().collect();
        is_hidden(place, &seen, &hidden)
    }

    /// Whether the user may be asked to make a directory writable: it must not be hidden or contain a hidden place.
    fn may_be_opened(&self, dir: &Path) -> bool {
        let is_kernels = ["/proc", "/sys", "/dev"].iter().any(|top| dir.starts_with(top));
        !is_kernels && !self.hides(dir) && !self.hidden.iter().chain(&self.vault).any(|hidden| hidden.starts_with(dir))
    }

    /// Explains a denial at a path and what to do.
    fn explain(&self, place: &Path) -> String {
        let (shown, level) = (self.shown(place), self.level.name());
        let shown = shown.display();
        let folder = place.parent().unwrap_or(place);
        if self.hides(place) {
            return format!(
                "{shown} is hidden: the sandbox ({level}) shows commands no keys, tokens or files of Helve itself; work \
                 without it"
            );
        }
        if self.protects(place) {
            return format!(
                "{shown} is protected: the sandbox ({level}) lets no command change it; ask the user to do it"
            );
        }
        if self.read_only.iter().any(|dir| place.starts_with(dir)) {
            return format!(
                "{shown} is in a folder that commands may only read (sandbox {level}); write in the workspace or in $TMPDIR"
            );
        }
        if self.partial.iter().any(|dir| dir == folder) {
            return format!(
                "commands can create nothing directly in {} at sandbox level {level}, because keys or files of Helve itself \
                 lie in it; work in a folder inside it, or create the file with a file tool",
                self.shown(folder).display()
            );
        }
        let refused = format!(
            "the sandbox ({level}) refuses access to {shown}: commands may write only in the workspace and in $TMPDIR. Work \
             there"
        );
        if !self.may_be_opened(folder) {
            return refused;
        }
        format!(
            "{refused}, or ask the user to add the folder under [sandbox] in helve.toml: writable = [\"{}\"]",
            folder.display()
        )
    }

    /// Whether the sandbox caused the error, not the file permissions.
    fn is_sandbox_denial(&self, place: &Path, words: &str) -> bool {
        if self.protects(place) || self.hides(place) {
            return true;
        }
        let outside = !self.writable.iter().any(|dir| place.starts_with(dir));
        outside && !matches!(words, "Is a directory" | "Device or resource busy")
    }

    fn protects(&self, place: &Path) -> bool {
        self.protected.iter().any(|name| place.starts_with(name) || name.starts_with(place))
    }

    /// The messages about denials, for the model.
    pub(crate) fn messages(&mut self, out_of_memory: bool) -> Vec<String> {
        self.take_line();
        let level = self.level.name();
        let mut told: Vec<String> = self.places.iter().map(|place| self.explain(place)).collect();
        if self.missed_vault {
            let name = self.vault.first().map(|vault| self.shown(vault)).unwrap_or_default();
            told.push(format!(
                "commands cannot see the vault ({}); copy a file out of it with `vault_copyto` first",
                name.display()
            ));
        }
        if self.network {
            told.push(format!(
                "the network is off for commands (sandbox {level}); work without it, or ask the user to set \
                 network = \"on\" under [sandbox] in helve.toml"
            ));
        }
        if out_of_memory {
            let (limit, whose) = match (self.memory.own, self.memory.of_all) {
                (Some(own), _) => (own, "it may have"),
                (None, of_all) => (of_all.unwrap_or(0), "all commands may have together"),
            };
            let limit = limit >> 20;
            told.push(format!(
                "the command used more memory than the {limit} MiB {whose}, and something in it was killed for that"
            ));
        } else if let (true, Some(each)) = (self.out_of_memory, self.memory.each) {
            told.push(format!(
                "each process may have {} MiB of memory here; where that is too little, ask the user to raise memory_mb \
                 under [sandbox] in helve.toml",
                each >> 20
            ));
        }
        told
    }
}

/// The path in an error message.
fn denied_path<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    let at = line.find(words)?;
    let (before, after) = (line[..at].trim_end_matches([':', ' ', '(']), &line[at + words.len()..]);
    let named = quoted(before).or_else(|| quoted(after)).or_else(|| before.rsplit(": ").next())?;
    let named = named.trim().trim_end_matches(':');
    let plausible = !named.is_empty() && named.len() < 1024 && !named.contains(['\0', '\n']);
    let bare = named.contains('/') || quoted(before).is_some() || quoted(after).is_some() || !named.contains(' ');
    (plausible && bare).then_some(named)
}

/// The last quoted text.
fn quoted(text: &str) -> Option<&str> {
    [('\'', '\''), ('‘', '’'), ('"', '"'), ('`', '`')].iter().find_map(|(open, close)| {
        let end = text.rfind(*close)?;
        let start = text[..end].rfind(*open)? + open.len_utf8();
        text.get(start..end).filter(|it| !it.is_empty())
    })
}

fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = clean.pop(),
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let mut denials = DenialDetector {
            level: SandboxLevel::Full,
            sandboxed: true,
            network_off: true,
            dir: "/w".into(),
            writable: vec!["/w".into(), "/tmp".into()],
            protected: vec!["/w/.git/hooks".into()],
            names: vec![
                ("/shared".into(), "/w".into()),
                ("/spill".into(), "/s/x".into()),
                ("/vault".into(), "/s/v".into()),
            ],
            vault: vec!["/s/v".into()],
            hidden: vec!["/home/me/.ssh".into(), "/s".into()],
            partial: vec!["/part".into()],
            read_only: vec!["/s/x".into()],
            memory: MemoryLimits { each: Some(64 << 20), ..MemoryLimits::default() },
            out_of_memory: false,
            line: Vec::new(),
            places: Vec::new(),
            network: false,
            missed_vault: false,
        };
        for piece in text.as_bytes().chunks(7) {
            denials.feed(piece);
        }
        denials.messages(false)
    }

    #[test]
    fn names_the_place_in_every_wording() {
        for line in [
            "bash: line 1: /etc/x: Read-only file system",
            "touch: cannot touch '/etc/x': Permission denied",
            "mkdir: cannot create directory ‘/etc/x’: Read-only file system",
            "PermissionError: [Errno 13] Permission denied: '/etc/x'",
            "Error: EACCES: Permission denied, open '/etc/x'",
            "cp: cannot create regular file '../etc/x': Permission denied\n",
        ] {
            assert_eq!(
                told(line),
                [
                    "the sandbox (L3) refuses access to /etc/x: commands may write only in the workspace and in $TMPDIR. Work \
                     there, or ask the user to add the folder under [sandbox] in helve.toml: writable = [\"/etc\"]"
                ],
                "{line}"
            );
        }
    }

    #[test]
    fn ordinary_permissions_are_no_wall() {
        assert_eq!(told("bash: ./script: Permission denied\ncat: src: Is a directory\n"), [""; 0]);
    }

    #[test]
    fn the_vault_is_named_and_no_setting_is_advised_for_it() {
        for line in [
            "cat: /vault/k: No such file or directory",
            "cp: cannot stat '/s/v/k': No such file or directory",
            "touch: cannot touch '/vault/k': Read-only file system",
            "ls: cannot open directory '/vault': Permission denied",
        ] {
            let expected = "commands cannot see the vault (/vault); copy a file out of it with `vault_copyto` first";
            assert_eq!(told(line), [expected], "{line}");
        }
        assert_eq!(told("cat: /etc/none: No such file or directory"), [""; 0]);
    }

    #[test]
    fn no_setting_is_advised_for_hidden_places_or_folders_around_them() {
        let hidden =
            "is hidden: the sandbox (L3) shows commands no keys, tokens or files of Helve itself; work without it";
        for place in ["/home/me/.ssh/id", "/s/serve.token", "/s/new/x"] {
            for words in ["No such file or directory", "Read-only file system", "Permission denied"] {
                assert_eq!(told(&format!("cat: {place}: {words}")), [format!("{place} {hidden}")]);
            }
        }
        for place in ["/home/me/x", "/home/x", "/x", "/proc/1/root/s/x"] {
            let told = told(&format!("touch: cannot touch '{place}': Permission denied"));
            assert!(told[0].ends_with("in $TMPDIR. Work there"), "{told:?}");
        }
        assert!(told("touch: cannot touch '/part/x': Permission denied")[0].starts_with("commands can create nothing"));
    }

    #[test]
    fn virtual_names_are_judged_as_the_folders_behind_them() {
        assert_eq!(told("bash: /shared/x: Permission denied"), [""; 0]);
        assert_eq!(
            told("bash: /spill/x: Read-only file system"),
            ["/spill/x is in a folder that commands may only read (sandbox L3); write in the workspace or in $TMPDIR"]
        );
        assert_eq!(
            told("bash: /shared/.git/hooks/x: Read-only file system"),
            ["/shared/.git/hooks/x is protected: the sandbox (L3) lets no command change it; ask the user to do it"]
        );
    }

    #[test]
    fn a_process_without_memory_hears_of_its_limit() {
        let told = told("bash: xmalloc: cannot allocate 9 bytes\nmemory allocation of 99 bytes failed\n");
        let limit = "each process may have 64 MiB of memory here; where that is too little, ask the user to raise \
                     memory_mb under [sandbox] in helve.toml";
        assert_eq!(told, [limit]);
    }

    #[test]
    fn protected_places_and_the_network() {
        assert_eq!(
            told("bash: .git/hooks/pre-commit: Read-only file system\ncurl: (6) Could not resolve host: example.org\n"),
            [
                "/shared/.git/hooks/pre-commit is protected: the sandbox (L3) lets no command change it; ask the user to do it",
                "the network is off for commands (sandbox L3); work without it, or ask the user to set network = \"on\" \
                 under [sandbox] in helve.toml"
            ]
        );
    }
}
