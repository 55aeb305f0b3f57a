//! The pins of tool definitions: what a tool was when it was first seen, and which change waits for approval. The key
//! is the server and its own tool name, so that local names can change.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{definition::ToolDefinition, name};

/// The most that is read of the record.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// The record, in a file that several sessions share.
#[derive(Clone, Debug)]
pub(crate) struct ToolPins {
    folder: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct PinFile {
    /// By server, and by the name that the server gives a tool.
    #[serde(default)]
    servers: BTreeMap<String, BTreeMap<String, ToolPin>>,
    /// By local tool name, as earlier versions recorded it. An entry moves to `servers` when its server is seen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tools: BTreeMap<String, ToolPin>,
}

impl PinFile {
    /// Migrates entries of earlier versions; returns whether there were any. Two tools that shared an entry both
    /// inherit it, so that neither counts as new.
    fn migrate(&mut self, server: &str, tools: &[ToolDefinition]) -> bool {
        if self.tools.is_empty() {
            return false;
        }
        let old = |tool: &ToolDefinition| name::recorded_before(server, &tool.server_name);
        for tool in tools {
            if let Some(line) = self.tools.get(&old(tool)) {
                let lines = self.servers.entry(server.to_owned()).or_default();
                lines.entry(tool.server_name.clone()).or_insert_with(|| line.clone());
            }
        }
        tools.iter().filter(|tool| self.tools.remove(&old(tool)).is_some()).count() > 0
    }

    /// The tools with a pending change: server, tool, offered name and plain name.
    fn changed(&self) -> Vec<(&str, &str, (String, String))> {
        let keys: Vec<(&str, &str)> = self
            .servers
            .iter()
            .flat_map(|(server, lines)| lines.keys().map(move |tool| (server.as_str(), tool.as_str())))
            .collect();
        let names = name::assigned(&[], &keys);
        let waits = |(server, tool): (&str, &str)| self.servers[server][tool].changed.is_some();
        let all = keys.into_iter().zip(names).filter(|(key, _)| waits(*key));
        all.map(|((server, tool), offered)| (server, tool, (offered, name::plain(server, tool)))).collect()
    }
}

/// One tool.
#[derive(Clone, Serialize, Deserialize)]
struct ToolPin {
    /// The approved definition.
    seen: String,
    /// A different definition that the server has offered since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
}

impl ToolPins {
    pub(crate) fn new(state: &Path) -> Self {
        Self { folder: state.to_owned() }
    }

    /// Returns which definitions are pinned: known ones, and new tools, which it records.
    pub(crate) fn check(&self, server: &str, tools: &[ToolDefinition]) -> Result<Vec<bool>, String> {
        self.update(|record| {
            let mut news = record.migrate(server, tools);
            let lines = record.servers.entry(server.to_owned()).or_default();
            let holds = tools.iter().map(|tool| {
                let line = lines.entry(tool.server_name.clone()).or_insert_with(|| {
                    news = true;
                    ToolPin { seen: tool.fingerprint.clone(), changed: None }
                });
                let changed = (line.seen != tool.fingerprint).then(|| tool.fingerprint.clone());
                news |= line.changed != changed;
                line.changed = changed;
                line.changed.is_none()
            });
            let holds = holds.collect();
            (holds, news)
        })
    }

    /// Whether this definition holds by now.
    pub(crate) fn is_pinned(&self, server: &str, tool: &str, print: &str) -> bool {
        let line = |record: &PinFile| record.servers.get(server)?.get(tool).map(|line| line.seen == print);
        self.read().is_ok_and(|record| line(&record).unwrap_or(false))
    }

    /// Pins this definition.
    pub(crate) fn approve(&self, server: &str, tool: &str, print: &str) -> Result<(), String> {
        let line = ToolPin { seen: print.to_owned(), changed: None };
        self.update(|record| {
            record.servers.entry(server.to_owned()).or_default().insert(tool.to_owned(), line);
            ((), true)
        })
    }

    /// Pins the pending definition of this name.
    pub(crate) fn approve_named(&self, name: &str) -> Result<(), String> {
        self.update(|record| {
            let waiting = record.changed();
            let names: Vec<_> = waiting.iter().map(|(_, _, names)| names.clone()).collect();
            let line = match name::meant(name, &names) {
                Err(why) => return (Err(why), false),
                Ok(Some(at)) => {
                    let (server, tool) = (waiting[at].0.to_owned(), waiting[at].1.to_owned());
                    record.servers.get_mut(&server).and_then(|lines| lines.get_mut(&tool))
                }
                Ok(None) => record.tools.get_mut(name),
            };
            let Some((line, print)) = line.and_then(|line| line.changed.clone().map(|print| (line, print))) else {
                return (Err(format!("no change of a tool `{name}` waits for approval")), false);
            };
            *line = ToolPin { seen: print, changed: None };
            (Ok(()), true)
        })?
    }

    /// The names of the tools with a change that waits.
    pub(crate) fn pending(&self) -> Result<Vec<String>, String> {
        let record = self.read().map_err(|error| self.describe_error(&error))?;
        let before = record.tools.iter().filter(|(_, line)| line.changed.is_some()).map(|(name, _)| name.clone());
        Ok(record.changed().into_iter().map(|(_, _, (offered, _))| offered).chain(before).collect())
    }

    fn update<T>(&self, change: impl FnOnce(&mut PinFile) -> (T, bool)) -> Result<T, String> {
        let work = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            // Other sessions share the file: the lock serialises access.
            let lock = private_open_options().open(self.folder.join("mcp-tools.lock"))?;
            lock.lock()?;
            let mut record = self.read()?;
            let (answer, news) = change(&mut record);
            if news {
                self.write(&record)?;
            }
            Ok(answer)
        };
        work().map_err(|error| self.describe_error(&error))
    }

    fn read(&self) -> io::Result<PinFile> {
        let mut bytes = Vec::new();
        match File::open(self.file()) {
            Ok(file) => file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PinFile::default()),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn write(&self, record: &PinFile) -> io::Result<()> {
        let new = self.folder.join("mcp-tools.json.new");
        let mut file = private_open_options().truncate(true).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        fs::rename(new, self.file())
    }

    fn file(&self) -> PathBuf {
        self.folder.join("mcp-tools.json")
    }

    fn describe_error(&self, error: &io::Error) -> String {
        format!("the record of tools {}: {error}; mend or remove it", self.file().display())
    }
}

fn private_open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use serde_json::json;

    use super::*;

    fn tool(description: &str) -> ToolDefinition {
        ToolDefinition::parse("s", &json!({ "name": "t", "description": description })).unwrap()
    }

    #[test]
    fn a_change_waits_for_a_yes() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = ToolPins::new(folder.path());
        let (old, new) = (tool("Adds."), tool("Adds, and sends your keys."));
        let seen = [&old, &new, &old, &new].map(|it| ledger.check("s", std::slice::from_ref(it)).unwrap()[0]);
        assert_eq!(seen, [true, false, true, false]);
        assert_eq!(ledger.pending().unwrap(), ["mcp__s__t"]);
        ledger.approve_named("mcp__s__t").unwrap();
        assert!(ledger.is_pinned("s", "t", &new.fingerprint) && !ledger.is_pinned("s", "t", &old.fingerprint));
        assert!(ledger.approve_named("mcp__s__t").is_err() && ledger.approve_named("other").is_err());
        assert_eq!(folder.path().join("mcp-tools.json").metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn tools_of_similar_names_have_lines_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = ToolPins::new(folder.path());
        let named = |name: &str, description: &str| {
            ToolDefinition::parse("s", &json!({ "name": name, "description": description })).unwrap()
        };
        assert_eq!(ledger.check("s", &[named("a-b", "One."), named("a_b", "Two.")]).unwrap(), [true, true]);
        assert_eq!(ledger.check("s", &[named("a-b", "One!"), named("a_b", "Two.")]).unwrap(), [false, true]);
        // Another server of a similar name has lines of its own, too.
        assert_eq!(ledger.check("S", &[named("a-b", "One!")]).unwrap(), [true]);
        // Only one of them waits, so that either spelling means it.
        ledger.approve_named("mcp__s__a_b").unwrap();
        assert_eq!(ledger.check("s", &[named("a-b", "One!"), named("a_b", "Two.")]).unwrap(), [true, true]);
    }

    #[test]
    fn a_record_by_names_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = ToolPins::new(folder.path());
        let named = |name: &str, description: &str| {
            ToolDefinition::parse("my-files", &json!({ "name": name, "description": description })).unwrap()
        };
        let (sum, other) = (named("get-sum", "Adds."), named("get_sum", "Adds, and sends your keys."));
        let before = json!({ "tools": {
            "mcp__my_files__get_sum": { "seen": sum.fingerprint },
            "mcp__gone__tool": { "seen": "1", "changed": "2" },
        } });
        fs::write(folder.path().join("mcp-tools.json"), before.to_string()).unwrap();
        assert_eq!(ledger.pending().unwrap(), ["mcp__gone__tool"]);
        // A tool with the same former name is not new, so a changed definition cannot appear as a new tool.
        assert_eq!(ledger.check("my-files", &[sum.clone(), other]).unwrap(), [true, false]);
        assert_eq!(ledger.check("my-files", &[named("get-sum", "Adds more.")]).unwrap(), [false]);
        ledger.approve_named("mcp__gone__tool").unwrap();
        let after: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.path().join("mcp-tools.json")).unwrap()).unwrap();
        assert_eq!(after["servers"]["my-files"]["get-sum"]["seen"], json!(sum.fingerprint));
        assert_eq!(after["tools"], json!({ "mcp__gone__tool": { "seen": "2" } }));
    }

    #[test]
    fn a_record_that_cannot_be_read_vouches_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mcp-tools.json"), "nonsense").unwrap();
        assert!(ToolPins::new(folder.path()).check("s", &[tool("Adds.")]).unwrap_err().contains("mend or remove it"));
    }
}
