//! Config files of git: which settings a command may leave in one.
//!
//! Many settings make git run a program. A command may leave only settings of an allowlist. Settings that existed
//! before the command are the user's and stay. The file is rewritten, so a parser difference between Helve and git
//! cannot let a setting pass.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// Settings that name no program, file or address, by section.
const HARMLESS: [(&str, &[&str]); 21] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "quotepath",
            "untrackedcache",
            "sparsecheckout",
            "sparsecheckoutcone",
            "abbrev",
            "compression",
            "longpaths",
            "whitespace",
        ],
    ),
    (
        "extensions",
        &["objectformat", "compatobjectformat", "refstorage", "worktreeconfig", "relativeworktrees", "noop"],
    ),
    ("remote", &["fetch", "push", "tagopt", "prune", "prunetags", "mirror", "promisor", "partialclonefilter"]),
    ("branch", &["merge", "rebase", "description", "autosetupmerge", "autosetuprebase", "sort"]),
    ("submodule", &["active", "branch", "ignore", "fetchrecursesubmodules", "shallow", "recurse"]),
    ("user", &["name", "email"]),
    ("author", &["name", "email"]),
    ("committer", &["name", "email"]),
    ("init", &["defaultbranch"]),
    ("pull", &["rebase", "ff"]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("fetch", &["prune", "prunetags"]),
    ("merge", &["ff", "conflictstyle"]),
    ("rebase", &["autosquash", "autostash", "updaterefs"]),
    ("rerere", &["enabled", "autoupdate"]),
    ("status", &["showuntrackedfiles", "branch", "short"]),
    ("color", &["ui"]),
    ("gc", &["auto", "autodetach"]),
    ("index", &["version", "sparse"]),
    ("feature", &["manyfiles"]),
    ("lfs", &["repositoryformatversion"]),
];

/// Settings whose value is an address or a remote's name: git treats an unknown name as an address.
const ADDRESSES: [(&str, &[&str]); 4] = [
    ("remote", &["url", "pushurl", "pushdefault"]),
    ("submodule", &["url"]),
    ("branch", &["remote", "pushremote"]),
    ("extensions", &["partialclone"]),
];

/// Schemes that git implements. Others are names of programs that git starts.
const SCHEMES: [&str; 8] = ["http", "https", "ssh", "git", "git+ssh", "ssh+git", "file", "ftps"];

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// In lower case.
    section: String,
    subsection: Option<String>,
    /// In lower case.
    name: String,
    /// `None` if there is no `=`, which means true.
    value: Option<String>,
}

/// The decision about a config file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays unchanged.
    Keep,
    /// It is replaced by this text, without these settings.
    Rewrite(String, Vec<String>),
    /// Git cannot read it, or its meaning is ambiguous.
    Unreadable,
}

/// Checks a config file in a git directory that a command created or changed. `core.worktree` must be beneath the
/// root.
pub(super) fn judge(before: Option<&[u8]>, now: &[u8], git_dir: &Path, root: &Path) -> Verdict {
    let Some(entries) = parse(now) else { return Verdict::Unreadable };
    let is_same = before == Some(now);
    let before = before.and_then(parse).unwrap_or_default();
    let may_pass = |entry: &Entry| is_allowed(entry, git_dir, root);
    let users: Vec<&Entry> = before.iter().filter(|entry| !may_pass(entry)).collect();
    let others: Vec<&Entry> = entries.iter().filter(|entry| !may_pass(entry)).collect();
    if is_same || users == others && is_plain(now) {
        return Verdict::Keep;
    }
    let mut removed: Vec<String> =
        others.iter().filter(|entry| !users.contains(entry)).map(|entry| entry.key()).collect();
    removed.sort();
    removed.dedup();
    let kept = users.into_iter().chain(entries.iter().filter(|entry| may_pass(entry)));
    Verdict::Rewrite(kept.map(Entry::text).collect(), removed)
}

/// Whether a config file makes git run nothing.
pub(super) fn runs_nothing(config: &[u8], git_dir: &Path, root: &Path) -> bool {
    parse(config).is_some_and(|entries| entries.iter().all(|entry| is_allowed(entry, git_dir, root)))
}

/// The include paths of a config file, as written.
pub(super) fn included(config: &[u8]) -> Vec<String> {
    let is_include = |entry: &Entry| entry.name == "path" && ["include", "includeif"].contains(&&*entry.section);
    let entries = parse(config).unwrap_or_default();
    entries.into_iter().filter(is_include).filter_map(|entry| entry.value).collect()
}

/// The merge strategy in the options of a cherry-pick or revert; an error if the options are ambiguous.
pub(super) fn strategy(options: &[u8]) -> Result<Option<String>, ()> {
    let entries = parse(options).ok_or(())?;
    let named = |entry: Entry| (entry.section == "options" && entry.name == "strategy").then_some(entry.value);
    Ok(entries.into_iter().filter_map(named).next_back().flatten())
}

fn is_allowed(entry: &Entry, git_dir: &Path, root: &Path) -> bool {
    let value = entry.value.as_deref().unwrap_or_default();
    let listed = |list: &[(&str, &[&str])]| {
        list.iter().any(|(section, names)| entry.section == *section && names.contains(&entry.name.as_str()))
    };
    if value.contains(|it: char| it.is_control() && it != '\t') {
        return false;
    }
    match (entry.section.as_str(), entry.name.as_str()) {
        // A submodule's config names its work tree.
        ("core", "worktree") => is_beneath(&git_dir.join(value), root),
        ("submodule", "update") => ["checkout", "rebase", "merge", "none"].contains(&value),
        _ if listed(&ADDRESSES) => is_safe_address(value),
        _ => listed(&HARMLESS),
    }
}

/// Whether a path is beneath the root. Links are followed as far as the path exists.
pub(super) fn is_beneath(path: &Path, root: &Path) -> bool {
    resolve(path).is_some_and(|path| path.starts_with(root))
}

/// Resolves links, `.` and `..`. The final components need not exist.
pub(super) fn resolve(path: &Path) -> Option<PathBuf> {
    let mut at = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = at.pop(),
            Component::CurDir => {}
            other => at.push(other),
        }
        if let Ok(real) = fs::canonicalize(&at) {
            at = real;
        } else if at.is_symlink() {
            // A dangling link may get a target later.
            return None;
        }
    }
    at.is_absolute().then_some(at)
}

/// Whether git reaches an address without running a program that the address names.
fn is_safe_address(address: &str) -> bool {
    let is_scheme = |it: char| it.is_ascii_alphanumeric() || "+.-".contains(it);
    let scheme = &address[..address.find(|it| !is_scheme(it)).unwrap_or(address.len())];
    let rest = &address[scheme.len()..];
    let host = rest.strip_prefix("://").unwrap_or(address);
    let host = host.split('/').next().unwrap_or_default();
    !address.is_empty()
        && !rest.starts_with("::")
        && (!rest.starts_with("://") || SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()))
        && !host.starts_with('-')
        && !host.contains("@-")
}

impl Entry {
    fn key(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.name),
            None => format!("{}.{}", self.section, self.name),
        }
    }

    /// Renders the setting as a separate section, which is unambiguous.
    fn text(&self) -> String {
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let head = match &self.subsection {
            Some(subsection) => format!("[{} \"{}\"]", self.section, escape(subsection)),
            None => format!("[{}]", self.section),
        };
        match &self.value {
            Some(value) => {
                let value = escape(value).replace('\n', "\\n").replace('\t', "\\t").replace('\u{8}', "\\b");
                format!("{head}\n\t{} = \"{value}\"\n", self.name)
            }
            None => format!("{head}\n\t{}\n", self.name),
        }
    }
}

/// Whether every line has the form that git writes, so that all parsers agree.
fn is_plain(config: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(config) else { return false };
    text.lines().all(|line| {
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
        if line.contains(|it: char| it.is_control() && it != '\t') {
            return false;
        }
        if let Some(head) = line.strip_prefix('[') {
            let Some(head) = head.strip_suffix(']') else { return false };
            let (section, subsection) = head.split_once(' ').map_or((head, None), |(a, b)| (a, Some(b)));
            let quoted = |it: &str| it.strip_prefix('"').and_then(|it| it.strip_suffix('"')).map(str::to_owned);
            return is_word(section)
                && subsection.is_none_or(|it| quoted(it).is_some_and(|it| !it.contains(['"', '\\', ']'])));
        }
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        line.split_once(" = ").is_some_and(|(name, value)| is_word(name) && !value.contains(['"', '\\', '#', ';']))
    })
}

/// Parses a config file as git does; `None` if git refuses it.
fn parse(config: &[u8]) -> Option<Vec<Entry>> {
    let text = std::str::from_utf8(config).ok().filter(|it| !it.contains('\0'))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut parser = Parser { rest: text.chars().peekable() };
    let (mut entries, mut prefix) = (Vec::new(), None);
    while let Some(next) = parser.rest.next() {
        match next {
            '#' | ';' => while parser.rest.next_if(|it| *it != '\n').is_some() {},
            '[' => prefix = Some(parser.section()?),
            it if it.is_ascii_whitespace() || it == '\u{b}' => {}
            it if it.is_ascii_alphabetic() => {
                let (section, subsection) = prefix.clone()?;
                let (name, value) = parser.setting(it)?;
                entries.push(Entry { section, subsection, name, value });
            }
            _ => return None,
        }
    }
    Some(entries)
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl Parser<'_> {
    /// Parses a section header after its `[`. Git joins its parts with dots and splits at the first.
    fn section(&mut self) -> Option<(String, Option<String>)> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                ']' => break,
                it if it == ' ' || it == '\t' => {
                    while self.rest.next_if(|it| *it == ' ' || *it == '\t').is_some() {}
                    name.push('.');
                    name.push_str(&self.subsection()?);
                    break;
                }
                it if it.is_ascii_alphanumeric() || it == '-' || it == '.' => name.push(it.to_ascii_lowercase()),
                _ => return None,
            }
        }
        match name.split_once('.') {
            Some((section, subsection)) => Some((section.to_owned(), Some(subsection.to_owned()))),
            None => Some((name, None)),
        }
    }

    /// Parses a quoted subsection up to and including the `]`.
    fn subsection(&mut self) -> Option<String> {
        self.rest.next_if_eq(&'"')?;
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                '"' => break,
                '\n' => return None,
                '\\' => name.push(self.rest.next().filter(|it| *it != '\n')?),
                it => name.push(it),
            }
        }
        self.rest.next_if_eq(&']').map(|_| name)
    }

    /// Parses a name, whose first character was read, and its value.
    fn setting(&mut self, first: char) -> Option<(String, Option<String>)> {
        let mut name = first.to_ascii_lowercase().to_string();
        while let Some(it) = self.rest.next_if(|it| it.is_ascii_alphanumeric() || *it == '-') {
            name.push(it.to_ascii_lowercase());
        }
        while self.rest.next_if(|it| *it == ' ' || *it == '\t').is_some() {}
        match self.rest.next() {
            None | Some('\n') => Some((name, None)),
            Some('=') => Some((name, Some(self.value()?))),
            Some(_) => None,
        }
    }

    fn value(&mut self) -> Option<String> {
        let (mut value, mut blanks) = (String::new(), String::new());
        let (mut is_quoted, mut is_comment) = (false, false);
        while let Some(next) = self.rest.next() {
            if next == '\n' {
                return (!is_quoted).then_some(value);
            }
            if is_comment {
                continue;
            }
            if !is_quoted && (next.is_ascii_whitespace() || next == '\u{b}') {
                if !value.is_empty() {
                    blanks.push(next);
                }
                continue;
            }
            if !is_quoted && (next == '#' || next == ';') {
                is_comment = true;
                continue;
            }
            value.push_str(&std::mem::take(&mut blanks));
            match next {
                '"' => is_quoted = !is_quoted,
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    'n' => value.push('\n'),
                    it if it == '\\' || it == '"' => value.push(it),
                    _ => return None,
                },
                it => value.push(it),
            }
        }
        (!is_quoted).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &str, now: &str) -> Verdict {
        judge(Some(before.as_bytes()), now.as_bytes(), Path::new("/w/.git"), Path::new("/w"))
    }

    fn keys(now: &str, git_dir: &str, root: &str) -> Vec<String> {
        match judge(None, now.as_bytes(), Path::new(git_dir), Path::new(root)) {
            Verdict::Rewrite(_, removed) => removed,
            Verdict::Keep | Verdict::Unreadable => Vec::new(),
        }
    }

    const MADE_BY_GIT: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
                               \tlogallrefupdates = true\n[remote \"origin\"]\n\turl = ../source\n\
                               \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\
                               \tmerge = refs/heads/main\n";

    #[test]
    fn what_git_writes_stays_as_it_is() {
        assert_eq!(after("", MADE_BY_GIT), Verdict::Keep);
        assert_eq!(after("", "# mine\n[user]\n\tname = a b\n"), Verdict::Keep);
        assert_eq!(after("", ""), Verdict::Keep);
    }

    #[test]
    fn settings_that_run_programs_are_found_in_every_spelling() {
        for (config, key) in [
            ("[core]\n\tfsmonitor = ./x\n", "core.fsmonitor"),
            ("[core] sshCommand = x", "core.sshcommand"),
            ("[CORE]FSMONITOR=x", "core.fsmonitor"),
            ("\u{feff}[core]\r\n\tfsmonitor=x\r\n", "core.fsmonitor"),
            ("[core]\n\tbare = false \\\n\n\tfsmonitor = x\n", "core.fsmonitor"),
            ("[core]\n\tbare = \"#\" ; [x]\n\tfsmonitor = x\n", "core.fsmonitor"),
            ("[core] # ]\nhooksPath = x", "core.hookspath"),
            ("[include]\n\tpath = x\n", "include.path"),
            ("[includeIf \"gitdir:/\"]\n\tpath = x\n", "includeif.gitdir:/.path"),
            ("[filter \"a\\\"]b\"]\n\tclean = x\n", "filter.a\"]b.clean"),
            ("[filter.x]\n\tclean = x\n", "filter.x.clean"),
            ("[diff]\n\texternal = x\n", "diff.external"),
            ("[gc]\n\trecentObjectsHook = x\n", "gc.recentobjectshook"),
            ("[init]\n\ttemplateDir = x\n", "init.templatedir"),
            ("[alias]\n\tst = !x\n", "alias.st"),
            ("[credential]\n\thelper = !x\n", "credential.helper"),
            ("[remote \"o\"]\n\turl = ext::sh -c x\n", "remote.o.url"),
            ("[remote \"o\"]\n\turl = foo://x\n", "remote.o.url"),
            ("[remote \"o\"]\n\turl = -oProxyCommand=x:y\n", "remote.o.url"),
            ("[remote \"o\"]\n\turl = ssh://a@-oProxyCommand=x/y\n", "remote.o.url"),
            ("[remote \"o\"]\n\tuploadpack = x\n", "remote.o.uploadpack"),
            ("[remote \"o\"]\n\tvcs = x\n", "remote.o.vcs"),
            ("[branch \"m\"]\n\tremote = ext::x\n", "branch.m.remote"),
            ("[submodule \"s\"]\n\tupdate = !x\n", "submodule.s.update"),
            ("[core]\n\tworktree = /etc\n", "core.worktree"),
            ("[core]\n\tworktree = ../..\n", "core.worktree"),
            ("[core]\n\teditor\n", "core.editor"),
        ] {
            assert_eq!(keys(config, "/w/.git", "/w"), [key], "{config}");
        }
        for config in
            ["[core\n", "x = 1", "[core]\n\tfsmonitor = \"x\n", "[core]\n\tbare = \\x\n", "[a]\0", "[core]\n=x"]
        {
            assert_eq!(after("", config), Verdict::Unreadable, "{config}");
        }
    }

    #[test]
    fn what_the_user_had_stays_and_what_a_command_added_goes() {
        let users = "[core]\n\tsshCommand = mine \\\"x\\\"\n\teditor\n";
        assert_eq!(after(users, users), Verdict::Keep);
        assert_eq!(
            after(users, &format!("{users}[remote \"o\"]\n\turl = x\n")),
            Verdict::Rewrite(
                "[core]\n\tsshcommand = \"mine \\\"x\\\"\"\n[core]\n\teditor\n[remote \"o\"]\n\turl = \"x\"\n"
                    .to_owned(),
                Vec::new(),
            ),
            "a form with quotes is written anew"
        );
        let Verdict::Rewrite(text, removed) = after(users, "[core]\n\tsshCommand = evil\n[remote \"o\"]\n\turl = x\n")
        else {
            panic!("not rewritten")
        };
        assert_eq!(removed, ["core.sshcommand"]);
        assert!(text.contains("mine") && text.contains("url = \"x\"") && !text.contains("evil"), "{text}");
        assert_eq!(
            after("", &text.replace("[core]\n\tsshcommand", "[user]\n\tname").replace("[core]\n\teditor\n", "")),
            Verdict::Rewrite(
                "[user]\n\tname = \"mine \\\"x\\\"\"\n[remote \"o\"]\n\turl = \"x\"\n".to_owned(),
                Vec::new()
            )
        );
    }

    #[test]
    fn a_folder_of_a_submodule_may_be_named_where_it_lies_beneath_the_root() {
        let config = "[core]\n\tworktree = ../../../s\n";
        let judge = |root: &str| keys(config, "/w/.git/modules/s", root);
        assert_eq!(judge("/w"), [""; 0]);
        assert_eq!(judge("/w/s/deep"), ["core.worktree"]);
    }
}
