//! `glob`: finds files by a path pattern.

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, SafePath, Tool,
    ports::{self, FileKind, FindResult, FoundFile, IgnoreOptions},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Finds files whose path matches a pattern such as `src/**/*.rs`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GlobTool {
    /// The pattern: `*` and `?` inside a name, `**` for any number of folders, `{a,b}`, `[a-z]`.
    pub pattern: String,
    /// The folder to start in; the whole workspace otherwise.
    pub path: Option<String>,
    /// Let a pattern without a slash match at any depth.
    pub any_depth: bool,
    /// In which order.
    pub order: GlobOrder,
    /// Include what ignore files leave out.
    pub ignored: bool,
    /// Include hidden files.
    pub hidden: bool,
    /// How many at most.
    pub limit: Option<usize>,
}

/// An order of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GlobOrder {
    /// By path.
    #[default]
    Path,
    /// The newest first.
    Newest,
}

/// Files that were found by name.
#[derive(Clone, Debug)]
pub struct GlobOutput {
    /// Where the search started.
    pub start: SafePath,
    /// What was found.
    pub found: FindResult,
    /// The limit.
    pub limit: usize,
    /// Whether only ignored or hidden files matched.
    pub only_withheld: bool,
}

/// The default limit.
const DEFAULT_LIMIT: usize = 1000;

impl Tool for GlobTool {
    const NAME: &'static str = "glob";
    const EFFECTS: Effects = Effects::READS;
    type Output = GlobOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([split_base_dir(self.path.as_deref(), &self.pattern).0.as_deref().unwrap_or(".")]))
    }

    async fn run(self, call: &Call) -> Result<GlobOutput> {
        if self.pattern.trim().is_empty() {
            return Err(Error::failed("the pattern is empty; `**` finds all files"));
        }
        let (place, pattern) = split_base_dir(self.path.as_deref(), &self.pattern);
        let start = match place {
            Some(place) => call.check_read(place)?,
            None => call.workspace_root()?,
        };
        require_dir(call, &start).await?;
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        // A pattern with a leading dot includes hidden names.
        let hidden = self.hidden || names_hidden(&pattern);
        let find = ports::FindQuery {
            whole_path: !self.any_depth || pattern.contains('/'),
            pattern: Some(pattern),
            kind: Some(FileKind::File),
            noise: IgnoreOptions { ignored: self.ignored, hidden },
            order: match self.order {
                GlobOrder::Path => ports::SortOrder::Path,
                GlobOrder::Newest => ports::SortOrder::Newest,
            },
            limit,
        };
        find_all(call, start, find).await
    }
}

/// Finds files. If only ignored or hidden ones match, returns those.
pub(super) async fn find_all(call: &Call, start: SafePath, find: ports::FindQuery) -> Result<GlobOutput> {
    let limit = find.limit;
    let found = call.host().find(&start, &find).await?;
    if found.passed_over == 0 {
        return Ok(GlobOutput { start, found, limit, only_withheld: false });
    }
    let everything = ports::FindQuery { noise: IgnoreOptions { ignored: true, hidden: true }, ..find };
    let found = call.host().find(&start, &everything).await?;
    let only_withheld = found.total > 0;
    Ok(GlobOutput { start, found, limit, only_withheld })
}

/// Whether a pattern spells a name that begins with a dot.
pub(super) fn names_hidden(pattern: &str) -> bool {
    let begins = |at: usize| at == 0 || matches!(pattern.as_bytes()[at - 1], b'/' | b'{' | b',');
    let is_name = |at: usize| !matches!(pattern[at + 1..].chars().next(), None | Some('/' | '.'));
    pattern.match_indices('.').any(|(at, _)| begins(at) && is_name(at))
}

/// Refuses a path that is not a directory, with similar names.
pub(super) async fn require_dir(call: &Call, path: &SafePath) -> Result<()> {
    match call.host().stat(path).await {
        Ok(stat) if stat.kind == FileKind::Folder => Ok(()),
        Ok(_) => Err(Error::file(path, FileErrorKind::NotFolder)),
        Err(error) => Err(super::with_suggestions(call, path, error).await),
    }
}

/// Splits a pattern with a literal directory (`/w/src/**`) into the directory and the rest.
fn split_base_dir(path: Option<&str>, pattern: &str) -> (Option<String>, String) {
    let pattern = pattern.trim();
    if !pattern.starts_with('/') {
        return (path.map(str::to_owned), pattern.trim_start_matches("./").to_owned());
    }
    let wild = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    let slash = pattern[..wild].rfind('/').unwrap_or(0);
    let folder = if slash == 0 { "/" } else { &pattern[..slash] };
    (Some(folder.to_owned()), pattern[slash + 1..].to_owned())
}

/// Rendering for the dialects.
impl GlobOutput {
    /// The paths as the model knows them.
    pub fn paths(&self) -> Vec<String> {
        self.found.files.iter().map(|file| self.start.display_relative(&file.path)).collect()
    }

    /// The same, with `/` after directories.
    pub fn paths_with_slash(&self) -> Vec<String> {
        let mark = |file: &FoundFile| if file.kind == FileKind::Folder { "/" } else { "" };
        self.found
            .files
            .iter()
            .map(|file| format!("{}{}", self.start.display_relative(&file.path), mark(file)))
            .collect()
    }

    /// One path per line; ends with what was left out, or why there is nothing.
    pub fn reply(&self, paths: Vec<String>, nothing: &str) -> Reply {
        let shown = paths.len();
        let is_cut = (shown as u64) < self.found.total || self.found.partial;
        let data = json!({
            "numFiles": shown,
            "filenames": paths,
            "truncated": is_cut,
            "totalMatches": self.found.total,
        });
        let mut after = Vec::new();
        if shown > 0 && self.only_withheld {
            after.push("[all of these are ignored or hidden; nothing else matches]".to_owned());
        }
        if shown > 0 && is_cut {
            let more = if self.found.partial { "at least " } else { "" };
            let total = self.found.total;
            after.push(format!("[showing {shown} of {more}{total}; use a narrower pattern or folder to see the rest]"));
        }
        let text = if paths.is_empty() { self.no_match_text(nothing) } else { paths.join("\n") };
        Reply { data: Some(data), after: after.join("\n"), ..text.into() }
    }

    fn no_match_text(&self, nothing: &str) -> String {
        if self.found.partial {
            format!("{nothing} (not everything was searched; start in a smaller folder)")
        } else {
            nothing.to_owned()
        }
    }
}

impl From<GlobOutput> for Reply {
    fn from(out: GlobOutput) -> Self {
        out.reply(out.paths(), "No files found")
    }
}

#[cfg(test)]
mod tests {
    use super::{GlobTool, names_hidden, split_base_dir};
    use crate::testing::{assert_text, call};

    const FILES: [(&str, &str); 4] = [("src/a.rs", ""), ("src/deep/b.rs", ""), ("c.rs", ""), (".hid/d.rs", "")];

    #[tokio::test]
    async fn finds_files_by_their_path() {
        for (args, want) in [
            (r#"{"pattern": "**/*.rs"}"#, "c.rs\nsrc/a.rs\nsrc/deep/b.rs"),
            (r#"{"pattern": "*.rs"}"#, "c.rs"),
            (r#"{"pattern": "*.rs", "any_depth": true}"#, "c.rs\nsrc/a.rs\nsrc/deep/b.rs"),
            (r#"{"pattern": "*.rs", "path": "src"}"#, "src/a.rs"),
            (r#"{"pattern": "/w/src/**/*.rs"}"#, "src/a.rs\nsrc/deep/b.rs"),
            (
                r#"{"pattern": "**/*.rs", "limit": 2}"#,
                "c.rs\nsrc/a.rs\n[showing 2 of 3; use a narrower pattern or folder to see the rest]",
            ),
            (r#"{"pattern": "**/*.py"}"#, "No files found"),
            (r#"{"pattern": ".hid/*.rs"}"#, ".hid/d.rs"),
            (r#"{"pattern": "**/d.rs"}"#, ".hid/d.rs\n[all of these are ignored or hidden; nothing else matches]"),
            (r#"{"pattern": "*", "path": "scr"}"#, "scr: no such file or folder. Did you mean src?"),
            (r#"{"pattern": "*", "path": "c.rs"}"#, "c.rs: this is a file, not a folder"),
            (r#"{"pattern": " "}"#, "the pattern is empty; `**` finds all files"),
        ] {
            assert_text(&call::<GlobTool>(&FILES, args).await.0, want);
        }
    }

    #[test]
    fn a_written_dot_names_a_hidden_file() {
        for (pattern, is) in [
            (".github/**/*.yml", true),
            ("**/.env", true),
            ("{src,.config}/*", true),
            ("*.rs", false),
            ("./src/*.rs", false),
            ("src/**", false),
            ("a.b/c.d", false),
        ] {
            assert_eq!(names_hidden(pattern), is, "{pattern}");
        }
    }

    #[test]
    fn an_absolute_pattern_is_a_folder_and_a_pattern() {
        let apart = |pattern| split_base_dir(Some("p"), pattern);
        assert_eq!(apart("/w/src/*.rs"), (Some("/w/src".into()), "*.rs".into()));
        assert_eq!(apart("/w/a.rs"), (Some("/w".into()), "a.rs".into()));
        assert_eq!(apart("/*"), (Some("/".into()), "*".into()));
        assert_eq!(apart("./x/*"), (Some("p".into()), "x/*".into()));
    }
}
