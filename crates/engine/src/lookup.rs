//! Looks up the tool for a name that the model wrote.

use std::collections::HashMap;

use helve_contract::{Effects, Entry, Error, Result, Spec, closest_names, underscored};

use crate::{BuildError, Engine, NotOffered, ToolStatus, table::ToolRegistry};

/// The names of a session's tools.
pub(crate) struct NameIndex {
    /// Names and aliases as they are written.
    exact: HashMap<String, usize>,
    /// With `_` for `-`, and rule names; `None` if ambiguous.
    underscored: HashMap<String, Option<usize>>,
    /// Without case, `-` and `_`; `None` if ambiguous.
    normalized: HashMap<String, Option<usize>>,
}

impl NameIndex {
    /// Indexes these tools. Duplicate names are an error.
    pub(crate) fn new<'a>(specs: impl Iterator<Item = &'a Spec>) -> Result<Self, BuildError> {
        let mut names = Self { exact: HashMap::new(), underscored: HashMap::new(), normalized: HashMap::new() };
        let mut for_rules: HashMap<&str, Option<usize>> = HashMap::new();
        for (at, spec) in specs.enumerate() {
            for name in std::iter::once(&spec.name).chain(&spec.aliases) {
                if !is_name(name) {
                    return Err(BuildError::InvalidName(name.clone()));
                }
                if names.exact.insert(name.clone(), at).is_some() {
                    return Err(BuildError::Duplicate(name.clone()));
                }
                record(&mut names.underscored, underscored(name), at);
                record(&mut names.normalized, normalize_name(name), at);
            }
            spec.rule_names.iter().for_each(|name| record(&mut for_rules, name, at));
        }
        for (name, at) in for_rules {
            if let Some(at) = at {
                names.exact.entry(name.to_owned()).or_insert(at);
            }
        }
        Ok(names)
    }

    /// A name as it is written.
    pub(crate) fn exact(&self, name: &str) -> Option<usize> {
        self.exact.get(name).copied()
    }

    /// Looks up a name without regard to case, `-`, `_` and a `functions.` prefix.
    pub(crate) fn find_normalized(&self, name: &str) -> Option<usize> {
        let spelt = |name: &str| {
            let folded = || self.normalized.get(&normalize_name(name)).copied().flatten();
            self.exact(name).or_else(|| self.underscored.get(&underscored(name)).copied().flatten()).or_else(folded)
        };
        if name.len() > 400 {
            return None;
        }
        let name = name.trim();
        spelt(name).or_else(|| spelt(name.rsplit(['.', ':', '/']).next().unwrap_or(name)))
    }
}

/// Records a spelling; an ambiguous one becomes `None`.
fn record<K: Eq + std::hash::Hash>(names: &mut HashMap<K, Option<usize>>, name: K, at: usize) {
    names.entry(name).and_modify(|old| *old = old.filter(|old| *old == at)).or_insert(Some(at));
}

/// Whether providers accept this tool name.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-'))
}

fn normalize_name(name: &str) -> String {
    name.chars().filter(|it| !matches!(it, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Common tool names of other agents, grouped by purpose. The first field describes the purpose to the model.
const COMMON_TOOL_NAMES: &[(&str, &[&str])] = &[
    (
        "run commands",
        &[
            "bash",
            "shell",
            "sh",
            "exec",
            "execute",
            "executeshell",
            "executecommand",
            "executebash",
            "run",
            "runcommand",
            "runshell",
            "runshellcommand",
            "runterminalcmd",
            "runinterminal",
            "runbash",
            "terminal",
            "cmd",
            "command",
            "shellexec",
            "execcommand",
            "containerexec",
            "localshell",
            "powershell",
            "shellcommand",
        ],
    ),
    (
        "read a file",
        &[
            "read",
            "readfile",
            "fileread",
            "cat",
            "view",
            "viewfile",
            "openfile",
            "open",
            "getfile",
            "readtextfile",
            "head",
            "tail",
            "viewimage",
        ],
    ),
    (
        "write a file",
        &[
            "write",
            "writefile",
            "filewrite",
            "createfile",
            "create",
            "savefile",
            "writetofile",
            "newfile",
            "filecreate",
            "createnewfile",
        ],
    ),
    (
        "change a file",
        &[
            "edit",
            "editfile",
            "fileedit",
            "strreplace",
            "replace",
            "replaceinfile",
            "strreplaceeditor",
            "strreplacebasededittool",
            "searchreplace",
            "applydiff",
            "updatefile",
            "multiedit",
            "applypatch",
            "patch",
            "modifyfile",
            "replacestringinfile",
            "replacefilecontent",
        ],
    ),
    (
        "search in files",
        &[
            "grep",
            "search",
            "ripgrep",
            "rg",
            "searchfiles",
            "filesearch",
            "searchcode",
            "codesearch",
            "greptool",
            "searchfilecontent",
            "grepsearch",
            "searchintext",
            "findinfiles",
            "codebasesearch",
        ],
    ),
    (
        "list a folder",
        &["ls", "list", "listdirectory", "listdir", "listfiles", "filelist", "dir", "readdir", "tree", "directorytree"],
    ),
    (
        "find files by name",
        &["glob", "find", "findfiles", "fileglob", "globsearch", "findbyname", "globfiles", "searchfilenames"],
    ),
    ("delete a file", &["delete", "deletefile", "rm", "remove", "removefile", "filedelete", "unlink"]),
    (
        "fetch a page",
        &[
            "webfetch",
            "fetch",
            "fetchurl",
            "curl",
            "wget",
            "httpget",
            "browse",
            "openurl",
            "geturl",
            "fetchwebpage",
            "readurl",
            "httprequest",
        ],
    ),
    ("search the web", &["websearch", "googlesearch", "searchweb", "internetsearch", "google", "bing", "duckduckgo"]),
    ("keep a list of things to do", &["todowrite", "todo", "updateplan", "todolist", "managetodolist", "writetodos"]),
    (
        "hand work to another agent",
        &["agent", "task", "delegate", "delegatetoagent", "spawnagent", "subagent", "sessionsspawn", "runsubagent"],
    ),
    ("ask the user", &["askuserquestion", "ask", "askuser", "question", "askfollowupquestion", "requestuserinput"]),
    ("search memory", &["memorysearch", "searchmemory", "recall", "searchmemories"]),
    ("remember something", &["memorysave", "savememory", "remember", "memorywrite", "memorystore", "addmemory"]),
];

impl Engine {
    /// The tool with this name, in any spelling that `run` accepts, or what to call instead.
    pub fn look_up(&self, name: &str) -> Result<Entry> {
        let table = self.registry();
        table.find(name).map(|slot| slot.entry.clone()).ok_or_else(|| table.unknown_tool_error(name))
    }
}

impl ToolRegistry {
    /// The error for an unknown name, with what to call instead.
    pub(crate) fn unknown_tool_error(&self, name: &str) -> Error {
        let shown = display_name(name);
        let hint = if let Some(reason) = self.withheld(name) {
            match reason {
                NotOffered::Missing(_) => format!("It is not offered in this session: {reason}"),
                _ => format!("It is turned off in this session. {}", self.list_names()),
            }
        } else if let Some((deed, tools)) = self.equivalent_tools(&normalize_name(name)) {
            format!("To {deed} here, use {tools}.")
        } else {
            let near = closest_names(name, self.specs().map(|spec| spec.name.as_str()));
            if near.is_empty() { self.list_names() } else { format!("Did you mean {}?", join_with_or(&near)) }
        };
        Error::UnknownTool(format!("{shown}. {hint}"))
    }

    /// Why a row or an imported tool with this name or alias is not offered.
    fn withheld(&self, name: &str) -> Option<NotOffered> {
        let name = normalize_name(name);
        let is_meant = |status: &&ToolStatus| {
            let aliases = status.spec.iter().flat_map(|spec| &spec.aliases);
            std::iter::once(&status.name).chain(aliases).any(|other| normalize_name(other) == name)
        };
        self.statuses().iter().find(is_meant).and_then(|status| status.offered.err())
    }

    /// The purpose of a name from other agents, and the tools here with this purpose.
    fn equivalent_tools(&self, folded: &str) -> Option<(&'static str, String)> {
        let (deed, words) = COMMON_TOOL_NAMES.iter().find(|(_, words)| words.contains(&folded))?;
        let does = |spec: &Spec| {
            let mut names = std::iter::once(&spec.name).chain(&spec.aliases);
            names.any(|name| words.contains(&normalize_name(name).as_str()))
        };
        let mut tools: Vec<&str> = self.specs().filter(|spec| does(spec)).map(|spec| spec.name.as_str()).collect();
        if tools.is_empty() && *deed == "run commands" {
            tools.extend(
                self.specs().filter(|it| it.effects.contains(Effects::EXECUTES)).map(|it| it.name.as_str()).take(1),
            );
        }
        tools.truncate(3);
        (!tools.is_empty()).then(|| (*deed, join_with_or(&tools)))
    }

    fn list_names(&self) -> String {
        let names: Vec<&str> = self.specs().map(|spec| spec.name.as_str()).collect();
        if names.is_empty() {
            "This session has no tools.".into()
        } else {
            format!("The tools are {}.", names.join(", "))
        }
    }
}

fn join_with_or(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(" or ")
}

/// A name for display: short, without control characters.
fn display_name(name: &str) -> String {
    let plain: String = name.chars().take(64).map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect();
    if plain.trim().is_empty() { "(no name)".into() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_foreign_name_is_listed_once_and_folded() {
        let mut all: Vec<&str> = COMMON_TOOL_NAMES.iter().flat_map(|(_, words)| words.iter().copied()).collect();
        assert!(all.iter().all(|name| normalize_name(name) == *name));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
