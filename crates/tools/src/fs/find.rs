//! `find`: find files and folders by their name.

use helve_contract::{
    AccessRequest, Call, Effects, Reply, Result, Tool,
    ports::{self, Kind, Noise, Order},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::glob::Files;

/// Finds files and folders whose name matches a pattern.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Find {
    /// A glob over the name (`*_test.go`), over the path where it has a slash, or a part of the name. All otherwise.
    pub pattern: Option<String>,
    /// The folder to start in; the whole workspace otherwise.
    pub path: Option<String>,
    /// Files or folders only.
    pub only: Option<Only>,
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
pub enum Only {
    /// Regular files.
    File,
    /// Folders.
    Dir,
}

/// How many are given where nothing was said.
const LIMIT: usize = 200;

/// Files and folders that were found; the reply marks folders with `/`.
#[derive(Clone, Debug)]
pub struct FindOut(
    /// What was found.
    pub Files,
);

impl Tool for Find {
    const NAME: &'static str = "find";
    const EFFECTS: Effects = Effects::READS;
    type Output = FindOut;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([self.path.as_deref().unwrap_or(".")]))
    }

    async fn run(self, call: &Call) -> Result<FindOut> {
        let start = match &self.path {
            Some(path) => call.readable(path)?,
            None => call.top()?,
        };
        super::glob::folder(call, &start).await?;
        let limit = self.limit.unwrap_or(LIMIT);
        let pattern = self.pattern.filter(|it| !it.is_empty());
        // Whoever writes the dot of a hidden name wants to see it.
        let hidden = self.hidden || pattern.as_deref().is_some_and(super::glob::names_hidden);
        let find = ports::Find {
            pattern,
            whole_path: false,
            kind: self.only.map(|only| match only {
                Only::File => Kind::File,
                Only::Dir => Kind::Folder,
            }),
            noise: Noise { ignored: self.ignored, hidden },
            order: Order::Path,
            limit,
        };
        Ok(FindOut(super::glob::find_all(call, start, find).await?))
    }
}

impl From<FindOut> for Reply {
    fn from(FindOut(files): FindOut) -> Self {
        files.reply(files.marked_paths(), "No files found")
    }
}

#[cfg(test)]
mod tests {
    use super::Find;
    use crate::testing::{call, says};

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
            says(&call::<Find>(&files, args).await.0, want);
        }
    }
}
