//! The record of definitions: what a tool was when it was first seen, and which change waits for a yes.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::definition::Definition;

/// The most that is read of the record.
const LARGEST: u64 = 32 << 20;

/// The record, in a file that several sessions share.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct Record {
    tools: BTreeMap<String, Line>,
}

/// One tool.
#[derive(Serialize, Deserialize)]
struct Line {
    /// The definition that holds.
    seen: String,
    /// Another one that the server has offered since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
}

impl Ledger {
    pub(crate) fn new(state: &Path) -> Self {
        Self { folder: state.to_owned() }
    }

    /// Which of these definitions hold: those seen before, and those of tools never seen, which are recorded.
    pub(crate) fn observe(&self, tools: &[Definition]) -> Result<Vec<bool>, String> {
        self.update(|record| {
            let mut news = false;
            let holds = tools.iter().map(|tool| {
                let line = record.tools.entry(tool.name.clone()).or_insert_with(|| {
                    news = true;
                    Line { seen: tool.print.clone(), changed: None }
                });
                let changed = (line.seen != tool.print).then(|| tool.print.clone());
                news |= line.changed != changed;
                line.changed = changed;
                line.changed.is_none()
            });
            let holds = holds.collect();
            (holds, news)
        })
    }

    /// Whether this definition holds by now.
    pub(crate) fn holds(&self, name: &str, print: &str) -> bool {
        self.read().is_ok_and(|record| record.tools.get(name).is_some_and(|line| line.seen == print))
    }

    /// From now on this definition holds; without one, whichever waits.
    pub(crate) fn approve(&self, name: &str, print: Option<&str>) -> Result<(), String> {
        let found = self.update(|record| {
            let Some(line) = record.tools.get_mut(name) else { return (false, false) };
            let Some(print) = print.map(str::to_owned).or_else(|| line.changed.clone()) else { return (false, false) };
            *line = Line { seen: print, changed: None };
            (true, true)
        })?;
        if found { Ok(()) } else { Err(format!("no change of a tool `{name}` waits for approval")) }
    }

    /// The tools with a change that waits.
    pub(crate) fn changed(&self) -> Result<Vec<String>, String> {
        let record = self.read().map_err(|error| self.told(&error))?;
        Ok(record.tools.into_iter().filter(|(_, line)| line.changed.is_some()).map(|(name, _)| name).collect())
    }

    fn update<T>(&self, change: impl FnOnce(&mut Record) -> (T, bool)) -> Result<T, String> {
        let work = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            // Another session may be at it: only one reads and writes at a time.
            let lock = private().open(self.folder.join("mcp-tools.lock"))?;
            lock.lock()?;
            let mut record = self.read()?;
            let (answer, news) = change(&mut record);
            if news {
                self.write(&record)?;
            }
            Ok(answer)
        };
        work().map_err(|error| self.told(&error))
    }

    fn read(&self) -> io::Result<Record> {
        let mut bytes = Vec::new();
        match File::open(self.file()) {
            Ok(file) => file.take(LARGEST).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Record::default()),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.folder.join("mcp-tools.json.new");
        let mut file = private().truncate(true).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        fs::rename(new, self.file())
    }

    fn file(&self) -> PathBuf {
        self.folder.join("mcp-tools.json")
    }

    fn told(&self, error: &io::Error) -> String {
        format!("the record of tools {}: {error}; mend or remove it", self.file().display())
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use serde_json::json;

    use super::*;

    fn tool(description: &str) -> Definition {
        Definition::read("s", &json!({ "name": "t", "description": description })).unwrap()
    }

    #[test]
    fn a_change_waits_for_a_yes() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path());
        let (old, new) = (tool("Adds."), tool("Adds, and sends your keys."));
        let seen = [&old, &new, &old, &new].map(|it| ledger.observe(std::slice::from_ref(it)).unwrap()[0]);
        assert_eq!(seen, [true, false, true, false]);
        assert_eq!(ledger.changed().unwrap(), ["mcp__s__t"]);
        ledger.approve("mcp__s__t", None).unwrap();
        assert!(ledger.holds("mcp__s__t", &new.print) && !ledger.holds("mcp__s__t", &old.print));
        assert!(ledger.approve("mcp__s__t", None).is_err() && ledger.approve("other", None).is_err());
        assert_eq!(folder.path().join("mcp-tools.json").metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_record_that_cannot_be_read_vouches_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mcp-tools.json"), "nonsense").unwrap();
        assert!(Ledger::new(folder.path()).observe(&[tool("Adds.")]).unwrap_err().contains("mend or remove it"));
    }
}
