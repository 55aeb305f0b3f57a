//! `list`: lists a directory.

use std::{fmt::Write as _, time::SystemTime};

use helve_contract::{
    AccessRequest, Call, Effects, Reply, Result, Tool,
    ports::{DirEntry, DirListing, FileKind, ListOptions},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;

use super::with_suggestions;

/// The maximum number of entries: of names only, and with metadata.
const MAX_ENTRIES: (usize, usize) = (10_000, 2_000);

/// Lists a folder, sorted by name. Folders end in `/`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTool {
    /// Folder to list. The workspace, when it is left out.
    pub path: Option<String>,
    /// Show names that begin with a dot, too.
    #[serde(default)]
    pub hidden: bool,
    /// How much is told of an entry.
    #[serde(skip)]
    pub detail: ListDetail,
}

/// The detail level of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListDetail {
    /// Name and kind, which the directory provides.
    #[default]
    Name,
    /// Also size, modification time and target, which need a `stat` per entry.
    Full,
}

/// A directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOutput {
    /// The directory, as the model knows it.
    pub path: String,
    /// Its entries, sorted by name.
    pub entries: Vec<DirEntry>,
    /// The number of entries left out.
    pub omitted: usize,
    /// The number of skipped hidden entries.
    pub hidden: usize,
}

impl Tool for ListTool {
    const NAME: &'static str = "list";
    const EFFECTS: Effects = Effects::READS;
    type Output = ListOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([self.path.as_deref().unwrap_or(".")]))
    }

    async fn run(self, call: &Call) -> Result<ListOutput> {
        let path = match &self.path {
            Some(path) => call.check_read(path)?,
            None => call.workspace_root()?,
        };
        let closely = self.detail == ListDetail::Full;
        let glance = ListOptions {
            include_hidden: self.hidden,
            limit: if closely { MAX_ENTRIES.1 } else { MAX_ENTRIES.0 },
            with_metadata: closely,
        };
        match call.host().list_with(&path, glance).await {
            Ok(DirListing { entries: items, omitted: rest, hidden }) => {
                Ok(ListOutput { path: path.to_string(), entries: items, omitted: rest, hidden })
            }
            Err(error) => Err(with_suggestions(call, &path, error).await),
        }
    }
}

impl ListOutput {
    /// One name a line; directories end in `/`.
    #[must_use]
    pub fn names(&self) -> String {
        self.lines(push_name)
    }

    /// One entry per line: `name (file, 12B)`. Requires [`ListDetail::Full`].
    #[must_use]
    pub fn with_sizes(&self) -> String {
        self.lines(|text, it| {
            text.push_str(&it.name);
            match it.kind {
                FileKind::Folder => text.push_str(" (dir)"),
                FileKind::Other => text.push_str(" (special)"),
                FileKind::Link => _ = write!(text, " (symlink to {})", it.target.as_deref().unwrap_or("?")),
                FileKind::File => _ = write!(text, " (file, {})", format_size(it.size)),
            }
        })
    }

    /// One entry per line in columns: size, modification time in UTC, name. Requires [`ListDetail::Full`].
    #[must_use]
    pub fn with_sizes_and_times(&self) -> String {
        self.lines(|text, it| {
            let size = if it.kind == FileKind::File { format_size(it.size) } else { "-".to_owned() };
            let time = it.modified.map_or_else(|| "-".to_owned(), format_minute);
            _ = write!(text, "{size:>9}  {time:<16}  ");
            push_name(text, it);
            if let Some(target) = &it.target {
                text.extend([" -> ", target]);
            }
        })
    }

    /// Renders the entries and the notes: empty, truncated, or hidden entries.
    fn lines(&self, line: impl Fn(&mut String, &DirEntry)) -> String {
        let mut text = String::with_capacity(32 * self.entries.len());
        for it in &self.entries {
            line(&mut text, it);
            text.push('\n');
        }
        _ = match (self.omitted, self.hidden) {
            (0, 0) if self.entries.is_empty() => write!(text, "{} is empty", self.path),
            (0, 1) if self.entries.is_empty() => write!(text, "{} holds only 1 hidden entry", self.path),
            (0, many) if self.entries.is_empty() => write!(text, "{} holds only {many} hidden entries", self.path),
            (0, _) => {
                text.pop();
                Ok(())
            }
            (rest, _) => write!(text, "[{rest} more entries are not shown; search by name instead]"),
        };
        text
    }
}

impl From<ListOutput> for Reply {
    fn from(it: ListOutput) -> Self {
        it.names().into()
    }
}

fn push_name(text: &mut String, it: &DirEntry) {
    text.push_str(&it.name);
    if it.kind == FileKind::Folder {
        text.push('/');
    }
}

/// A number of bytes for people: `12B`, `50KB`, `1.5MB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    helve_contract::format_size(bytes)
}

/// A time as `2023-11-14 22:13`, in UTC.
fn format_minute(time: SystemTime) -> String {
    let seconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX / 2),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(0),
    };
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, so that the leap day is the last of its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02}", rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{FakeFile, FakeHost, assert_text, call, run};

    fn memory() -> FakeHost {
        let memory = FakeHost::with(&[("b.txt", "12345"), ("src/a.rs", "x"), (".env", "x")]);
        memory.put("link", FakeFile::Link("b.txt".into()));
        memory.put("big", FakeFile::Repeated(vec![b'x'], 51_200));
        memory
    }

    #[tokio::test]
    async fn shows_as_much_as_is_asked_for() {
        let listing = run(&memory(), ListTool { detail: ListDetail::Full, ..ListTool::default() }).await.unwrap();
        assert_eq!(listing.names(), "b.txt\nbig\nlink\nsrc/");
        assert_eq!(listing.with_sizes(), "b.txt (file, 5B)\nbig (file, 50KB)\nlink (symlink to b.txt)\nsrc (dir)");
        assert_eq!(
            listing.with_sizes_and_times(),
            "       5B  2023-11-14 22:13  b.txt\n     50KB  2023-11-14 22:13  big\n        \
             -  2023-11-14 22:13  link -> b.txt\n        -  2023-11-14 22:13  src/"
        );
        assert_eq!(
            run(&memory(), ListTool { hidden: true, ..ListTool::default() }).await.unwrap().entries[0].name,
            ".env"
        );
    }

    #[tokio::test]
    async fn says_that_there_is_nothing() {
        let (reply, _) = call::<ListTool>(&[("e/", ""), ("h/.a", "")], r#"{"path": "e"}"#).await;
        assert_text(&reply, "e is empty");
        let (reply, _) = call::<ListTool>(&[("e/", ""), ("h/.a", "")], r#"{"path": "h"}"#).await;
        assert_text(&reply, "h holds only 1 hidden entry");
    }

    #[tokio::test]
    async fn a_file_is_no_folder() {
        let (reply, _) = call::<ListTool>(&[("a.txt", "")], r#"{"path": "a.txt"}"#).await;
        assert_text(&reply, "a.txt: this is a file, not a folder");
    }

    #[tokio::test]
    async fn counts_what_it_does_not_show() {
        let memory = FakeHost::default();
        for number in 0..10_007 {
            memory.put(&format!("f{number:05}"), FakeFile::Bytes(Vec::new()));
        }
        let listing = run(&memory, ListTool::default()).await.unwrap();
        assert!(listing.names().ends_with("f09999\n[7 more entries are not shown; search by name instead]"));
        let listing = run(&memory, ListTool { detail: ListDetail::Full, ..ListTool::default() }).await.unwrap();
        let shown = listing.with_sizes();
        assert!(shown.ends_with("f01999 (file, 0B)\n[8007 more entries are not shown; search by name instead]"));
    }

    #[test]
    fn knows_the_calendar() {
        let at = |seconds: u64| format_minute(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(951_827_640), at(4_107_542_399)],
            ["1970-01-01 00:00", "2000-02-29 12:34", "2100-02-28 23:59"]
        );
        assert_eq!(format_minute(SystemTime::UNIX_EPOCH - Duration::from_secs(60)), "1969-12-31 23:59");
    }
}
