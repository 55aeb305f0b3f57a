//! `memory_get`: lines of a memory file.

use std::time::Duration;

use helve_contract::{AccessRequest, Call, Effects, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::fs::{ReadOutput, ReadTool};

/// Reads lines of a memory file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MemoryGetTool {
    /// Which file.
    pub path: String,
    /// The first line, counted from 1.
    pub from: Option<u64>,
    /// How many lines.
    pub lines: Option<usize>,
}

impl Tool for MemoryGetTool {
    const NAME: &'static str = "memory_get";
    const EFFECTS: Effects = Effects::READS;
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = ReadOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<ReadOutput> {
        super::files::check(call, &self.path)?;
        let read = ReadTool { limit: self.lines, max_bytes: Some(51_200), ..ReadTool::new(self.path) };
        read.from_line(self.from.unwrap_or(1)).run(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryGetTool;
    use crate::testing::call;

    #[tokio::test]
    async fn reads_nothing_but_memory_files() {
        let files = [("MEMORY.md", "one\ntwo\nthree\n"), ("notes.md", "no")];
        for path in ["notes.md", "memory/../notes.md", "../../secrets", "/etc/passwd", "memory/x.txt"] {
            let (reply, _) = call::<MemoryGetTool>(&files, &format!(r#"{{"path": "{path}"}}"#)).await;
            assert!(reply.is_error, "{path}: {}", reply.text);
        }
        let (reply, _) = call::<MemoryGetTool>(&files, r#"{"path": "MEMORY.md", "from": 2, "lines": 1}"#).await;
        assert!(!reply.is_error && reply.text.contains("two") && !reply.text.contains("one"), "{}", reply.text);
    }
}
