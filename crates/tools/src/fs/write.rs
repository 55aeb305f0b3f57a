//! `write`: writes a whole file.

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, Tool, ports::Expect, schemars,
    schemars::JsonSchema,
};
use serde::{Deserialize, Serialize};

/// Creates a file, or replaces one, with exactly this content. Missing folders are made.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteTool {
    /// File to write.
    pub path: String,
    /// All that it will hold.
    pub content: String,
}

/// How a file was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WriteOutput {
    /// The file, as the model knows it.
    pub path: String,
    /// Bytes written.
    pub bytes: usize,
    /// Lines written.
    pub lines: usize,
    /// It was not there before.
    pub created: bool,
}

impl Tool for WriteTool {
    const NAME: &'static str = "write";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::DESTROYS);
    type Output = WriteOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::writes([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<WriteOutput> {
        let path = call.check_write(&self.path)?;
        if path.relative().as_os_str().is_empty() || self.path.ends_with('/') {
            return Err(Error::file(&path, FileErrorKind::IsFolder));
        }
        let written = call.host().write(&path, self.content.as_bytes(), Expect::Anything).await?;
        call.remark(written.remarks);
        Ok(WriteOutput {
            path: path.to_string(),
            bytes: self.content.len(),
            lines: self.content.lines().count(),
            created: written.created,
        })
    }
}

impl From<WriteOutput> for Reply {
    fn from(it: WriteOutput) -> Self {
        format!("wrote {} bytes to {}", it.bytes, it.path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::WriteTool;
    use crate::testing::{FakeFile, FakeHost, assert_text, call, call_on};

    #[tokio::test]
    async fn writes_exactly_what_it_is_given() {
        let (reply, files) = call::<WriteTool>(&[], r#"{"path": "a/b.txt", "content": "one\r\ntwo\u0001é"}"#).await;
        assert_text(&reply, "wrote 11 bytes to a/b.txt");
        assert_eq!(files["a/b.txt"], "one\r\ntwo\u{1}é".as_bytes());
    }

    #[tokio::test]
    async fn writes_no_folder() {
        for path in ["src", ".", "new/"] {
            let (reply, _) =
                call::<WriteTool>(&[("src/a.rs", "")], &format!(r#"{{"path": "{path}", "content": "x"}}"#)).await;
            assert!(reply.text.ends_with("this is a folder, not a file; list it instead"), "{}", reply.text);
        }
    }

    #[tokio::test]
    async fn follows_a_link_and_keeps_it() {
        let memory = FakeHost::with(&[("real.txt", "old")]);
        memory.put("link.txt", FakeFile::Link("real.txt".into()));
        assert_text(
            &call_on::<WriteTool>(&memory, r#"{"path": "link.txt", "content": "new"}"#).await,
            "wrote 3 bytes to link.txt",
        );
        assert_eq!(memory.bytes("real.txt"), b"new");
    }
}
