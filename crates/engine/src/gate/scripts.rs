//! Project scripts: `npm test` or `make build` run lines from a project file, which a call can change.
//!
//! An approval or allow rule for such a command applies to the script as it was then. If the script changes, the
//! command needs approval again.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use helve_contract::{Access, Call, SafePath, ports::Span};
use serde_json::Value;

use super::deed::CallAccess;
use crate::commands::{SimpleCommand, base_name};

/// Manifests with scripts, and the programs that run them.
const MANIFESTS: &[(&str, &[&str])] = &[
    ("package.json", NODE),
    ("GNUmakefile", &["make", "gmake"]),
    ("makefile", &["make", "gmake"]),
    ("Makefile", &["make", "gmake"]),
    ("justfile", &["just"]),
    ("Justfile", &["just"]),
    (".justfile", &["just"]),
    (".cargo/config.toml", &["cargo"]),
    (".cargo/config", &["cargo"]),
];
const NODE: &[&str] = &["npm", "pnpm", "yarn", "bun"];
/// The maximum size of a manifest.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// Options that make a program use another directory or manifest than its working directory's.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("npm", &["--prefix", "-C", "--workspace", "-w", "--userconfig", "--globalconfig", "--script-shell"]),
    ("pnpm", &["--dir", "-C", "--filter", "-F", "--script-shell"]),
    ("yarn", &["--cwd"]),
    ("bun", &["--cwd", "--filter"]),
    ("make", &["-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir", "--eval"]),
    ("gmake", &["-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir", "--eval"]),
    ("just", &["-f", "--justfile", "-d", "--working-directory", "--shell"]),
    ("cargo", &["--manifest-path", "-C", "--config"]),
    ("go", &["-C", "-exec", "-toolexec"]),
    ("git", &["-C", "--git-dir", "--work-tree", "-c", "--exec-path"]),
];

/// Whether a command names another directory or manifest than its working directory's.
pub(super) fn works_elsewhere(command: &SimpleCommand) -> bool {
    let mut words = command.words.iter().map(|word| word.as_literal());
    let Some(Some(program)) = words.next() else { return false };
    let Some((_, options)) = ELSEWHERE.iter().find(|(name, _)| *name == base_name(program)) else { return false };
    let names = |word: &str, option: &str| {
        // `-C evil`, `-Cevil`, `--prefix evil` and `--prefix=evil`.
        word.strip_prefix(option).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('=') || !option.starts_with("--") && option.len() == 2
        })
    };
    words.flatten().any(|word| options.iter().any(|option| names(word, option)))
}

/// Whether a program runs scripts of the project.
pub(super) fn runs_scripts(program: &str) -> bool {
    MANIFESTS.iter().any(|(_, runners)| runners.contains(&base_name(program)))
}

/// The manifests of a directory at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifests(Vec<(&'static str, String)>);

impl Manifests {
    /// Reads the manifests of a directory, or of the nearest parent beneath the root.
    pub(super) async fn read(call: &Call, folder: &SafePath) -> Self {
        let mut found = Vec::new();
        for (name, _) in MANIFESTS {
            for above in folder.relative().ancestors() {
                let Ok(path) = folder.in_same_root(above.join(name), Access::Read) else { continue };
                if let Ok(chunk) = call.host().read(&path, Span::first(MAX_MANIFEST_BYTES)).await {
                    found.push((*name, String::from_utf8_lossy(&chunk.bytes).into_owned()));
                    break;
                }
            }
        }
        Self(found)
    }

    /// The manifest lines about these commands. The text is equal as long as they run the same scripts.
    pub(super) fn lines(&self, commands: &[SimpleCommand]) -> String {
        let lines = commands.iter().flat_map(|command| {
            let program = command.program().map(base_name).unwrap_or_default();
            let mine = MANIFESTS.iter().filter(move |(_, runners)| runners.contains(&program)).map(|(name, _)| *name);
            mine.filter_map(move |name| {
                let text = &self.0.iter().find(|(it, _)| *it == name)?.1;
                Some(if NODE.contains(&program) { node_scripts(text, command) } else { text.clone() })
            })
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The script that a command of a Node package manager runs, with its pre and post scripts. All scripts if the command
/// names none: `npm install` runs several.
fn node_scripts(manifest: &str, command: &SimpleCommand) -> String {
    let Ok(manifest) = serde_json::from_str::<Value>(manifest) else { return manifest.to_owned() };
    let scripts = &manifest["scripts"];
    let named = command.words.iter().skip(1).filter_map(|word| word.as_literal()).filter(|word| !word.starts_with('-'));
    let name = named.map(|it| if matches!(it, "t" | "tst") { "test" } else { it }).find(|it| scripts[*it].is_string());
    match name {
        Some(name) => [format!("pre{name}"), name.to_owned(), format!("post{name}")]
            .iter()
            .map(|name| format!("{name}: {}", scripts[name]))
            .collect::<Vec<_>>()
            .join("\n"),
        None => scripts.to_string(),
    }
}

/// The manifests of each workspace at the time of its first call. Allow rules apply to these scripts. Cheap to clone;
/// clones share the data, so an agent uses its parent's snapshot.
#[derive(Clone, Debug, Default)]
pub struct ScriptSnapshot(Arc<Mutex<HashMap<PathBuf, Arc<Manifests>>>>);

impl ScriptSnapshot {
    fn get(&self, top: &Path) -> Option<Arc<Manifests>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(top).cloned()
    }

    /// The first manifests of the workspace; reads them if nobody has.
    pub(super) async fn first(&self, call: &Call) -> Option<Arc<Manifests>> {
        let top = call.workspace_root().ok()?;
        if let Some(known) = self.get(&top.host_path()) {
            return Some(known);
        }
        let read = Arc::new(Manifests::read(call, &top).await);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(known.entry(top.host_path()).or_insert(read).clone())
    }
}

/// The scripts that a call would run now; `None` if it runs none.
pub(super) async fn current(deed: &CallAccess<'_>) -> Option<Manifests> {
    let reading = deed.parsed.as_ref()?;
    if !reading.commands.iter().any(|command| command.program().is_some_and(runs_scripts)) {
        return None;
    }
    Some(Manifests::read(deed.call, &deed.start_path()?).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parse_line;

    fn commands(line: &str) -> Vec<SimpleCommand> {
        parse_line(line).unwrap().commands
    }

    #[test]
    fn a_script_is_its_lines_and_those_around_it() {
        let package = |test: &str, pre: &str| {
            let text = serde_json::json!({"scripts": {"test": test, "pretest": pre, "build": "b"}}).to_string();
            Manifests(vec![("package.json", text)])
        };
        let same = |a: &Manifests, b: &Manifests, line: &str| a.lines(&commands(line)) == b.lines(&commands(line));
        let (old, other, before) = (package("jest", "x"), package("evil", "x"), package("jest", "evil"));
        for line in ["npm test", "npm t", "npm run test -- --watch", "yarn test", "pnpm -s run test", "npm install"] {
            assert!(
                same(&old, &old.clone(), line) && !same(&old, &other, line) && !same(&old, &before, line),
                "{line}"
            );
        }
        assert!(same(&old, &other, "npm run build"));
        let make = |text: &str| Manifests(vec![("Makefile", text.to_owned())]);
        assert!(!same(&make("all:\n\ttrue"), &make("all:\n\tevil"), "make all"));
        assert!(same(&make("a"), &make("b"), "npm test"));
    }

    #[test]
    fn an_option_can_lead_elsewhere() {
        for line in [
            "npm test --prefix evil",
            "npm test --prefix=evil",
            "npm test -C evil",
            "make all -Cevil",
            "make -f evil.mk all",
            "cargo test --manifest-path evil/Cargo.toml",
            "git status -c core.fsmonitor=x",
            "just -d evil test",
            "yarn test --cwd evil",
        ] {
            assert!(commands(line).iter().any(works_elsewhere), "{line}");
        }
        for line in ["npm test --watch", "make all", "cargo test --workspace", "ls -C", "git commit -m x"] {
            assert!(!commands(line).iter().any(works_elsewhere), "{line}");
        }
    }
}
