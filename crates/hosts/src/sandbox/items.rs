//! The protected files and folders beneath a root, as they are at one moment, and what differs between two moments.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    io::Read as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    dir_index::{DirIndex, entries},
    git_refs::program_keys,
    protected_names::{ProtectedNames, is_within},
    stamp::Stamp,
};

/// The most entries of one protected folder that are looked at. Of a larger folder only the folder itself is.
const MAX_ENTRIES: usize = 512;
/// The largest file whose content is compared.
pub(super) const MAX_CONTENT: u64 = 1 << 20;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Folder,
    File,
    Other,
}

/// By which rule an item is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Rule {
    /// It may be neither made nor changed.
    Fixed,
    /// The settings of a repository, which a command may make. What programs they name counts.
    Config,
}

/// A protected file or folder, or something in such a folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Item {
    stamp: Stamp,
    kind: Kind,
    rule: Rule,
    /// How many parts at the end of its path lie inside of the protected folder.
    depth: usize,
    /// A hash of the content, where it was read.
    content: Option<[u8; 32]>,
    programs: BTreeSet<String>,
}

/// Items by their paths.
pub(super) type Items = BTreeMap<PathBuf, Item>;

/// What a command did to protected places.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// New files and folders, and those that took the place of others; with the files in each.
    pub(super) new: Vec<(PathBuf, Vec<PathBuf>)>,
    /// Files whose content was changed in place.
    pub(super) changed: Vec<PathBuf>,
    /// Settings of repositories, with keys that were not there before.
    pub(super) configs: Vec<(PathBuf, Vec<String>)>,
}

impl Differences {
    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changed.is_empty() && self.configs.is_empty()
    }
}

/// Collects the items of an index that is up to date. What is within `skipped` is Helve's own.
pub(super) fn collect(root: &Path, index: &DirIndex, names: &ProtectedNames, skipped: Option<&Path>) -> Items {
    let mut found = Collector { items: Items::new(), skipped };
    for (dir, entry) in index.iter() {
        for name in entry.protected() {
            found.add(&dir.join(name));
        }
        if entry.is_repository {
            found.add_repository(&dir.join(".git"), names, dir == root);
        }
    }
    for place in &names.places {
        found.add(&root.join(place));
    }
    if names.home.starts_with(root) {
        for place in &names.at_home {
            found.add(&names.home.join(place));
        }
    }
    found.items
}

struct Collector<'a> {
    items: Items,
    skipped: Option<&'a Path>,
}

impl Collector<'_> {
    fn add(&mut self, path: &Path) {
        let Some(about) = self.look(path) else { return };
        let mut inside = Vec::new();
        let whole = !about.is_dir() || list(path, about.permissions().mode(), 1, &mut inside);
        self.items.insert(path.to_owned(), Item::new(&about, Rule::Fixed, 0));
        for (path, about, depth) in inside.into_iter().filter(|_| whole) {
            self.items.insert(path, Item::new(&about, Rule::Fixed, depth));
        }
    }

    fn look(&self, path: &Path) -> Option<fs::Metadata> {
        let is_own = is_within(path, self.skipped) || self.skipped.is_some_and(|own| own.starts_with(path));
        if is_own { None } else { fs::symlink_metadata(path).ok() }
    }

    fn add_repository(&mut self, git: &Path, names: &ProtectedNames, is_root: bool) {
        if !fs::symlink_metadata(git).is_ok_and(|about| about.is_dir()) {
            return;
        }
        for name in names.in_repository(is_root) {
            let path = git.join(name);
            match name.as_str() {
                "config" => {
                    if let Some(about) = self.look(&path) {
                        self.items.insert(path, Item::new(&about, Rule::Config, 0));
                    }
                }
                // Git makes the folder, with samples that it does not run.
                "hooks" => {
                    let Some(about) = self.look(&path) else { continue };
                    if !about.is_dir() {
                        self.add(&path);
                        continue;
                    }
                    for entry in entries(&path, about.permissions().mode()).iter().take(MAX_ENTRIES) {
                        if entry.path().extension().is_none_or(|end| end != "sample") {
                            self.add(&entry.path());
                        }
                    }
                }
                _ => self.add(&path),
            }
        }
    }
}

/// Lists a protected folder with all that is in it; whether that is all.
fn list(dir: &Path, mode: u32, depth: usize, found: &mut Vec<(PathBuf, fs::Metadata, usize)>) -> bool {
    for entry in entries(dir, mode) {
        if found.len() >= MAX_ENTRIES {
            return false;
        }
        let path = entry.path();
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let (is_dir, mode) = (about.is_dir(), about.permissions().mode());
        found.push((path.clone(), about, depth));
        if is_dir && !list(&path, mode, depth + 1, found) {
            return false;
        }
    }
    true
}

impl Item {
    fn new(about: &fs::Metadata, rule: Rule, depth: usize) -> Self {
        let kind = match about {
            it if it.is_dir() => Kind::Folder,
            it if it.is_file() => Kind::File,
            _ => Kind::Other,
        };
        Self { stamp: Stamp::of(about), kind, rule, depth, content: None, programs: BTreeSet::new() }
    }

    /// Whether nothing has changed since. A link may lead to something else without that.
    fn still_holds(&self, later: &Self) -> bool {
        self.kind != Kind::Other && self.stamp.still_holds(&later.stamp)
    }

    /// Reads what is compared later.
    fn read(&mut self, path: &Path, root: &Path) {
        match self.kind {
            Kind::Folder => {}
            Kind::File => {
                let bytes = read_file(path);
                if self.rule == Rule::Config {
                    self.programs = program_keys(&String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()));
                }
                self.content = bytes.map(|bytes| Sha256::digest(bytes).into());
            }
            Kind::Other => {
                self.content = fs::read_link(path).ok().map(|to| {
                    let text = [to.as_os_str().as_bytes(), &behind(path, root)].concat();
                    Sha256::digest(text).into()
                });
            }
        }
    }
}

/// What a link leads to beneath the root: a file's content, or the names and states of a folder's entries.
fn behind(link: &Path, root: &Path) -> Vec<u8> {
    let Some(real) = fs::canonicalize(link).ok().filter(|real| real.starts_with(root)) else { return Vec::new() };
    if let Some(bytes) = read_file(&real) {
        return bytes;
    }
    let mut all: Vec<_> = fs::read_dir(&real).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    all.sort();
    let state = |path: &PathBuf| {
        let about = fs::symlink_metadata(path).ok()?;
        Some(format!("{}\0{} {} {} {}\0", path.display(), about.ino(), about.len(), about.ctime(), about.ctime_nsec()))
    };
    all.iter().take(MAX_ENTRIES).filter_map(state).collect::<String>().into_bytes()
}

/// The content of a regular file that is not too large.
pub(super) fn read_file(path: &Path) -> Option<Vec<u8>> {
    let open = fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let mut bytes = Vec::new();
    let is_file = open.metadata().ok()?.is_file();
    open.take(MAX_CONTENT + 1).read_to_end(&mut bytes).ok()?;
    (is_file && bytes.len() as u64 <= MAX_CONTENT).then_some(bytes)
}

/// Reads the contents of new items; those of items that have not changed are taken over.
pub(super) fn read_contents(root: &Path, items: &mut Items, before: &Items) {
    for (path, item) in items {
        match before.get(path) {
            Some(old) if old.content.is_some() && old.still_holds(item) => {
                item.content = old.content;
                item.programs.clone_from(&old.programs);
            }
            _ => item.read(path, root),
        }
    }
}

/// What differs from an earlier moment, whose contents were read. Settings of the repository at the root may not change
/// at all.
pub(super) fn compare(root: &Path, before: &Items, now: &mut Items) -> Differences {
    let mut found = Differences::default();
    let paths: Vec<PathBuf> = now.keys().cloned().collect();
    let mut new = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
    let by_file: HashMap<(u64, u64, u64), &Item> = before.values().map(|item| (item.stamp.file(), item)).collect();
    for path in paths {
        let Some(item) = now.get_mut(&path) else { continue };
        let old = before.get(&path);
        if old.is_some_and(|old| old.still_holds(item)) {
            continue;
        }
        item.read(&path, root);
        let is_same = |old: &Item| match (old.kind, item.kind) {
            (Kind::Folder, Kind::Folder) => true,
            (a, b) => a == b && old.content.is_some() && old.content == item.content,
        };
        // A folder above it was renamed: it is what it was.
        let has_moved_along = |item: &Item| {
            let earlier = by_file.get(&item.stamp.file()).filter(|it| it.stamp.is_same_state(&item.stamp));
            path.parent() != Some(root) && earlier.is_some_and(|it| is_same(it))
        };
        let has_edited = old.is_some_and(|old| old.kind == item.kind && old.stamp.is_same_file(&item.stamp));
        match (old, item.rule) {
            (Some(old), _) if is_same(old) => {}
            (Some(_), Rule::Config) if path.parent().and_then(Path::parent) == Some(root) => found.changed.push(path),
            (old, Rule::Config) => {
                let known = old.map(|old| old.programs.clone()).unwrap_or_default();
                let more: Vec<String> = item.programs.difference(&known).cloned().collect();
                if !more.is_empty() {
                    found.configs.push((path, more));
                }
            }
            (None, Rule::Fixed) if has_moved_along(item) => {}
            (Some(_), Rule::Fixed) if has_edited => found.changed.push(path),
            (_, Rule::Fixed) => {
                let (depth, kind) = (item.depth, item.kind);
                let top: PathBuf = (0..=depth)
                    .rev()
                    .map(|up| above(&path, up))
                    .find(|it| !before.contains_key(it))
                    .unwrap_or_else(|| path.clone());
                let files = new.entry(top).or_default();
                if kind != Kind::Folder {
                    files.push(path);
                }
            }
        }
    }
    found.new = new.into_iter().collect();
    found
}

/// The folder so many levels above.
fn above(path: &Path, levels: usize) -> PathBuf {
    path.ancestors().nth(levels).unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Tree(PathBuf, ProtectedNames, DirIndex);

    impl Tree {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("helve-items-{name}-{}", std::process::id()));
            fs::create_dir_all(dir.join("sub/deep")).unwrap();
            let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            let rules = ProtectedNames::new(
                &names(&["a/b"]),
                &names(&[".mcp.json", ".claude", ".git/config", ".git/hooks", ".git/commondir"]),
                &[],
                "/nowhere".into(),
            );
            Self(fs::canonicalize(dir).unwrap(), rules, DirIndex::default())
        }

        fn items(&mut self) -> Items {
            self.2.update(&self.0, None, &self.1);
            collect(&self.0, &self.2, &self.1, None)
        }

        fn baseline(&mut self) -> Items {
            let mut items = self.items();
            read_contents(&self.0, &mut items, &Items::new());
            items
        }

        fn compare(&mut self, before: &Items) -> Differences {
            let root = self.0.clone();
            let mut found = compare(&root, before, &mut self.items());
            let short = |path: &mut PathBuf| *path = path.strip_prefix(&root).unwrap().to_owned();
            found.new.iter_mut().for_each(|(path, files)| {
                short(path);
                files.iter_mut().for_each(short);
            });
            found.changed.iter_mut().for_each(short);
            found.configs.iter_mut().for_each(|(path, _)| short(path));
            found
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    fn new(found: &Differences) -> Vec<&str> {
        found.new.iter().map(|(path, _)| path.to_str().unwrap()).collect()
    }

    #[test]
    fn finds_new_names_at_every_depth() {
        let mut tree = Tree::new("depth");
        let before = tree.baseline();
        assert!(tree.compare(&before).is_empty());
        tree.write("sub/deep/.MCP.json", "x");
        tree.write("node_modules/x/.claude/agents/a.md", "x");
        tree.write("node_modules/x/mcp.json", "x");
        tree.write("a/b/c", "x");
        fs::hard_link(tree.0.join("node_modules/x/mcp.json"), tree.0.join("sub/.mcp.json")).unwrap();
        symlink("sub", tree.0.join(".claude")).unwrap();
        let found = tree.compare(&before);
        assert_eq!(new(&found), [".claude", "a/b", "node_modules/x/.claude", "sub/.mcp.json", "sub/deep/.MCP.json"]);
        assert_eq!(found.new[2].1, [PathBuf::from("node_modules/x/.claude/agents/a.md")]);
    }

    #[test]
    fn finds_what_took_the_place_of_another() {
        let mut tree = Tree::new("replaced");
        tree.write("sub/.mcp.json", "old");
        tree.write("sub/.claude/settings.json", "old");
        tree.write("other/.mcp.json", "same");
        let before = tree.baseline();
        fs::rename(tree.0.join("sub"), tree.0.join("away")).unwrap();
        tree.write("sub/.mcp.json", "new");
        tree.write("sub/.claude/settings.json", "new");
        fs::remove_file(tree.0.join("other/.mcp.json")).unwrap();
        tree.write("other/.mcp.json", "same");
        let found = tree.compare(&before);
        assert_eq!(
            new(&found),
            ["sub/.claude/settings.json", "sub/.mcp.json"],
            "what moved with its folder, and the same content in the same place, is no change"
        );
        assert_eq!(found.changed, [""; 0].map(PathBuf::from));
    }

    #[test]
    fn tells_an_edit_from_an_addition() {
        let mut tree = Tree::new("edits");
        tree.write(".claude/settings.json", "old");
        tree.write("sub/.mcp.json", "old");
        let before = tree.baseline();
        fs::write(tree.0.join("sub/.mcp.json"), "new").unwrap();
        tree.write(".claude/hooks/run", "x");
        let found = tree.compare(&before);
        assert_eq!(found.changed, [PathBuf::from("sub/.mcp.json")]);
        assert_eq!(new(&found), [".claude/hooks"]);
    }

    #[test]
    fn a_repository_may_be_made_but_not_with_hooks_or_programs() {
        let mut tree = Tree::new("repositories");
        tree.write("old/.git/config", "[core]\n\tbare = false\n");
        let before = tree.baseline();
        tree.write("sub/.git/config", "[core]\n\tbare = false\n");
        tree.write("sub/.git/hooks/pre-commit.sample", "x");
        assert!(tree.compare(&before).is_empty());
        tree.write("sub/.git/hooks/pre-commit", "x");
        tree.write("sub/.git/commondir", "..");
        tree.write("sub/.git/config", "[core]\n\tfsmonitor = x\n");
        tree.write("old/.git/config", "[core]\n\tbare = false\n[remote \"o\"]\n\turl = x\n");
        let found = tree.compare(&before);
        assert_eq!(new(&found), ["sub/.git/commondir", "sub/.git/hooks/pre-commit"]);
        assert_eq!(found.configs, [(PathBuf::from("sub/.git/config"), vec!["core.fsmonitor".to_owned()])]);
        assert_eq!(found.changed, [""; 0].map(PathBuf::from));
    }

    #[test]
    fn a_folder_that_cannot_be_listed_hides_nothing() {
        use std::os::unix::fs::PermissionsExt as _;
        let mut tree = Tree::new("modes");
        let before = tree.baseline();
        tree.write("sub/.mcp.json", "x");
        fs::set_permissions(tree.0.join("sub"), fs::Permissions::from_mode(0o311)).unwrap();
        assert_eq!(new(&tree.compare(&before)), ["sub/.mcp.json"]);
        assert_eq!(fs::metadata(tree.0.join("sub")).unwrap().permissions().mode() & 0o777, 0o311);
    }

    #[test]
    fn an_index_that_was_kept_finds_what_happened_since() {
        let mut tree = Tree::new("kept");
        let before = tree.baseline();
        tree.2 = DirIndex::from_bytes(&tree.2.to_bytes().unwrap()).unwrap();
        fs::rename(tree.0.join("sub/deep"), tree.0.join("moved")).unwrap();
        tree.write("moved/.mcp.json", "x");
        assert_eq!(new(&tree.compare(&before)), ["moved/.mcp.json"]);
        fs::remove_dir_all(tree.0.join("moved")).unwrap();
        symlink("/etc", tree.0.join("moved")).unwrap();
        assert!(tree.compare(&before).is_empty());
        assert!(!tree.2.iter().any(|(dir, _)| dir.ends_with("moved")), "a link is no folder");
    }
}
