//! `delete`: removes a file, a link, or a directory with its content.

use helve_contract::{
    AccessRequest, Call, Effects, Error, Reply, Result, Tool, ports::FileKind, schemars, schemars::JsonSchema,
};
use serde::Deserialize;

use super::with_suggestions;

/// Deletes a file, or a folder with everything in it. A symbolic link is deleted, not what it points to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteTool {
    /// What to delete.
    pub path: String,
}

/// The deleted entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOutput {
    /// Its path, as the model knows it.
    pub path: String,
    /// Its kind.
    pub kind: FileKind,
}

impl DeleteOutput {
    /// The name of its kind: `file`, `directory`, `symlink`.
    #[must_use]
    pub fn kind_label(&self) -> &'static str {
        match self.kind {
            FileKind::File => "file",
            FileKind::Folder => "directory",
            FileKind::Link => "symlink",
            FileKind::Other => "special file",
        }
    }
}

impl Tool for DeleteTool {
    const NAME: &'static str = "delete";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::DESTROYS);
    type Output = DeleteOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::writes([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<DeleteOutput> {
        let path = call.check_write(&self.path)?;
        if path.relative().as_os_str().is_empty() {
            return Err(Error::denied(format!("{path} is the workspace itself; delete what is in it instead")));
        }
        match call.host().remove(&path).await {
            Ok(kind) => Ok(DeleteOutput { path: path.to_string(), kind }),
            Err(error) => Err(with_suggestions(call, &path, error).await),
        }
    }
}

impl From<DeleteOutput> for Reply {
    fn from(it: DeleteOutput) -> Self {
        format!("deleted {} {}", it.kind_label(), it.path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::DeleteTool;
    use crate::testing::{FakeFile, FakeHost, assert_text, call, call_on};

    #[tokio::test]
    async fn deletes_files_and_whole_folders() {
        let files = [("a.txt", "x"), ("src/a.rs", "x"), ("src/deep/b.rs", "x")];
        let (reply, left) = call::<DeleteTool>(&files, r#"{"path": "src"}"#).await;
        assert_text(&reply, "deleted directory src");
        assert_eq!(left.into_keys().collect::<Vec<_>>(), ["a.txt"]);
    }

    #[tokio::test]
    async fn deletes_a_link_and_not_its_target() {
        let memory = FakeHost::with(&[("real.txt", "old")]);
        memory.put("link.txt", FakeFile::Link("real.txt".into()));
        assert_text(&call_on::<DeleteTool>(&memory, r#"{"path": "link.txt"}"#).await, "deleted symlink link.txt");
        assert_eq!(memory.bytes("real.txt"), b"old");
    }

    #[tokio::test]
    async fn never_deletes_the_workspace() {
        for path in [".", "/w", "a/.."] {
            let (reply, left) = call::<DeleteTool>(&[("a.txt", "x")], &format!(r#"{{"path": "{path}"}}"#)).await;
            assert_text(&reply, ". is the workspace itself; delete what is in it instead");
            assert_eq!(left.len(), 1);
        }
    }

    #[tokio::test]
    async fn says_what_is_there_instead() {
        let (reply, _) = call::<DeleteTool>(&[("notes.txt", "x")], r#"{"path": "note.txt"}"#).await;
        assert_text(&reply, "note.txt: no such file or folder. Did you mean notes.txt?");
    }
}
