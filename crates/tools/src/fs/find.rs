//! `find`: finds files and directories by name.

use helve_contract::{
    AccessRequest, Call, Effects, Reply, Result, Tool,
    ports::{self, FileKind, IgnoreOptions, SortOrder},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::glob::GlobOutput;

/// Finds files and folders whose name matches a pattern.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FindTool {
    /// A glob over the name (`*_test.go`), over the path where it has a slash, or a part of the name. All otherwise.
    pub pattern: Option<String>,
    /// The folder to start in; the whole workspace otherwise.
    pub path: Option<String>,
    /// Files or folders only.
    pub only: Option<EntryFilter>,
    /// Include what ignore files leave out.
    pub ignored: bool,
    /// Include hidden files.
    pub hidden: bool,
    /// How many at most.
    pub limit: Option<usize>,
}

/// One kind of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryFilter {
    /// Regular files.
    File,
    /// Folders.
    Dir,
}

/// The default limit.
const DEFAULT_LIMIT: usize = 200;

/// Files and directories that were found; the reply marks directories with `/`.
#[derive(Clone, Debug)]
pub struct FindOutput(
    /// What was found.
    pub GlobOutput,
);

impl Tool for FindTool {
    const NAME: &'static str = "find";
    const EFFECTS: Effects = Effects::READS;
    type Output = FindOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([self.path.as_deref().unwrap_or(".")]))
    }

    async fn run(self, call: &Call) -> Result<FindOutput> {
        let start = match &self.path {
            Some(path) => call.check_read(path)?,
            None => call.workspace_root()?,
        };
        super::glob::require_dir(call, &start).await?;
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        let pattern = self.pattern.filter(|it| !it.is_empty());
        // A pattern with a leading dot includes hidden names.
        let hidden = self.hidden || pattern.as_deref().is_some_and(super::glob::names_hidden);
        let find = ports::FindQuery {
            pattern,
            whole_path: false,
            kind: self.only.map(|only| match only {
                EntryFilter::File => FileKind::File,
                EntryFilter::Dir => FileKind::Folder,
            }),
            noise: IgnoreOptions { ignored: self.ignored, hidden },
            order: SortOrder::Path,
            limit,
        };
        Ok(FindOutput(super::glob::find_all(call, start, find).await?))
    }
}

impl From<FindOutput> for Reply {
    fn from(FindOutput(files): FindOutput) -> Self {
        files.reply(files.paths_with_slash(), "No files found")
    }
}

#[cfg(test)]
mod tests {
    use super::FindTool;
    use crate::testing::{assert_text, call};

    #[tokio::test]
    async fn finds_by_name_kind_and_number() {
        let files = [("src/a_test.go", ""), ("src/b.go", ""), ("docs/test/x.md", ""), (".env", "")];
        for (args, want) in [
            (r#"{"pattern": "*_test.go"}"#, "src/a_test.go"),
            (r#"{"pattern": "test"}"#, "docs/test/\nsrc/a_test.go"),
            (r#"{"pattern": "test", "only": "dir"}"#, "docs/test/"),
            (
                r#"{"only": "file", "limit": 1}"#,
                "docs/test/x.md\n[showing 1 of 3; use a narrower pattern or folder to see the rest]",
            ),
            (r#"{"pattern": "zzz"}"#, "No files found"),
            (r#"{"pattern": ".env"}"#, ".env"),
            (r#"{"pattern": "env"}"#, ".env\n[all of these are ignored or hidden; nothing else matches]"),
        ] {
            assert_text(&call::<FindTool>(&files, args).await.0, want);
        }
    }
}
