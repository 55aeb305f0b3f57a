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
        collect(&self.0, &self.2, &GitDirs::find(&self.0, &self.2), &self.1, None)
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
        found.git.iter_mut().for_each(|change| short(&mut change.path));
        found.project.iter_mut().for_each(short);
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
fn finds_what_changed_in_git_folders_with_what_was_there() {
    let mut tree = Tree::new("repositories");
    tree.write("old/.git/config", "[core]\n\tbare = false\n");
    tree.write("old/.git/hooks/pre-push", "mine");
    let before = tree.baseline();
    tree.write("sub/.git/hooks/pre-commit.sample", "x");
    assert!(tree.compare(&before).is_empty());
    tree.write("sub/.git/config", "new");
    tree.write("sub/.git/hooks/pre-commit", "x");
    tree.write("sub/.git/commondir", "..");
    tree.write("old/.git/config", "changed");
    tree.write("old/.git/hooks/pre-push", "evil");
    tree.write("other/.git", "gitdir: ../x");
    for name in ["HEAD", "objects/x", "refs/x", "config", "hooks/x"] {
        tree.write(&format!("bare/{name}"), "");
    }
    let found = tree.compare(&before);
    assert_eq!(new(&found), ["bare/hooks/x", "sub/.git/hooks/pre-commit"]);
    let git: Vec<_> = found.git.iter().map(|it| (it.path.to_str().unwrap(), it.rule)).collect();
    assert_eq!(
        git,
        [
            ("bare/config", Rule::GitConfig),
            ("old/.git/config", Rule::GitConfig),
            ("old/.git/hooks/pre-push", Rule::GitFixed),
            ("other/.git", Rule::GitLink),
            ("sub/.git/commondir", Rule::GitCommonDir),
            ("sub/.git/config", Rule::GitConfig),
        ]
    );
    assert_eq!(found.git[2].before.as_ref().unwrap().bytes, b"mine");
    assert_eq!(found.changed, [""; 0].map(PathBuf::from));
}

#[test]
fn finds_project_files_that_run_something_else_than_before() {
    let mut tree = Tree::new("project");
    tree.write("package.json", r#"{"scripts":{"test":"a"},"version":"1"}"#);
    tree.write(".husky/pre-commit", "a");
    let before = tree.baseline();
    tree.write("package.json", r#"{"scripts":{"test":"a"},"version":"2"}"#);
    tree.write("sub/package.json", r#"{"version":"2"}"#);
    assert!(tree.compare(&before).is_empty());
    tree.write("package.json", r#"{"scripts":{"test":"b"}}"#);
    tree.write("node_modules/x/package.json", r#"{"scripts":{"test":"b"}}"#);
    tree.write(".husky/pre-commit", "b");
    tree.write("sub/.github/workflows/ci.yml", "b");
    let found = tree.compare(&before);
    assert_eq!(found.project, [".husky/pre-commit", "package.json", "sub/.github/workflows/ci.yml"].map(PathBuf::from));
    assert!(new(&found).is_empty());
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
