//! Where a session may go: roots, rules, and the only paths a host accepts.

use std::{
    borrow::Cow,
    fmt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, InvisibleScan, Result,
    fold::{fold, is_short_form},
};

/// How a dialect's model writes paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathStyle {
    /// Absolute or relative to the workspace (000, 002).
    #[default]
    Relative,
    /// Absolute only (001, 004).
    Absolute,
    /// Virtual roots such as `/shared` (003); anything relative starts at the first root.
    Virtual,
}

/// What may be done beneath a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootPermission {
    /// Look only.
    Read,
    /// Look and change.
    Write,
}

/// What a tool means to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Look at it.
    Read,
    /// Create, change or remove it.
    Write,
}

/// A folder that a session may touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The name of a virtual root (`shared`), where the dialect has them.
    pub name: Option<String>,
    /// The folder, absolute and without symbolic links.
    pub dir: PathBuf,
    /// Other spellings of the folder that the user gave, such as a path through a symbolic link.
    pub also: Vec<PathBuf>,
    /// What may be done in it.
    pub rights: RootPermission,
}

impl Root {
    /// A root that may be read and changed.
    #[must_use]
    pub fn writable(dir: impl Into<PathBuf>) -> Self {
        Self { name: None, dir: dir.into(), also: Vec::new(), rights: RootPermission::Write }
    }

    /// A root that may only be read.
    #[must_use]
    pub fn readable(dir: impl Into<PathBuf>) -> Self {
        Self { rights: RootPermission::Read, ..Self::writable(dir) }
    }

    /// The same root under a virtual name.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

/// The folders of a session, the rules inside them, and how paths are written. Fixed at the session's start.
#[derive(Clone, Debug)]
pub struct Workspace {
    roots: Vec<Arc<Root>>,
    rules: Arc<PathRules>,
    path_style: PathStyle,
}

impl Workspace {
    /// A workspace over these roots; the first is where relative paths start.
    #[must_use]
    pub fn new(roots: impl IntoIterator<Item = Root>, rules: PathRules, reading: PathStyle) -> Self {
        let roots = roots.into_iter().map(Arc::new).collect();
        Self { roots, rules: Arc::new(rules), path_style: reading }
    }

    /// The same workspace with these folders of its first root in that root's place, and why some of them are not. They
    /// are absolute and without symbolic links. It never becomes larger. Folders that lie outside, and folders that may
    /// not become a root, change nothing: the workspace is the operator's setting, and its rules still hold.
    #[must_use]
    pub fn narrow_to(&self, folders: &[PathBuf]) -> (Self, Vec<String>) {
        let Some(first) = self.roots.first() else { return (self.clone(), Vec::new()) };
        if folders.iter().any(|folder| first.dir.starts_with(folder)) {
            return (self.clone(), Vec::new());
        }
        let (mut inside, mut ignored) = (Vec::<&Path>::new(), Vec::new());
        for folder in folders {
            match self.narrowable_path(first, folder) {
                Ok(relative) => inside.push(relative),
                Err(why) => ignored.push(format!("{}: {why}", escape_path(folder))),
            }
        }
        inside.sort_by_key(|relative| relative.components().count());
        let mut areas: Vec<&Path> = Vec::new();
        for relative in inside {
            if !areas.iter().any(|area| relative.starts_with(area)) {
                areas.push(relative);
            }
        }
        if areas.is_empty() {
            return (self.clone(), ignored);
        }
        let mut rules = PathRules::clone(&self.rules);
        for area in &areas {
            rules.add_relative_to(area);
        }
        let roots = areas.iter().enumerate().map(|(at, area)| {
            let name = first.name.as_ref().map(|name| if at == 0 { name.clone() } else { format!("{name}{}", at + 1) });
            let also = first.also.iter().map(|dir| dir.join(area)).collect();
            Arc::new(Root { name, dir: first.dir.join(area), also, rights: first.rights })
        });
        let roots = roots.chain(self.roots.iter().skip(1).cloned()).collect();
        (Self { roots, rules: Arc::new(rules), ..self.clone() }, ignored)
    }

    /// Where a folder lies beneath the first root, if that may become a root of its own.
    fn narrowable_path<'a>(&self, first: &Arc<Root>, folder: &'a Path) -> Result<&'a Path, &'static str> {
        let relative = folder.strip_prefix(&first.dir).map_err(|_| "outside the workspace")?;
        let access = if first.rights == RootPermission::Write { Access::Write } else { Access::Read };
        if self.safe_path(first, relative.to_owned(), access).is_err() {
            return Err("may not be used here");
        }
        // Walls know protected places by their path from the root; with another root they would not find them.
        let hides =
            self.rules.remainders(relative).any(|(rule, _)| rule.denies == Access::Write && !rule.scope.binds_commands);
        if hides || self.roots.iter().skip(1).any(|other| other.dir.starts_with(folder)) {
            return Err("protected places are in it");
        }
        Ok(relative)
    }

    /// The same workspace with what `keep` makes of each root; `None` leaves one out. For profiles, which only narrow.
    pub(crate) fn with_roots(&self, keep: impl FnMut(&Arc<Root>) -> Option<Arc<Root>>) -> Self {
        Self { roots: self.roots.iter().filter_map(keep).collect(), ..self.clone() }
    }

    /// The roots, in order.
    #[must_use]
    pub fn roots(&self) -> &[Arc<Root>] {
        &self.roots
    }

    /// The rules inside the roots.
    #[must_use]
    pub fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// How paths are written.
    #[must_use]
    pub fn path_style(&self) -> PathStyle {
        self.path_style
    }

    /// The top of the first root.
    pub fn primary_root(&self, access: Access) -> Result<SafePath> {
        let root = self.roots.first().ok_or_else(|| Error::denied("this session has no workspace"))?;
        self.safe_path(root, PathBuf::new(), access)
    }

    /// A place beneath one of the roots, named by the root's folder: what another machine was told of a path.
    pub fn resolve_in_root(&self, root: &Path, relative: impl Into<PathBuf>, access: Access) -> Result<SafePath> {
        let relative = relative.into();
        let known = self.roots.iter().find(|it| it.dir == root).map(|it| (it, PathBuf::new()));
        // A session that was narrowed has a folder of ours for a root.
        let (root, above) = known.or_else(|| self.real_root(root)).ok_or_else(|| self.outside_error(root))?;
        if above.components().chain(relative.components()).any(|part| !matches!(part, Component::Normal(_))) {
            return Err(self.outside_error(&relative));
        }
        let relative = if above.as_os_str().is_empty() { relative } else { above.join(relative) };
        self.safe_path(root, relative, access)
    }

    /// Turns what a model wrote into a path inside a root, or says why not and what to write instead.
    pub fn check(&self, path: &Path, access: Access, from: Option<&SafePath>) -> Result<SafePath> {
        validate_path_text(path)?;
        if path.is_relative() {
            return self.relative(path, access, from);
        }
        let clean = normalize_lexically(path);
        let (root, rest) = match self.path_style {
            PathStyle::Virtual => self.virtual_root(&clean),
            PathStyle::Relative | PathStyle::Absolute => self.real_root(&clean),
        }
        .ok_or_else(|| self.outside_error(path))?;
        self.safe_path(root, rest, access)
    }

    /// How the model knows a path of this machine: by its root where it lies beneath one, else as it is.
    pub fn display_path(&self, path: &Path) -> String {
        let known = self.real_root(path).and_then(|(root, rest)| self.safe_path(root, rest, Access::Read).ok());
        known.map_or_else(|| escape_path(path), |path| path.to_string())
    }

    fn relative(&self, path: &Path, access: Access, from: Option<&SafePath>) -> Result<SafePath> {
        let top = self.primary_root(Access::Read)?;
        let from = from.unwrap_or(&top);
        if self.path_style == PathStyle::Absolute {
            let whole = normalize_lexically(&from.root.dir.join(&from.relative).join(path));
            return Err(Error::failed(format!(
                "{} is a relative path; give the absolute one, such as {}",
                escape_path(path),
                escape_path(&whole)
            )));
        }
        let mut rest = from.relative.clone();
        for part in path.components() {
            match part {
                Component::ParentDir if !rest.pop() => return Err(self.outside_error(path)),
                Component::Normal(name) => rest.push(name),
                _ => {}
            }
        }
        self.safe_path(&from.root, rest, access)
    }

    fn virtual_root(&self, clean: &Path) -> Option<(&Arc<Root>, PathBuf)> {
        let mut parts = clean.components().skip(1);
        let name = parts.next()?.as_os_str().to_str()?;
        let root = self.roots.iter().find(|root| root.name.as_deref() == Some(name))?;
        Some((root, parts.collect()))
    }

    fn real_root(&self, clean: &Path) -> Option<(&Arc<Root>, PathBuf)> {
        self.roots
            .iter()
            .flat_map(|root| std::iter::once(&root.dir).chain(&root.also).map(move |dir| (root, dir)))
            .filter_map(|(root, dir)| Some((root, dir, beneath(clean, dir)?)))
            .max_by_key(|(_, dir, _)| dir.as_os_str().len())
            .map(|(root, _, rest)| (root, rest.to_owned()))
    }

    fn safe_path(&self, root: &Arc<Root>, relative: PathBuf, access: Access) -> Result<SafePath> {
        let primary = self.roots.first().is_some_and(|first| Arc::ptr_eq(first, root));
        let path = SafePath {
            root: root.clone(),
            relative,
            access,
            rules: self.rules.clone(),
            path_style: self.path_style,
            primary,
        };
        if access == Access::Write && root.rights == RootPermission::Read {
            return Err(Error::denied(format!(
                "{path} is in a read-only root; write to {} instead",
                self.writable_roots()
            )));
        }
        path.check_rules(&path.relative)?;
        Ok(path)
    }

    fn outside_error(&self, path: &Path) -> Error {
        let roots: Vec<_> = self.roots.iter().map(|root| self.display_root(root)).collect();
        Error::denied(format!(
            "{} is outside the workspace; paths must be beneath {}",
            escape_path(path),
            if roots.is_empty() { "a root, and this session has none".to_owned() } else { roots.join(", ") }
        ))
    }

    fn writable_roots(&self) -> String {
        let roots: Vec<_> = self
            .roots
            .iter()
            .filter(|root| root.rights == RootPermission::Write)
            .map(|root| self.display_root(root))
            .collect();
        if roots.is_empty() { "another session's workspace".to_owned() } else { roots.join(", ") }
    }

    /// Whether a root is the vault: commands do not see it, and `vault_copyto` is the only tool that copies from it.
    #[must_use]
    pub fn is_vault(&self, root: &Root) -> bool {
        is_vault(self.path_style, root)
    }

    fn display_root(&self, root: &Root) -> String {
        match (self.path_style, &root.name) {
            (PathStyle::Virtual, Some(name)) => format!("/{name}"),
            _ => escape_path(&root.dir),
        }
    }
}

/// Only dialects with virtual roots have a vault; elsewhere a root may happen to have this name.
fn is_vault(reading: PathStyle, root: &Root) -> bool {
    reading == PathStyle::Virtual && root.name.as_deref() == Some("vault")
}

/// A path that has passed the rules. Only a [`Workspace`] makes one, so no tool can forget to ask.
///
/// It is a root and a clean path beneath it. A host opens it beneath the root's handle, and asks
/// [`judge`](Self::judge) again about the place where the last symbolic link led.
#[derive(Clone)]
pub struct SafePath {
    root: Arc<Root>,
    relative: PathBuf,
    access: Access,
    rules: Arc<PathRules>,
    path_style: PathStyle,
    primary: bool,
}

impl SafePath {
    /// The root it is beneath.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether its root is the vault, which commands do not see.
    #[must_use]
    pub fn is_in_vault(&self) -> bool {
        is_vault(self.path_style, &self.root)
    }

    /// The path beneath the root: clean, without `..`, empty for the root itself.
    #[must_use]
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// What it may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The path on the host: the root's folder and the rest. For messages to the operator and for mounts, not for opening.
    #[must_use]
    pub fn host_path(&self) -> PathBuf {
        if self.relative.as_os_str().is_empty() { self.root.dir.clone() } else { self.root.dir.join(&self.relative) }
    }

    /// The rules in force, for a host that meets further paths beneath this one.
    #[must_use]
    pub fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// Whether the rules allow this path's use at another place beneath the same root: where a link led, or a child.
    pub fn check_rules(&self, real: &Path) -> Result<()> {
        match self.rules.find(real, Some(self.at(real)), self.access, Purpose::Named) {
            None => Ok(()),
            Some(why) => Err(Error::denied(format!("{}: {why}", self.display_relative(real)))),
        }
    }

    /// Whether a search that meets this place beneath the same root may show it.
    #[must_use]
    pub fn may_find(&self, relative: &Path) -> bool {
        self.rules.find(relative, Some(self.at(relative)), Access::Read, Purpose::Found).is_none()
    }

    /// The rules about commands whose patterns can match beneath this path's root, as patterns from there.
    pub fn command_rules(&self) -> impl Iterator<Item = (PathGlob, Access)> {
        let root = normalize_components(&self.root.dir);
        self.rules.iter().filter(|rule| rule.scope.binds_commands).flat_map(move |rule| {
            let globs = if rule.scope.is_absolute { rule.glob.remainders(&root) } else { vec![rule.glob.0.clone()] };
            globs.into_iter().map(|glob| (PathGlob(glob), rule.denies)).collect::<Vec<_>>()
        })
    }

    fn at<'a>(&'a self, relative: &'a Path) -> RulePath<'a> {
        RulePath { root: &self.root, reading: self.path_style, relative }
    }

    /// A path beneath the same root that a host found (by listing or walking), with the rules asked again.
    pub fn in_same_root(&self, relative: impl Into<PathBuf>, access: Access) -> Result<SafePath> {
        let path = Self { relative: relative.into(), access, ..self.clone() };
        if access == Access::Write && path.root.rights == RootPermission::Read {
            return Err(Error::denied(format!("{path} is in a read-only root")));
        }
        path.check_rules(&path.relative)?;
        Ok(path)
    }

    /// How the model knows a path beneath this one's root.
    #[must_use]
    pub fn display_relative(&self, relative: &Path) -> String {
        let empty = relative.as_os_str().is_empty();
        match (self.path_style, &self.root.name) {
            (PathStyle::Virtual, Some(name)) if empty => format!("/{name}"),
            (PathStyle::Virtual, Some(name)) => format!("/{name}/{}", escape_path(relative)),
            (PathStyle::Relative, _) if self.primary && empty => ".".to_owned(),
            (PathStyle::Relative, _) if self.primary => escape_path(relative),
            _ if empty => escape_path(&self.root.dir),
            _ => escape_path(&self.root.dir.join(relative)),
        }
    }
}

/// The path as the model knows it, with control characters made visible.
impl fmt::Display for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display_relative(&self.relative))
    }
}

impl fmt::Debug for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SafePath({self}, {:?})", self.access)
    }
}

/// What is forbidden inside the roots. Deny is all there is: what no rule names is allowed as far as the root's rights go.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathRules(Vec<PathRule>);

/// One rule: what matches may not be written, or not even read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathRule {
    /// Which paths.
    pub glob: PathGlob,
    /// What is refused: `Write` refuses changes, `Read` refuses both.
    pub denies: Access,
    /// Why, and what to do, for the model: "is protected; ask the user to change it".
    pub why: String,
    /// Where the pattern starts and what it holds for.
    pub scope: RuleScope,
}

/// Where the pattern of a path rule starts, and what the rule holds for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleScope {
    /// The pattern starts at `/` of the machine (or at the name of a virtual root), not at the top of each root.
    pub is_absolute: bool,
    /// Commands are kept to the rule, too: the sandbox hides or mounts read-only what exists.
    pub binds_commands: bool,
    /// Only searches leave the file out. Whoever names the file is asked before, by the gate.
    pub only_searches: bool,
}

impl PathRule {
    /// A rule for file tools, with a pattern from the top of each root.
    #[must_use]
    pub fn new(glob: PathGlob, denies: Access, why: impl Into<String>) -> Self {
        Self { glob, denies, why: why.into(), scope: RuleScope::default() }
    }

    /// The same rule with another scope.
    #[must_use]
    pub fn scoped(self, scope: RuleScope) -> Self {
        Self { scope, ..self }
    }
}

/// A place beneath a root, as path rules see it.
#[derive(Clone, Copy, Debug)]
struct RulePath<'a> {
    root: &'a Root,
    reading: PathStyle,
    relative: &'a Path,
}

impl PathRules {
    /// These rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = PathRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// The rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &PathRule> {
        self.0.iter()
    }

    /// Adds the rules as they read from a folder beneath the root.
    fn add_relative_to(&mut self, folder: &Path) {
        let more: Vec<PathRule> =
            self.remainders(folder).map(|(rule, glob)| PathRule { glob, ..rule.clone() }).collect();
        self.0.extend(more);
    }

    /// The rules that reach into a folder beneath the root by its own path, and how they read from there.
    fn remainders(&self, folder: &Path) -> impl Iterator<Item = (&PathRule, PathGlob)> {
        let inside = normalize_components(folder);
        self.0.iter().filter(|rule| !rule.scope.is_absolute).flat_map(move |rule| {
            let rests = rule.glob.remainders(&inside).into_iter().filter(|rest| *rest != rule.glob.0);
            rests.map(|rest| (rule, PathGlob(rest))).collect::<Vec<_>>()
        })
    }

    /// Why a path beneath a root may not be used so, if it may not. Absolute rules need a root; see [`SafePath::check_rules`].
    #[must_use]
    pub fn denial_reason(&self, relative: &Path, access: Access) -> Option<&str> {
        self.find(relative, None, access, Purpose::Named)
    }

    fn find(&self, relative: &Path, at: Option<RulePath<'_>>, access: Access, purpose: Purpose) -> Option<&str> {
        let holds = |rule: &&PathRule| {
            (rule.denies == Access::Read || access == Access::Write)
                && (purpose == Purpose::Found || !rule.scope.only_searches)
        };
        let mut rules = self.0.iter().filter(holds).peekable();
        rules.peek()?;
        let parts = normalize_components(relative);
        let mut whole: Option<Vec<Vec<String>>> = None;
        let covers = |rule: &&PathRule| match (rule.scope.is_absolute, at) {
            (false, _) => rule.glob.covers(&parts),
            (true, None) => false,
            (true, Some(at)) => whole.get_or_insert_with(|| at.whole()).iter().any(|parts| rule.glob.covers(parts)),
        };
        rules.find(covers).map(|rule| rule.why.as_str())
    }
}

/// How a path came up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The caller named it, or a link in it led there.
    Named,
    /// A search met it.
    Found,
}

impl RulePath<'_> {
    /// The path from `/`: on the machine, and by the name of a virtual root.
    fn whole(&self) -> Vec<Vec<String>> {
        let rest = normalize_components(self.relative);
        let from = |top: &Path| normalize_components(top).into_iter().chain(rest.iter().cloned()).collect();
        let dirs = std::iter::once(&self.root.dir).chain(&self.root.also).map(|dir| from(dir));
        let name = self.root.name.as_ref().filter(|_| self.reading == PathStyle::Virtual);
        dirs.chain(name.map(|name| from(Path::new(name)))).collect()
    }
}

/// A pattern of path parts: `*` and `?` inside a part, `**` for any number of parts.
///
/// A pattern without a slash matches at any depth, one with a slash (or a leading one) from the root; it covers
/// everything beneath what it matches. Names are compared without case, and spellings that some disk takes for the same name
/// (`.ｇit`, `GIT~1`) are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGlob(Vec<String>);

/// How a pattern applies to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobReach {
    /// Everything in it matches.
    Whole,
    /// Something in it may match.
    Inside,
    /// Nothing in it matches.
    None,
}

impl PathGlob {
    /// Reads a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        let anchored = pattern.trim_end_matches('/').contains('/');
        let mut parts: Vec<String> =
            pattern.split('/').filter(|part| !part.is_empty() && *part != ".").map(fold).collect();
        if !anchored {
            parts.insert(0, "**".into());
        }
        Self(parts)
    }

    /// The pattern, as it was understood.
    #[must_use]
    pub fn pattern(&self) -> String {
        self.0.join("/")
    }

    /// How the pattern applies to a folder beneath the root: to all of it, to something in it, or not at all.
    #[must_use]
    pub fn reach(&self, relative: &Path) -> GlobReach {
        let parts = normalize_components(relative);
        let rests = self.remainders(&parts);
        if !parts.is_empty() && rests.iter().any(|rest| rest.is_empty() || *rest == ["**"]) {
            GlobReach::Whole
        } else if rests.is_empty() {
            GlobReach::None
        } else {
            GlobReach::Inside
        }
    }

    /// Whether what the pattern names lies deeper in this folder, as far as the pattern has no wildcards.
    #[must_use]
    pub fn names_something_in(&self, folder: &Path) -> bool {
        let parts = normalize_components(folder);
        let head = self.0.iter().take_while(|part| !part.contains(['*', '?'])).count();
        !parts.is_empty() && parts.len() <= head && parts.len() < self.0.len() && self.0.starts_with(&parts)
    }

    /// Whether a path beneath the root is matched, or lies beneath one that is.
    #[must_use]
    pub fn matches(&self, relative: &Path) -> bool {
        self.covers(&normalize_components(relative))
    }

    /// What is left of the pattern once a path has led into a folder: nothing if it leads elsewhere.
    fn remainders(&self, inside: &[String]) -> Vec<Vec<String>> {
        fn walk(pattern: &[String], inside: &[String], into: &mut Vec<Vec<String>>) {
            match (pattern, inside) {
                (rest, []) => into.push(rest.to_vec()),
                ([], _) => into.push(vec!["**".into()]),
                ([first, rest @ ..], [_, others @ ..]) if first == "**" => {
                    walk(pattern, others, into);
                    walk(rest, inside, into);
                }
                ([first, rest @ ..], [part, others @ ..]) => {
                    if is_match(first, part) {
                        walk(rest, others, into);
                    }
                }
            }
        }
        let mut rests = Vec::new();
        walk(&self.0, inside, &mut rests);
        rests.sort();
        rests.dedup();
        rests
    }

    fn covers(&self, parts: &[String]) -> bool {
        fn walk(pattern: &[String], parts: &[String]) -> bool {
            match (pattern, parts) {
                ([], _) => true,
                ([first, rest @ ..], _) if first == "**" => {
                    (0..=parts.len()).any(|skip| walk(rest, &parts[skip..])) && !parts.is_empty()
                }
                (_, []) => false,
                ([first, rest @ ..], [part, others @ ..]) => is_match(first, part) && walk(rest, others),
            }
        }
        !self.0.is_empty() && walk(&self.0, parts)
    }
}

/// Whether a part of a pattern matches a name, both folded.
fn is_match(pattern: &str, name: &str) -> bool {
    wildcard_match(pattern.as_bytes(), name.as_bytes()) || is_short_form(pattern, name)
}

/// `*` and `?` over bytes, without recursion.
fn wildcard_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    t = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

fn normalize_components(relative: &Path) -> Vec<String> {
    relative
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(fold(&name.to_string_lossy())),
            _ => None,
        })
        .collect()
}

fn validate_path_text(path: &Path) -> Result<()> {
    let text = path.to_str().map_or_else(|| path.to_string_lossy(), Cow::Borrowed);
    if text.is_empty() {
        return Err(Error::failed("the path is empty; name a file or folder"));
    }
    if text.len() > 4096 {
        return Err(Error::failed(format!("the path is {} bytes long; at most 4096 are accepted", text.len())));
    }
    if text.bytes().any(|byte| !matches!(byte, b' '..=b'~')) && text.chars().any(char::is_control) {
        return Err(Error::failed(format!(
            "the path {} has control characters in it, which is refused; rename the file with a command first",
            escape_path(path)
        )));
    }
    if let Some(what) = foreign_path_kind(&text) {
        return Err(Error::failed(format!("{text} is {what}; write the path of a file in the workspace, with `/`")));
    }
    if text == "~" || text.starts_with("~/") {
        return Err(Error::failed(format!("{text}: `~` is not expanded here; write the path from the workspace")));
    }
    Ok(())
}

/// What is no path here, though it is one elsewhere. Taken to the letter it would make folders named `C:` or `file:`.
fn foreign_path_kind(text: &str) -> Option<&'static str> {
    let drive = text.as_bytes();
    if drive.len() > 2 && drive[0].is_ascii_alphabetic() && drive[1] == b':' && matches!(drive[2], b'\\' | b'/') {
        return Some("a path of Windows");
    }
    let (scheme, rest) = text.split_once(':')?;
    if !rest.starts_with("//") {
        return None;
    }
    let is_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.'));
    is_scheme.then_some("an address, not a path")
}

fn normalize_lexically(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_encoded_bytes();
    if !bytes.ends_with(b"/") && !bytes.windows(2).any(|pair| pair == b"//" || pair == b"/.") && bytes.starts_with(b"/")
    {
        return path.to_owned();
    }
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

/// The rest of a clean path beneath a folder.
fn beneath<'a>(clean: &'a Path, dir: &Path) -> Option<&'a Path> {
    let rest = clean.to_str().zip(dir.to_str()).and_then(|(path, dir)| path.strip_prefix(dir));
    match rest.map(|rest| (rest, rest.strip_prefix('/'))) {
        Some(("", _)) => Some(Path::new("")),
        Some((_, Some(rest))) if !rest.starts_with('/') => Some(Path::new(rest)),
        // Another folder; or one that is written in another way, such as with a slash at its end.
        _ => clean.strip_prefix(dir).ok(),
    }
}

/// A path for reading: control characters and bytes that are not UTF-8 made visible.
fn escape_path(path: &Path) -> String {
    if let Some(text) = path.to_str().filter(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut scan = InvisibleScan::default();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for it in chunk.valid().chars() {
            match scan.next(it) {
                _ if it.is_control() => shown.push_str(&format!("\\x{:02x}", it as u32)),
                None => shown.push(it),
                Some(_) => shown.extend(it.escape_unicode()),
            }
        }
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(reading: PathStyle) -> Workspace {
        let rules = PathRules::new([PathRule::new(PathGlob::new(".git/config"), Access::Write, "is protected")]);
        Workspace::new(
            [Root::writable("/w/proj").with_name("shared"), Root::readable("/v").with_name("vault")],
            rules,
            reading,
        )
    }

    fn seen(reading: PathStyle, path: &str, access: Access) -> String {
        match workspace(reading).check(Path::new(path), access, None) {
            Ok(path) => path.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn three_ways_to_write_one_path() {
        assert_eq!(seen(PathStyle::Relative, "a/./b/../c", Access::Read), "a/c");
        assert_eq!(seen(PathStyle::Relative, "/w/proj/a", Access::Read), "a");
        assert_eq!(seen(PathStyle::Absolute, "/w/proj/a", Access::Read), "/w/proj/a");
        assert_eq!(seen(PathStyle::Virtual, "/shared/a", Access::Read), "/shared/a");
        assert_eq!(
            seen(PathStyle::Absolute, "a", Access::Read),
            "a is a relative path; give the absolute one, such as /w/proj/a"
        );
    }

    #[test]
    fn paths_of_other_systems_are_refused_with_what_to_write() {
        let advice = "write the path of a file in the workspace, with `/`";
        for reading in [PathStyle::Relative, PathStyle::Absolute, PathStyle::Virtual] {
            for path in [r"C:\Users\me\a.txt", "c:/x/y.txt"] {
                assert_eq!(seen(reading, path, Access::Write), format!("{path} is a path of Windows; {advice}"));
            }
            let path = "file:///w/proj/a";
            assert_eq!(seen(reading, path, Access::Read), format!("{path} is an address, not a path; {advice}"));
        }
        assert_eq!(seen(PathStyle::Relative, "a:12", Access::Read), "a:12");
        assert_eq!(seen(PathStyle::Relative, "x/ab://c", Access::Read), "x/ab:/c");
    }

    #[test]
    fn a_neighbour_with_the_same_prefix_is_outside() {
        for path in ["/w/proj-evil/x", "../x", "a/../../x", "/w/proj/../x", "/etc/passwd"] {
            let text = seen(PathStyle::Relative, path, Access::Read);
            assert!(text.contains("outside the workspace"), "{path}: {text}");
        }
    }

    #[test]
    fn protected_in_every_spelling() {
        for path in [".git/config", ".GIT/Config", "./.git//config"] {
            assert!(seen(PathStyle::Relative, path, Access::Write).ends_with("is protected"), "{path}");
        }
        assert_eq!(seen(PathStyle::Relative, ".git/config", Access::Read), ".git/config");
        assert_eq!(seen(PathStyle::Relative, ".git/config.d", Access::Write), ".git/config.d");
    }

    #[test]
    fn other_letters_for_the_same_name_are_protected_too() {
        let glob = PathGlob::new("**/.caf\u{e9}s/mask");
        for path in
            [".caf\u{e9}s/mask", ".cafe\u{301}s/MAS\u{212a}", ".CAF\u{c9}\u{17f}/mask", ".cafe\u{301}s. /mask..."]
        {
            assert!(glob.matches(Path::new(path)), "{path}");
        }
        assert!(!glob.matches(Path::new(".cafes/mask")));
        assert!(seen(PathStyle::Relative, ".git./config. .", Access::Write).ends_with("is protected"));
        // A name that only other systems reserve, and one of dots alone, are names.
        assert_eq!(seen(PathStyle::Relative, "CON", Access::Write), "CON");
        assert_eq!(seen(PathStyle::Relative, "...", Access::Write), "...");
    }

    #[test]
    fn a_path_is_taken_to_the_letter_or_refused() {
        let control = "has control characters in it, which is refused";
        for (path, said) in [
            ("a\0b", control),
            ("a\nb", control),
            ("a\u{1b}[2Jb", control),
            ("", "the path is empty; name a file or folder"),
            ("~", "`~` is not expanded here"),
            ("~/x", "`~` is not expanded here"),
        ] {
            let text = seen(PathStyle::Relative, path, Access::Read);
            assert!(text.contains(said), "{path:?}: {text}");
        }
        let long = seen(PathStyle::Relative, &"x/".repeat(2500), Access::Read);
        assert_eq!(long, "the path is 5000 bytes long; at most 4096 are accepted");
        // What a shell, a browser or another system would read into a name is not read into it here.
        for path in ["~root/x", "$HOME/x", "${HOME}", "%2e%2e/x", "a b ", "a.", "..."] {
            assert_eq!(seen(PathStyle::Relative, path, Access::Write), path);
        }
        assert_eq!(seen(PathStyle::Relative, "a//b/./c/", Access::Read), "a/b/c");
    }

    #[test]
    fn only_virtual_roots_have_a_vault() {
        for (reading, expected) in
            [(PathStyle::Virtual, [false, true]), (PathStyle::Absolute, [false; 2]), (PathStyle::Relative, [false; 2])]
        {
            let workspace = workspace(reading);
            let roots = [0, 1].map(|at| workspace.roots()[at].clone());
            assert_eq!(roots.clone().map(|root| workspace.is_vault(&root)), expected);
            let paths = roots.map(|root| workspace.resolve_in_root(&root.dir, "", Access::Read).unwrap().is_in_vault());
            assert_eq!(paths, expected);
        }
    }

    #[test]
    fn a_read_only_root_says_where_to_write() {
        assert_eq!(
            seen(PathStyle::Virtual, "/vault/key", Access::Write),
            "/vault/key is in a read-only root; write to /shared instead"
        );
    }

    fn denying(glob: &str, denies: Access) -> PathRule {
        PathRule::new(PathGlob::new(glob), denies, "is denied")
    }

    #[test]
    fn a_workspace_only_becomes_smaller() {
        let rules = [denying("a/secret", Access::Read), denying(".git/hooks", Access::Write)];
        let roots = [Root::writable("/w").with_name("shared"), Root::readable("/v/x").with_name("vault")];
        let whole = Workspace::new(roots, PathRules::new(rules), PathStyle::Virtual);
        let narrow = |folders: &[&str]| whole.narrow_to(&folders.iter().map(PathBuf::from).collect::<Vec<_>>());
        let (small, ignored) =
            narrow(&["/w/a/deep", "/w/a", "/etc", "/w/b", "/w/a/secret", "/w/.git", "/w/.git/hooks"]);
        let shown: Vec<_> =
            small.roots().iter().map(|it| format!("{} {}", it.name.clone().unwrap(), it.dir.display())).collect();
        assert_eq!(shown, ["shared /w/a", "shared2 /w/b", "vault /v/x"]);
        assert_eq!(
            ignored,
            [
                "/etc: outside the workspace",
                "/w/a/secret: may not be used here",
                "/w/.git: protected places are in it",
                "/w/.git/hooks: may not be used here"
            ]
        );
        let seen = |path: &str| match small.check(Path::new(path), Access::Read, None) {
            Ok(path) => path.host_path().display().to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(seen("/shared/x"), "/w/a/x");
        assert_eq!(seen("/shared/secret/key"), "/shared/secret/key: is denied");
        assert_eq!(seen("/vault/x"), "/v/x/x");

        // Folders above it, folders that do not overlap it and protected ones change nothing.
        assert_eq!(narrow(&["/", "/w/a"]).0.roots(), whole.roots());
        let (same, ignored) = narrow(&["/elsewhere", "/wider"]);
        assert_eq!(same.roots(), whole.roots());
        assert_eq!(ignored, ["/elsewhere: outside the workspace", "/wider: outside the workspace"]);
        assert_eq!(narrow(&[]).0.roots(), whole.roots());
        for protected in [&["/w/.git", "/elsewhere"][..], &["/w/.git/hooks"], &["/w/a/secret"]] {
            let (same, ignored) = narrow(protected);
            assert_eq!(same.roots(), whole.roots(), "{protected:?}");
            assert_eq!(ignored.len(), protected.len());
            assert!(same.check(Path::new("/shared/x"), Access::Write, None).is_ok());
            assert!(same.check(Path::new("/shared/.git/hooks/x"), Access::Write, None).is_err());
            assert!(same.check(Path::new("/shared/a/secret"), Access::Read, None).is_err());
        }
    }

    #[test]
    fn a_far_host_finds_a_narrowed_root() {
        let whole = workspace(PathStyle::Relative);
        assert_eq!(whole.resolve_in_root(Path::new("/w/proj/a"), "b", Access::Read).unwrap().to_string(), "a/b");
        assert!(whole.resolve_in_root(Path::new("/w"), "proj", Access::Read).is_err());
        assert!(whole.resolve_in_root(Path::new("/w/proj/.git"), "config", Access::Write).is_err());
        assert!(whole.resolve_in_root(Path::new("/w/proj/../x"), "b", Access::Read).is_err());
    }

    #[test]
    fn globs_cover_what_is_beneath() {
        assert!(PathGlob::new("*.pem").matches(Path::new("a/b/KEY.PEM")));
        assert!(PathGlob::new("secrets/**").matches(Path::new("secrets/a/b")));
        assert!(!PathGlob::new("secrets/**").matches(Path::new("secrets")));
        assert!(PathGlob::new(".git/hooks").matches(Path::new(".git/hooks/pre-commit")));
        assert!(!PathGlob::new(".git/hooks").matches(Path::new("a/.git/hooks")));
        assert!(PathGlob::new("**/.git/hooks").matches(Path::new("a/.git/hooks/x")));
        assert!(PathGlob::new("**/.git/hooks").matches(Path::new(".git/hooks")));
    }
}
