//! `delete`: a file, a link, or a folder with all that is in it.

use helve_contract::{
    AccessRequest, Call, Effects, Error, Reply, Result, Tool, ports::Kind, schemars, schemars::JsonSchema,
};
use serde::Deserialize;

use super::explain;

/// Deletes a file, or a folder with everything in it. A symbolic link is deleted, not what it points to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// What to delete.
    pub path: String,
}

/// What was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its path, as the model knows it.
    pub path: String,
    /// What it was.
    pub kind: Kind,
}

impl Deleted {
    /// What it was, in a word: `file`, `directory`, `symlink`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.kind {
            Kind::File => "file",
            Kind::Folder => "directory",
            Kind::Link => "symlink",
            Kind::Other => "special file",
        }
    }
}

impl Tool for Delete {
    const NAME: &'static str = "delete";
    const EFFECTS: Effects = Effects::READS.and(Effects::WRITES).and(Effects::DESTROYS);
    type Output = Deleted;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::writes([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<Deleted> {
        let path = call.writable(&self.path)?;
        if path.relative().as_os_str().is_empty() {
            return Err(Error::denied(format!("{path} is the workspace itself; delete what is in it instead")));
        }
        match call.host().remove(&path).await {
            Ok(kind) => Ok(Deleted { path: path.to_string(), kind }),
            Err(error) => Err(explain(call, &path, error).await),
        }
    }
}

impl From<Deleted> for Reply {
    fn from(it: Deleted) -> Self {
        format!("deleted {} {}", it.word(), it.path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::Delete;
    use crate::testing::{Data, Memory, call, call_on, says};

    #[tokio::test]
    async fn deletes_files_and_whole_folders() {
        let files = [("a.txt", "x"), ("src/a.rs", "x"), ("src/deep/b.rs", "x")];
        let (reply, left) = call::<Delete>(&files, r#"{"path": "src"}"#).await;
        says(&reply, "deleted directory src");
        assert_eq!(left.into_keys().collect::<Vec<_>>(), ["a.txt"]);
    }

    #[tokio::test]
    async fn deletes_a_link_and_not_its_target() {
        let memory = Memory::with(&[("real.txt", "old")]);
        memory.put("link.txt", Data::Link("real.txt".into()));
        says(&call_on::<Delete>(&memory, r#"{"path": "link.txt"}"#).await, "deleted symlink link.txt");
        assert_eq!(memory.bytes("real.txt"), b"old");
    }

    #[tokio::test]
    async fn never_deletes_the_workspace() {
        for path in [".", "/w", "a/.."] {
            let (reply, left) = call::<Delete>(&[("a.txt", "x")], &format!(r#"{{"path": "{path}"}}"#)).await;
            says(&reply, ". is the workspace itself; delete what is in it instead");
            assert_eq!(left.len(), 1);
        }
    }

    #[tokio::test]
    async fn says_what_is_there_instead() {
        let (reply, _) = call::<Delete>(&[("notes.txt", "x")], r#"{"path": "note.txt"}"#).await;
        says(&reply, "note.txt: no such file or folder. Did you mean notes.txt?");
    }
}
