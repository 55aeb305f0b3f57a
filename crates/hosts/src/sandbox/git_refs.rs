//! Checks whether a trusted git ref contains a file's content.
//!
//! Git finds the objects, inside the sandbox. Its answers are untrusted: every object from the ref to the file is
//! hashed here, so writing to `.git/objects` does not help a command.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use super::stamp::Stamp;

/// The maximum number of queries in one git call.
const MAX_QUESTIONS: usize = 20_000;
/// The maximum number of commits, and of versions of one file.
const MAX_HISTORY: &str = "--max-count=20000";
const MAX_VERSIONS: &str = "--max-count=500";
/// The maximum depth of ref directories.
const MAX_DEPTH: usize = 16;

/// Runs `git` in a repository with these arguments and input; returns its output if it succeeds.
pub(super) type RunGit<'a> = &'a (dyn Fn(Vec<String>, Vec<u8>) -> BoxFuture<'a, Option<Vec<u8>>> + Send + Sync);

/// The objects that refs of one repository name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Refs {
    /// A ref named it while no command ran.
    trusted: BTreeSet<String>,
    /// A ref named it at some time.
    known: BTreeSet<String>,
    #[serde(skip)]
    seen: Vec<(PathBuf, Option<Stamp>)>,
}

impl Refs {
    /// Reads the refs if they have changed; returns whether it did. New refs are trusted only if no command can have
    /// created them.
    pub(super) fn update(&mut self, git_dir: &Path, is_idle: bool) -> bool {
        let unchanged = |(path, before): &(PathBuf, Option<Stamp>)| match (before, stamp(path)) {
            (Some(before), Some(now)) => before.still_holds(&now),
            (None, None) => true,
            _ => false,
        };
        if !self.seen.is_empty() && self.seen.iter().all(unchanged) {
            return false;
        }
        let mut found = BTreeSet::new();
        self.seen.clear();
        for name in ["packed-refs", "HEAD"] {
            let path = git_dir.join(name);
            self.seen.push((path.clone(), stamp(&path)));
            let text = fs::read_to_string(&path).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| object_id(line.trim_start_matches('^'))));
        }
        self.read_loose(&git_dir.join("refs"), MAX_DEPTH, &mut found);
        if is_idle {
            self.trusted.extend(found.difference(&self.known).cloned());
        }
        self.known.extend(found);
        true
    }

    fn read_loose(&mut self, dir: &Path, depth: usize, found: &mut BTreeSet<String>) {
        self.seen.push((dir.to_owned(), stamp(dir)));
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth > 0 {
                self.read_loose(&entry.path(), depth - 1, found);
            } else if kind.is_file() {
                found.extend(fs::read_to_string(entry.path()).ok().and_then(|text| object_id(&text)));
            }
        }
    }

    /// Finds the files whose content a trusted ref contains, with the object.
    pub(super) async fn find(&self, files: &[(String, Vec<u8>)], run: RunGit<'_>) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let usable = |path: &str| !path.contains(['\n', '\0']) && !path.is_empty();
        let questions: Vec<(&String, &(String, Vec<u8>))> = files
            .iter()
            .filter(|(path, _)| usable(path))
            .flat_map(|file| self.trusted.iter().map(move |tip| (tip, file)))
            .take(MAX_QUESTIONS)
            .collect();
        if questions.is_empty() {
            return found;
        }
        let names: Vec<String> = questions.iter().map(|(tip, (path, _))| format!("{tip}:{path}\n")).collect();
        let args = ["cat-file", "--batch-check=%(objectname)"].map(str::to_owned).to_vec();
        let Some(answer) = run(args, names.concat().into_bytes()).await else { return found };
        let answer = String::from_utf8_lossy(&answer).into_owned();
        for ((tip, (path, content)), line) in questions.iter().zip(answer.lines()) {
            if found.contains_key(path) || !is_blob(line, content) {
                continue;
            }
            let input = chain(tip, path).join("\n") + "\n";
            let args = ["cat-file", "--batch"].map(str::to_owned).to_vec();
            let Some(objects) = run(args, input.into_bytes()).await else { continue };
            if is_proof(&objects, tip, path, line) {
                found.insert(path.clone(), (*tip).clone());
            }
        }
        if files.iter().any(|(path, _)| usable(path) && !found.contains_key(path)) {
            let trusted = self.history(run).await;
            for (path, content) in files.iter().filter(|(path, _)| usable(path)) {
                if !found.contains_key(path)
                    && let Some(commit) = self.find_in_history(&trusted, path, content, run).await
                {
                    found.insert(path.clone(), commit);
                }
            }
        }
        found
    }

    /// The commits that are reachable from trusted tips. Each was hashed here.
    async fn history(&self, run: RunGit<'_>) -> BTreeSet<String> {
        let args = ["rev-list", "--topo-order", "--ignore-missing", MAX_HISTORY, "--stdin"].map(str::to_owned).to_vec();
        let Some(ids) = run(args, self.tips("")).await else { return BTreeSet::new() };
        let args = ["cat-file", "--batch"].map(str::to_owned).to_vec();
        let Some(answer) = run(args, ids).await else { return BTreeSet::new() };
        let mut reached = self.trusted.clone();
        // Children come before their parents.
        for commit in objects(&answer).unwrap_or_default().iter().filter(|it| it.kind == "commit") {
            if reached.contains(commit.id) {
                let text = String::from_utf8_lossy(commit.content);
                let head = text.lines().take_while(|line| !line.is_empty());
                reached.extend(head.filter_map(|line| object_id(line.strip_prefix("parent ")?)));
            }
        }
        reached
    }

    /// The commit that contains a file with this content.
    async fn find_in_history(
        &self,
        trusted: &BTreeSet<String>,
        path: &str,
        content: &[u8],
        run: RunGit<'_>,
    ) -> Option<String> {
        let args = ["rev-list", "--ignore-missing", MAX_VERSIONS, "--stdin"].map(str::to_owned).to_vec();
        let commits = run(args, self.tips(&format!("--\n:(literal){path}\n"))).await?;
        let commits: Vec<String> =
            String::from_utf8_lossy(&commits).lines().filter_map(object_id).filter(|it| trusted.contains(it)).collect();
        let questions: Vec<String> = commits.iter().map(|commit| format!("{commit}:{path}\n")).collect();
        let args = ["cat-file", "--batch-check=%(objectname)"].map(str::to_owned).to_vec();
        let answer = run(args, questions.concat().into_bytes()).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (commit, blob) = commits.iter().zip(answer.lines()).find(|(_, line)| is_blob(line, content))?;
        let args = ["cat-file", "--batch"].map(str::to_owned).to_vec();
        let objects = run(args, (chain(commit, path).join("\n") + "\n").into_bytes()).await?;
        is_proof(&objects, commit, path, blob).then(|| commit.clone())
    }

    fn tips(&self, end: &str) -> Vec<u8> {
        let mut text: String = self.trusted.iter().flat_map(|tip| [tip.as_str(), "\n"]).collect();
        text.push_str(end);
        text.into_bytes()
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    fs::symlink_metadata(path).ok().map(|about| Stamp::of(&about))
}

/// The object id at the beginning of a line.
fn object_id(line: &str) -> Option<String> {
    let word = line.split_whitespace().next()?;
    (matches!(word.len(), 40 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| word.to_ascii_lowercase())
}

/// Whether an id is that of a file with this content.
fn is_blob(id: &str, content: &[u8]) -> bool {
    hash(id.len(), "blob", content).is_some_and(|it| it == id)
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|it| char::from_digit(u32::from(it), 16).unwrap_or('0'));
    bytes.iter().flat_map(digits).collect()
}

/// The id of an object: SHA-1 or SHA-256, by the number of its digits.
fn hash(digits: usize, kind: &str, content: &[u8]) -> Option<String> {
    let head = format!("{kind} {}\0", content.len());
    match digits {
        40 => Some(hex(&Sha1::new().chain_update(head).chain_update(content).finalize())),
        64 => Some(hex(&Sha256::new().chain_update(head).chain_update(content).finalize())),
        _ => None,
    }
}

/// The objects from a tip to a file: the tip, its commit, its tree, the directories.
fn chain(tip: &str, path: &str) -> Vec<String> {
    let mut names = vec![tip.to_owned(), format!("{tip}^{{commit}}"), format!("{tip}^{{tree}}")];
    names.extend(path.match_indices('/').map(|(at, _)| format!("{tip}:{}", &path[..at])));
    names
}

/// One object of an answer.
struct Object<'a> {
    id: &'a str,
    kind: &'a str,
    content: &'a [u8],
}

/// Parses the output of `git cat-file --batch`; `None` if an object is missing or does not match its id.
fn objects(mut answer: &[u8]) -> Option<Vec<Object<'_>>> {
    let mut all = Vec::new();
    while !answer.is_empty() {
        let end = memchr::memchr(b'\n', answer)?;
        let mut head = std::str::from_utf8(&answer[..end]).ok()?.split(' ');
        let (id, kind, size) = (head.next()?, head.next()?, head.next()?.parse::<usize>().ok()?);
        let content = answer.get(end + 1..)?.get(..size)?;
        if hash(id.len(), kind, content)? != id {
            return None;
        }
        all.push(Object { id, kind, content });
        answer = answer.get(end + 1 + size + 1..)?;
    }
    Some(all)
}

/// Whether the objects prove that the tip contains the file.
fn is_proof(answer: &[u8], tip: &str, path: &str, blob: &str) -> bool {
    let check = || {
        let objects = objects(answer)?;
        let [first, commit, trees @ ..] = &objects[..] else { return None };
        let named = |object: &Object<'_>, key: &str| {
            let text = String::from_utf8_lossy(object.content).into_owned();
            let line = text
                .lines()
                .take_while(|line| !line.is_empty())
                .find_map(|line| line.strip_prefix(key).map(str::to_owned));
            line.map(|line| line.trim().to_owned())
        };
        if first.id != tip || commit.kind != "commit" {
            return None;
        }
        if first.kind == "tag" {
            if named(first, "object ")? != commit.id {
                return None;
            }
        } else if first.id != commit.id {
            return None;
        }
        let mut wanted = named(commit, "tree ")?;
        let parts: Vec<&str> = path.split('/').collect();
        if trees.len() != parts.len() {
            return None;
        }
        for (tree, part) in trees.iter().zip(parts) {
            if tree.kind != "tree" || tree.id != wanted {
                return None;
            }
            wanted = entry(tree.content, part.as_bytes(), tree.id.len() / 2)?;
        }
        Some(wanted == blob)
    };
    check().unwrap_or(false)
}

/// The id of an entry of a tree.
fn entry(mut tree: &[u8], name: &[u8], bytes: usize) -> Option<String> {
    while !tree.is_empty() {
        let space = memchr::memchr(b' ', tree)?;
        let end = memchr::memchr(0, tree)?;
        let id = tree.get(end + 1..end + 1 + bytes)?;
        if tree.get(space + 1..end)? == name {
            return Some(hex(id));
        }
        tree = &tree[end + 1 + bytes..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        assert!(is_blob("ce013625030ba8dba906f756967f9e9ca394464a", b"hello\n"));
        assert!(!is_blob("ce013625030ba8dba906f756967f9e9ca394464a", b"hello"));
        assert_eq!(object_id("0123 refs/heads/x"), None);
    }

    #[test]
    fn only_a_chain_of_true_objects_is_a_proof() {
        let blob = hash(40, "blob", b"x").unwrap();
        let raw =
            |id: &str| (0..20).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect::<Vec<u8>>();
        let inner = [b"100644 .mcp.json\0".to_vec(), raw(&blob)].concat();
        let inner_id = hash(40, "tree", &inner).unwrap();
        let tree = [b"40000 sub\0".to_vec(), raw(&inner_id)].concat();
        let tree_id = hash(40, "tree", &tree).unwrap();
        let commit = format!("tree {tree_id}\nauthor a\n\ntree 0\n").into_bytes();
        let tip = hash(40, "commit", &commit).unwrap();
        let show = |kind: &str, content: &[u8]| {
            let head = format!("{} {kind} {}\n", hash(40, kind, content).unwrap(), content.len());
            [head.as_bytes(), content, b"\n"].concat()
        };
        let path = "sub/.mcp.json";
        let parts = [show("commit", &commit), show("commit", &commit), show("tree", &tree), show("tree", &inner)];
        assert_eq!(chain(&tip, path).len(), parts.len());
        assert!(is_proof(&parts.concat(), &tip, path, &blob));
        assert!(!is_proof(&parts.concat(), &tip, path, &inner_id), "another blob");
        assert!(!is_proof(&parts.concat(), &tree_id, path, &blob), "another tip");
        assert!(!is_proof(&parts[1..].concat(), &tip, path, &blob), "a part is missing");
        let mut forged = parts.concat();
        let at = forged.len() - 3;
        forged[at] ^= 1;
        assert!(!is_proof(&forged, &tip, path, &blob), "content that is not what its id says");
    }

    #[test]
    fn refs_that_a_command_made_are_not_trusted() {
        let top = std::env::temp_dir().join(format!("helve-refs-{}", std::process::id()));
        fs::create_dir_all(top.join("refs/heads/deep")).unwrap();
        let id = |digit: &str| digit.repeat(40);
        fs::write(top.join("packed-refs"), format!("# pack-refs\n{} refs/tags/v1\n^{}\n", id("a"), id("b"))).unwrap();
        fs::write(top.join("refs/heads/deep/main"), format!("{}\n", id("c"))).unwrap();
        fs::write(top.join("HEAD"), "ref: refs/heads/deep/main\n").unwrap();
        let mut refs = Refs::default();
        refs.update(&top, true);
        assert_eq!(refs.trusted, [id("a"), id("b"), id("c")].into());
        fs::write(top.join("refs/heads/evil"), id("d")).unwrap();
        refs.update(&top, false);
        fs::write(top.join("refs/heads/mine"), id("e")).unwrap();
        refs.update(&top, true);
        assert_eq!(refs.trusted, [id("a"), id("b"), id("c"), id("e")].into());
        fs::remove_dir_all(top).unwrap();
    }
}
