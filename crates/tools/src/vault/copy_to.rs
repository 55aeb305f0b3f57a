//! `vault_copyto`: copies a file out of the vault in two steps, each with access to one side only.

use std::sync::atomic::{AtomicU64, Ordering};

use helve_contract::{
    Access, AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, Root, RootPermission, SafePath, Tool,
    Workspace,
    ports::{Expect, Span},
    schemars,
    schemars::JsonSchema,
    serde_json::{Value, json},
};
use serde::Deserialize;

use crate::fs::with_suggestions;

/// The largest file that is copied.
const MAX_FILE_BYTES: u64 = 50 << 20;

/// Copies a file out of the vault. A file that is there already is not overwritten.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VaultCopyTool {
    /// The file in the vault.
    pub source_path: String,
    /// Where its copy goes.
    pub destination_path: String,
}

/// A file that was copied.
#[derive(Clone, Debug, PartialEq)]
pub struct VaultCopyOutput {
    /// The file in the vault.
    pub source: String,
    /// Its copy.
    pub destination: String,
    /// Its size.
    pub bytes: usize,
    /// What was done, step by step.
    pub audit: Vec<Value>,
}

impl Tool for VaultCopyTool {
    const NAME: &'static str = "vault_copyto";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    type Output = VaultCopyOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest { reads: vec![self.source_path.clone()], ..AccessRequest::writes([&self.destination_path]) })
    }

    async fn run(self, call: &Call) -> Result<VaultCopyOutput> {
        static OPERATIONS: AtomicU64 = AtomicU64::new(0);
        let operation = OPERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        let (inside, outside) =
            (restrict_roots(call, VaultSide::Vault)?, restrict_roots(call, VaultSide::Destination)?);
        // Both paths are checked before anything is opened: a secret is not read needlessly.
        let source = inside.check(self.source_path.as_ref(), Access::Read, None)?;
        let destination = outside.check(self.destination_path.as_ref(), Access::Write, None)?;

        let audit = vec![
            audit_record(operation, VaultSide::Vault, &inside),
            audit_record(operation, VaultSide::Destination, &outside),
        ];
        let bytes = read(call, &source).await?;
        write(call, &destination, &bytes).await?;
        Ok(VaultCopyOutput {
            source: source.to_string(),
            destination: destination.to_string(),
            bytes: bytes.len(),
            audit,
        })
    }
}

/// The first step: only the vault is accessible.
async fn read(call: &Call, source: &SafePath) -> Result<Vec<u8>> {
    let file = match call.host().read(source, Span::first(MAX_FILE_BYTES)).await {
        Ok(file) => file,
        Err(error) => return Err(with_suggestions(call, source, error).await),
    };
    if file.size > MAX_FILE_BYTES {
        return Err(Error::file(source, FileErrorKind::TooLarge { bytes: file.size, limit: MAX_FILE_BYTES }));
    }
    Ok(file.bytes)
}

/// The second step: the vault is not accessible.
async fn write(call: &Call, destination: &SafePath, bytes: &[u8]) -> Result<()> {
    match call.host().write(destination, bytes, Expect::Absent).await {
        Ok(_) => Ok(()),
        Err(Error::File { fault: FileErrorKind::Exists, .. }) => Err(Error::failed(format!(
            "{destination} already exists and was left as it is; choose another name, or delete it first"
        ))),
        Err(other) => Err(other),
    }
}

/// The two sides of the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VaultSide {
    Vault,
    Destination,
}

/// The session's workspace with the roots of one side only.
fn restrict_roots(call: &Call, side: VaultSide) -> Result<Workspace> {
    let workspace = &call.session.workspace;
    let is_vault = |root: &Root| workspace.is_vault(root);
    let roots: Vec<Root> = workspace
        .roots()
        .iter()
        .filter(|root| match side {
            VaultSide::Vault => is_vault(root),
            VaultSide::Destination => !is_vault(root) && root.rights == RootPermission::Write,
        })
        .map(|root| (**root).clone())
        .collect();
    match (side, roots.is_empty()) {
        (VaultSide::Vault, true) => Err(Error::failed("this session has no vault")),
        (VaultSide::Destination, true) => Err(Error::denied("this session has no folder that may be written to")),
        (_, false) => Ok(Workspace::new(roots, workspace.rules().clone(), workspace.path_style())),
    }
}

/// What a step is allowed to reach, for the record of the call.
fn audit_record(operation: u64, side: VaultSide, workspace: &Workspace) -> Value {
    let (step, name, profile, access) = match side {
        VaultSide::Vault => (1, "vault_copyto_read", "VaultReadStep", "ro"),
        VaultSide::Destination => (2, "vault_copyto_write", "VaultWriteStep", "rw"),
    };
    let mounts: Vec<_> = workspace
        .roots()
        .iter()
        .map(|root| json!({"path": format!("/{}", root.name.as_deref().unwrap_or("shared")), "access": access}))
        .collect();
    json!({
        "request_id": format!("vault_copyto-{}", 2 * (operation - 1) + step),
        "operation_id": format!("vault-copyto-{operation}"),
        "operation": name,
        "tool_name": VaultCopyTool::NAME,
        "profile": profile,
        "mounts": mounts,
    })
}

impl From<VaultCopyOutput> for Reply {
    fn from(copied: VaultCopyOutput) -> Self {
        let text = format!("copied {} bytes from {} to {}", copied.bytes, copied.source, copied.destination);
        let notes = copied.audit.iter().map(|it| format!("audit {it}")).collect();
        Self { notes, ..text.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use helve_contract::{Entry, PathRules, PathStyle, Ports, Session};

    use super::*;
    use crate::testing::{FakeFile, FakeHost};

    /// A call where `/w/vault` is the vault, `/w/shared` and `/w/tmp` the rest.
    fn call(memory: &FakeHost) -> Call {
        let roots = [
            Root::writable("/w").with_name("shared"),
            Root::writable("/w/tmp").with_name("tmp"),
            Root::readable("/w").with_name("vault"),
        ];
        let workspace = Workspace::new(roots, PathRules::default(), PathStyle::Virtual);
        Call::new("1", Arc::new(Session::new("s", workspace, Ports::new(Arc::new(memory.clone())))))
    }

    async fn copy(memory: &FakeHost, from: &str, to: &str) -> Reply {
        let args = json!({"source_path": from, "destination_path": to});
        Entry::from_tool::<VaultCopyTool>().run(args, call(memory)).await.unwrap_or_else(Into::into)
    }

    #[tokio::test]
    async fn copies_any_bytes_and_says_what_each_step_could_reach() {
        let memory = FakeHost::of("key.bin", [0, 255, 1, 254]);
        let reply = copy(&memory, "/vault/key.bin", "/shared/out/key.bin").await;
        assert_eq!(reply.text, "copied 4 bytes from /vault/key.bin to /shared/out/key.bin");
        assert_eq!(memory.bytes("out/key.bin"), [0, 255, 1, 254]);
        let records: Vec<Value> =
            reply.notes.iter().map(|it| serde_json::from_str(it.strip_prefix("audit ").unwrap()).unwrap()).collect();
        assert_eq!(records[0]["operation_id"], records[1]["operation_id"]);
        assert_ne!(records[0]["request_id"], records[1]["request_id"]);
        assert_eq!(records[0]["mounts"], json!([{"path": "/vault", "access": "ro"}]));
        assert_eq!(
            records[1]["mounts"],
            json!([{"path": "/shared", "access": "rw"}, {"path": "/tmp", "access": "rw"}])
        );
    }

    #[tokio::test]
    async fn neither_side_can_stand_for_the_other() {
        let memory = FakeHost::with(&[("a", "secret"), ("b", "mine")]);
        for (from, to, told) in [
            ("/shared/a", "/tmp/x", "/shared/a is outside the workspace; paths must be beneath /vault"),
            ("/vault/a", "/vault/x", "/vault/x is outside the workspace; paths must be beneath /shared, /tmp"),
            (
                "/vault/../shared/a",
                "/tmp/x",
                "/vault/../shared/a is outside the workspace; paths must be beneath /vault",
            ),
            (
                "/vault/a",
                "/shared/b",
                "/shared/b already exists and was left as it is; choose another name, or delete it first",
            ),
            ("/vault/none", "/shared/c", "/vault/none: no such file or folder"),
        ] {
            let reply = copy(&memory, from, to).await;
            assert!(reply.is_error && reply.text.starts_with(told), "{}", reply.text);
        }
        assert_eq!(memory.bytes("b"), b"mine");
    }

    #[tokio::test]
    async fn a_file_that_is_too_large_stays() {
        let memory = FakeHost::default();
        memory.put("big", FakeFile::Repeated(b"x".to_vec(), MAX_FILE_BYTES + 1));
        let reply = copy(&memory, "/vault/big", "/shared/big2").await;
        assert_eq!(reply.text, "/vault/big: 52428801 bytes is more than the 52428800 that are handled here");
    }
}
