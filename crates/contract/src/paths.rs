//! The workspace: roots, path rules, and `SafePath`, the only kind of path that a host accepts.

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

/// How the model of a dialect writes paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathStyle {
    /// Absolute or relative to the workspace (000, 002).
    #[default]
    Relative,
    /// Absolute only (001, 004).
    Absolute,
    /// Virtual roots such as `/shared` (003). Relative paths start at the first root.
    Virtual,
}

/// The permitted access beneath a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootPermission {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// The access that a tool needs to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read it.
    Read,
    /// Create, change or remove it.
    Write,
}

/// A directory that a session may access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The name of a virtual root (`shared`), in dialects that have them.
    pub name: Option<String>,
    /// The directory, absolute and without symbolic links.
    pub dir: PathBuf,
    /// Other spellings of the directory that the user gave, such as a path through a symbolic link.
    pub also: Vec<PathBuf>,
    /// The permitted access.
    pub rights: RootPermission,
}

impl Root {
    /// A root with read and write access.
    #[must_use]
    pub fn writable(dir: impl Into<PathBuf>) -> Self {
        Self { name: None, dir: dir.into(), also: Vec::new(), rights: RootPermission::Write }
    }

    /// A root with read access only.
    #[must_use]
    pub fn readable(dir: impl Into<PathBuf>) -> Self {
        Self { rights: RootPermission::Read, ..Self::writable(dir) }
    }

    /// The root with a virtual name.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

/// The directories of a session, their path rules, and the path style. It does not change during the session.
#[derive(Clone, Debug)]
pub struct Workspace {
    roots: Vec<Arc<Root>>,
    rules: Arc<PathRules>,
    path_style: PathStyle,
}

impl Workspace {
    /// Creates a workspace from these roots. Relative paths start at the first root.
    #[must_use]
    pub fn new(roots: impl IntoIterator<Item = Root>, rules: PathRules, reading: PathStyle) -> Self {
        let roots = roots.into_iter().map(Arc::new).collect();
        Self { roots, rules: Arc::new(rules), path_style: reading }
    }

    /// Replaces the first root by these subdirectories of it. Returns the new workspace and the reasons for ignored
    /// ones. The paths must be absolute and without symbolic links. Directories outside the root, and those that may
    /// not become a root, change nothing: the workspace is the operator's setting, and its rules still apply.
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

    /// The path of a directory beneath the first root, if the directory may become a root.
    fn narrowable_path<'a>(&self, first: &Arc<Root>, folder: &'a Path) -> Result<&'a Path, &'static str> {
        let relative = folder.strip_prefix(&first.dir).map_err(|_| "outside the workspace")?;
        let access = if first.rights == RootPermission::Write { Access::Write } else { Access::Read };
        if self.safe_path(first, relative.to_owned(), access).is_err() {
            return Err("may not be used here");
        }
        // The sandbox identifies protected paths relative to the root. With another root it would not find them.
        let hides =
            self.rules.remainders(relative).any(|(rule, _)| rule.denies == Access::Write && !rule.scope.binds_commands);
        if hides || self.roots.iter().skip(1).any(|other| other.dir.starts_with(folder)) {
            return Err("protected places are in it");
        }
        Ok(relative)
    }

    /// Maps each root through `keep`; `None` drops the root. Profiles use it, and they only narrow.
    pub(crate) fn with_roots(&self, keep: impl FnMut(&Arc<Root>) -> Option<Arc<Root>>) -> Self {
        Self { roots: self.roots.iter().filter_map(keep).collect(), ..self.clone() }
    }

    /// The roots, in order.
    #[must_use]
    pub fn roots(&self) -> &[Arc<Root>] {
        &self.roots
    }

    /// The path rules inside the roots.
    #[must_use]
    pub fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// How the model writes paths.
    #[must_use]
    pub fn path_style(&self) -> PathStyle {
        self.path_style
    }

    /// The top directory of the first root.
    pub fn primary_root(&self, access: Access) -> Result<SafePath> {
        let root = self.roots.first().ok_or_else(|| Error::denied("this session has no workspace"))?;
        self.safe_path(root, PathBuf::new(), access)
    }

    /// Resolves a path beneath the root at `root`. Another machine sent both parts.
    pub fn resolve_in_root(&self, root: &Path, relative: impl Into<PathBuf>, access: Access) -> Result<SafePath> {
        let relative = relative.into();
        let known = self.roots.iter().find(|it| it.dir == root).map(|it| (it, PathBuf::new()));
        // The root of a narrowed session may be a subdirectory of one of these roots.
        let (root, above) = known.or_else(|| self.real_root(root)).ok_or_else(|| self.outside_error(root))?;
        if above.components().chain(relative.components()).any(|part| !matches!(part, Component::Normal(_))) {
            return Err(self.outside_error(&relative));
        }
        let relative = if above.as_os_str().is_empty() { relative } else { above.join(relative) };
        self.safe_path(root, relative, access)
    }

    /// Checks a path that the model wrote. The error says why it is refused and what to write instead.
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

    /// The path as the model writes it: relative to its root if it lies beneath one, else unchanged.
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

    /// Whether a root is the vault. Commands cannot see it, and only `vault_copyto` copies from it.
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

/// Only dialects with virtual roots have a vault. In other dialects a root may have this name by chance.
fn is_vault(reading: PathStyle, root: &Root) -> bool {
    reading == PathStyle::Virtual && root.name.as_deref() == Some("vault")
}

/// A path that has passed the rules. Only a [`Workspace`] creates one, so no tool can skip the check.
///
/// It consists of a root and a clean relative path. A host opens it beneath the root's handle. Then the host calls
/// [`check_rules`](Self::check_rules) for the path that the last symbolic link resolves to.
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
    /// The root of the path.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether the path is in the vault, which commands cannot see.
    #[must_use]
    pub fn is_in_vault(&self) -> bool {
        is_vault(self.path_style, &self.root)
    }

    /// The path beneath the root: clean, without `..`, empty for the root.
    #[must_use]
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// The permitted access.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The absolute path on the host. For operator messages and mounts; do not open it.
    #[must_use]
    pub fn host_path(&self) -> PathBuf {
        if self.relative.as_os_str().is_empty() { self.root.dir.clone() } else { self.root.dir.join(&self.relative) }
    }

    /// The rules of the workspace, for a host that finds further paths beneath this one.
    #[must_use]
    pub fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// Checks the rules for another path beneath the same root: the target of a link, or a child.
    pub fn check_rules(&self, real: &Path) -> Result<()> {
        match self.rules.find(real, Some(self.at(real)), self.access, Purpose::Named) {
            None => Ok(()),
            Some(why) => Err(Error::denied(format!("{}: {why}", self.display_relative(real)))),
        }
    }

    /// Whether a search may show this path beneath the same root.
    #[must_use]
    pub fn may_find(&self, relative: &Path) -> bool {
        self.rules.find(relative, Some(self.at(relative)), Access::Read, Purpose::Found).is_none()
    }

    /// The rules for commands whose patterns can match beneath this root, relative to the root.
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

    /// Creates a path beneath the same root for an entry that a host found. Checks the rules again.
    pub fn in_same_root(&self, relative: impl Into<PathBuf>, access: Access) -> Result<SafePath> {
        let path = Self { relative: relative.into(), access, ..self.clone() };
        if access == Access::Write && path.root.rights == RootPermission::Read {
            return Err(Error::denied(format!("{path} is in a read-only root")));
        }
        path.check_rules(&path.relative)?;
        Ok(path)
    }

    /// A path beneath the same root, as the model writes it.
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

/// The path as the model writes it, with control characters escaped.
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

/// The deny rules inside the roots. A path that no rule matches is allowed within the root's permission.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathRules(Vec<PathRule>);

/// A rule that denies writing, or reading and writing, of matching paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathRule {
    /// The matching paths.
    pub glob: PathGlob,
    /// The denied access: `Write` denies changes, `Read` denies both.
    pub denies: Access,
    /// The reason and what to do, for the model: "is protected; ask the user to change it".
    pub why: String,
    /// Where the pattern starts and what the rule applies to.
    pub scope: RuleScope,
}

/// Where the pattern of a path rule starts, and what the rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleScope {
    /// The pattern starts at `/` of the machine or at the name of a virtual root, not at the top of each root.
    pub is_absolute: bool,
    /// The rule also applies to commands: the sandbox hides matching files or mounts them read-only.
    pub binds_commands: bool,
    /// Only searches omit the file. For a call that names it, the gate asks for approval.
    pub only_searches: bool,
}

impl PathRule {
    /// A rule for file tools; the pattern starts at the top of each root.
    #[must_use]
    pub fn new(glob: PathGlob, denies: Access, why: impl Into<String>) -> Self {
        Self { glob, denies, why: why.into(), scope: RuleScope::default() }
    }

    /// The rule with another scope.
    #[must_use]
    pub fn scoped(self, scope: RuleScope) -> Self {
        Self { scope, ..self }
    }
}

/// A path beneath a root, as path rules see it.
#[derive(Clone, Copy, Debug)]
struct RulePath<'a> {
    root: &'a Root,
    reading: PathStyle,
    relative: &'a Path,
}

impl PathRules {
    /// Creates the list of rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = PathRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// The rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &PathRule> {
        self.0.iter()
    }

    /// Adds the rules that apply in a subdirectory, with patterns relative to it.
    fn add_relative_to(&mut self, folder: &Path) {
        let more: Vec<PathRule> =
            self.remainders(folder).map(|(rule, glob)| PathRule { glob, ..rule.clone() }).collect();
        self.0.extend(more);
    }

    /// The rules with patterns that reach into a subdirectory, with patterns relative to it.
    fn remainders(&self, folder: &Path) -> impl Iterator<Item = (&PathRule, PathGlob)> {
        let inside = normalize_components(folder);
        self.0.iter().filter(|rule| !rule.scope.is_absolute).flat_map(move |rule| {
            let rests = rule.glob.remainders(&inside).into_iter().filter(|rest| *rest != rule.glob.0);
            rests.map(|rest| (rule, PathGlob(rest))).collect::<Vec<_>>()
        })
    }

    /// Why this access to a path beneath a root is denied, if it is. Absolute rules need a root; see
    /// [`SafePath::check_rules`].
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

/// How a path was obtained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The caller named it, or a link in it resolves to it.
    Named,
    /// A search found it.
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

/// A path pattern: `*` and `?` inside a component, `**` for any number of components.
///
/// A pattern without a slash matches at any depth; one with a slash matches from the root. It also covers everything
/// beneath a match. Names are compared without case. Spellings that some file system treats as equal (`.ｇit`, `GIT~1`)
/// are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGlob(Vec<String>);

/// How much of a directory a pattern covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobReach {
    /// Everything in it.
    Whole,
    /// Something in it may match.
    Inside,
    /// Nothing in it.
    None,
}

impl PathGlob {
    /// Parses a pattern.
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

    /// The pattern in its parsed form.
    #[must_use]
    pub fn pattern(&self) -> String {
        self.0.join("/")
    }

    /// How much of a directory beneath the root the pattern covers.
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

    /// Whether the literal part of the pattern names something inside this directory.
    #[must_use]
    pub fn names_something_in(&self, folder: &Path) -> bool {
        let parts = normalize_components(folder);
        let head = self.0.iter().take_while(|part| !part.contains(['*', '?'])).count();
        !parts.is_empty() && parts.len() <= head && parts.len() < self.0.len() && self.0.starts_with(&parts)
    }

    /// Whether the pattern matches a path beneath the root, or one of its parent directories.
    #[must_use]
    pub fn matches(&self, relative: &Path) -> bool {
        self.covers(&normalize_components(relative))
    }

    /// The rest of the pattern inside a directory; empty if the pattern does not match it.
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

/// Whether a pattern component matches a name, both folded.
fn is_match(pattern: &str, name: &str) -> bool {
    wildcard_match(pattern.as_bytes(), name.as_bytes()) || is_short_form(pattern, name)
}

/// Matches `*` and `?` over bytes, without recursion.
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

/// The kind of a path that belongs to another system. Used literally, it would create directories such as `C:` or
/// `file:`.
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

/// The rest of a clean path beneath a directory.
fn beneath<'a>(clean: &'a Path, dir: &Path) -> Option<&'a Path> {
    let rest = clean.to_str().zip(dir.to_str()).and_then(|(path, dir)| path.strip_prefix(dir));
    match rest.map(|rest| (rest, rest.strip_prefix('/'))) {
        Some(("", _)) => Some(Path::new("")),
        Some((_, Some(rest))) if !rest.starts_with('/') => Some(Path::new(rest)),
        // Another directory, or the same one spelled differently, such as with a trailing slash.
        _ => clean.strip_prefix(dir).ok(),
    }
}

/// A path for display: control characters and bytes that are not UTF-8 are escaped.
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
        // Names that only other systems reserve, and names of dots, are valid.
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
        // Shell, browser and foreign path syntax has no meaning here.
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

        // Parent directories, directories without overlap and protected ones change nothing.
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
