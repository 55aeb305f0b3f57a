//! `apply_patch`: changes of many files, all or none.

use std::{collections::HashMap, path::PathBuf};

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, SafePath, Tool,
    ports::{Expect, FileChange, FileKind, FileStamp, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    diff::{self, Diff},
    patch::{self, FileAction, FileOp, OnExisting},
};

/// Changes several files at once: all of the patch is applied, or nothing.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ApplyPatchTool {
    /// The patch: `*** Begin Patch` … `*** End Patch`, or a unified diff.
    pub patch: String,
}

/// The result of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyPatchOutput {
    /// Each file, in the order of the patch.
    pub files: Vec<PatchedFile>,
    /// Notes about tolerated differences.
    pub notes: Vec<String>,
}

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchedFile {
    /// `A`dded, `M`odified, `D`eleted or `R`enamed.
    pub mark: char,
    /// The file.
    pub path: String,
    /// The former path of a moved file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whether it replaced another file.
    pub replaced: bool,
    /// Added lines.
    pub added: usize,
    /// Removed lines.
    pub removed: usize,
    /// The change as a unified diff; empty if it is too large.
    pub diff: String,
}

const MAX_FILE_BYTES: u64 = 64 << 20;
/// The maximum number of diff lines in the result.
const MAX_DIFF_LINES: usize = 5000;

impl Tool for ApplyPatchTool {
    const NAME: &'static str = "apply_patch";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::DESTROYS);
    type Output = ApplyPatchOutput;

    fn access(&self) -> Option<AccessRequest> {
        // An invalid patch changes nothing.
        let ops = patch::parse(&self.patch).unwrap_or_default();
        let moved =
            |op: &FileOp| if let FileAction::Update { to: Some(to), .. } = &op.act { Some(to.clone()) } else { None };
        Some(AccessRequest::writes(ops.iter().flat_map(|op| [Some(op.path.clone()), moved(op)]).flatten()))
    }

    async fn run(self, call: &Call) -> Result<ApplyPatchOutput> {
        let ops = patch::parse(&self.patch)?;
        let mut stage = PatchTransaction { call, slots: Vec::new(), by_path: HashMap::new() };
        let mut out = ApplyPatchOutput { files: Vec::new(), notes: Vec::new() };
        for op in ops {
            call.check_cancelled()?;
            stage.apply(op, &mut out).await?;
        }
        let changes = stage.changes();
        if !changes.is_empty() {
            call.remark(call.host().apply_changes(changes).await?);
        }
        Ok(out)
    }
}

/// A file before and after the patch.
struct StagedFile {
    path: SafePath,
    before: OriginalContent,
    stamp: FileStamp,
    now: StagedContent,
    like: Option<SafePath>,
}

enum OriginalContent {
    Absent,
    Bytes(Vec<u8>),
    /// Too large to read; it can only be replaced or removed.
    Unread(u64),
}

enum StagedContent {
    /// As before.
    Unchanged,
    Removed,
    Bytes(Vec<u8>),
}

impl StagedFile {
    /// The new content; empty for a file that was not read, `None` for a removed one.
    fn content(&self) -> Option<&[u8]> {
        match (&self.now, &self.before) {
            (StagedContent::Bytes(bytes), _) | (StagedContent::Unchanged, OriginalContent::Bytes(bytes)) => Some(bytes),
            (StagedContent::Unchanged, OriginalContent::Unread(_)) => Some(&[]),
            (StagedContent::Unchanged, OriginalContent::Absent) | (StagedContent::Removed, _) => None,
        }
    }
}

/// The files of a patch. Nothing reaches the host before every hunk fits.
struct PatchTransaction<'a> {
    call: &'a Call,
    slots: Vec<StagedFile>,
    by_path: HashMap<PathBuf, usize>,
}

impl PatchTransaction<'_> {
    /// The index of a staged file; reads it when it is first named.
    async fn stage(&mut self, name: &str) -> Result<usize> {
        let path = self.call.check_write(name)?;
        if path.relative().as_os_str().is_empty() || name.ends_with('/') {
            return Err(Error::file(&path, FileErrorKind::IsFolder));
        }
        if let Some(at) = self.by_path.get(&path.host_path()) {
            return Ok(*at);
        }
        let (before, stamp) = self.before(&path).await?;
        self.reject_alias(&path, &before, stamp)?;
        self.by_path.insert(path.host_path(), self.slots.len());
        self.slots.push(StagedFile { path, before, stamp, now: StagedContent::Unchanged, like: None });
        Ok(self.slots.len() - 1)
    }

    async fn before(&self, path: &SafePath) -> Result<(OriginalContent, FileStamp)> {
        let stat = match self.call.host().stat(path).await {
            Ok(stat) => stat,
            Err(Error::File { fault: FileErrorKind::Missing { .. }, .. }) => {
                return Ok((OriginalContent::Absent, FileStamp::default()));
            }
            Err(error) => return Err(error),
        };
        match stat.kind {
            FileKind::File => {}
            FileKind::Folder => return Err(Error::file(path, FileErrorKind::IsFolder)),
            FileKind::Link | FileKind::Other => return Err(Error::file(path, FileErrorKind::NotRegular)),
        }
        let chunk = self
            .call
            .host()
            .read(path, Span::first(if stat.size > MAX_FILE_BYTES { 0 } else { MAX_FILE_BYTES }))
            .await?;
        let before = if chunk.size > MAX_FILE_BYTES {
            OriginalContent::Unread(chunk.size)
        } else {
            OriginalContent::Bytes(chunk.bytes)
        };
        Ok((before, chunk.stamp))
    }

    /// Refuses a file that is staged under another name through a link: one change would be lost.
    fn reject_alias(&self, path: &SafePath, before: &OriginalContent, stamp: FileStamp) -> Result<()> {
        let told = stamp.0.iter().filter(|it| **it != 0).count() >= 2;
        let same = |slot: &&StagedFile| match (&slot.before, before) {
            (OriginalContent::Bytes(a), OriginalContent::Bytes(b)) => slot.stamp == stamp && a == b,
            _ => false,
        };
        match self.slots.iter().find(same).filter(|_| told) {
            Some(other) => Err(Error::failed(format!(
                "{path} and {} are one file; change it under one name. Nothing was changed.",
                other.path
            ))),
            None => Ok(()),
        }
    }

    async fn apply(&mut self, op: FileOp, out: &mut ApplyPatchOutput) -> Result<()> {
        let at = self.stage(&op.path).await?;
        let shown = self.slots[at].path.to_string();
        match op.act {
            FileAction::Add { text, existing } => {
                let old = self.slots[at].content();
                if old.is_some() && existing == OnExisting::Refuse {
                    return Err(Error::file(shown, FileErrorKind::Exists));
                }
                let diff = diff_contents(old.unwrap_or_default(), text.as_bytes(), None);
                let names = if old.is_some() { Diff::unified } else { Diff::created };
                out.record('A', &shown, &diff, names).replaced = old.is_some();
                self.slots[at].now = StagedContent::Bytes(text.into_bytes());
            }
            FileAction::Delete { hunks } => {
                let old = self.require_content(at).await?;
                if !hunks.is_empty() && !patch::apply(&shown, self.readable(at, old)?, &hunks)?.bytes.is_empty() {
                    return Err(Error::failed(format!(
                        "{shown}: the patch deletes the file but not all of its lines; nothing was changed"
                    )));
                }
                out.record('D', &shown, &diff_contents(old, &[], None), Diff::deleted);
                self.slots[at].now = StagedContent::Removed;
            }
            FileAction::Update { to, hunks } => {
                let old = self.readable(at, self.require_content(at).await?)?;
                let changed = patch::apply(&shown, old, &hunks)?;
                let diff = diff_contents(old, &changed.bytes, Some(changed.changes));
                out.notes.extend(changed.notes);
                let target = match &to {
                    Some(to) => self.stage(to).await?,
                    None => at,
                };
                if target == at {
                    out.record('M', &shown, &diff, Diff::unified);
                } else {
                    let to = self.slots[target].path.to_string();
                    let told = out.record('R', &to, &diff, Diff::unified);
                    told.replaced = self.slots[target].content().is_some();
                    told.from = Some(shown);
                    self.slots[at].now = StagedContent::Removed;
                    self.slots[target].like = Some(self.slots[at].path.clone());
                }
                self.slots[target].now = StagedContent::Bytes(changed.bytes);
            }
        }
        Ok(())
    }

    /// The content of a file that must exist.
    async fn require_content(&self, at: usize) -> Result<&[u8]> {
        let slot = &self.slots[at];
        match (slot.content(), &slot.before) {
            (Some(bytes), _) => Ok(bytes),
            (None, OriginalContent::Absent) => {
                let missing = Error::file(&slot.path, FileErrorKind::Missing { near: Vec::new() });
                Err(super::with_suggestions(self.call, &slot.path, missing).await)
            }
            (None, _) => Err(Error::failed(format!("{}: an earlier part of the patch took it away", slot.path))),
        }
    }

    fn readable<'b>(&self, at: usize, bytes: &'b [u8]) -> Result<&'b [u8]> {
        match &self.slots[at] {
            StagedFile { before: OriginalContent::Unread(size), path, .. } if bytes.is_empty() => {
                Err(Error::file(path, FileErrorKind::TooLarge { bytes: *size, limit: MAX_FILE_BYTES }))
            }
            _ => Ok(bytes),
        }
    }

    /// The changes for the host, with the expected contents.
    fn changes(self) -> Vec<FileChange> {
        let changes = self.slots.into_iter().filter_map(|slot| {
            let StagedFile { path, before, now, like, .. } = slot;
            let expect = match &before {
                OriginalContent::Absent => Expect::Absent,
                OriginalContent::Bytes(bytes) => Expect::bytes(bytes),
                OriginalContent::Unread(_) => Expect::Anything,
            };
            match (before, now) {
                (_, StagedContent::Unchanged) | (OriginalContent::Absent, StagedContent::Removed) => None,
                (OriginalContent::Bytes(old), StagedContent::Bytes(new)) if old == new && like.is_none() => None,
                (_, StagedContent::Bytes(bytes)) => Some(FileChange::Write { path, bytes, expect, like }),
                (_, StagedContent::Removed) => Some(FileChange::Remove { path, expect }),
            }
        });
        changes.collect()
    }
}

/// The diff between two contents; fast if the changes are known.
fn diff_contents(old: &[u8], new: &[u8], changes: Option<Vec<diff::ByteChange>>) -> Diff {
    match (std::str::from_utf8(old), std::str::from_utf8(new), changes) {
        (Ok(old), Ok(new), Some(changes)) => diff::diff_with_known_changes(old, new, changes),
        _ => diff::diff(&String::from_utf8_lossy(old), &String::from_utf8_lossy(new)),
    }
}

impl ApplyPatchOutput {
    fn record(&mut self, mark: char, path: &str, diff: &Diff, shown: fn(&Diff, &str) -> String) -> &mut PatchedFile {
        let Diff { added, removed, .. } = *diff;
        let diff = if added + removed > MAX_DIFF_LINES { String::new() } else { shown(diff, path) };
        let path = path.to_owned();
        self.files.push_mut(PatchedFile { mark, path, from: None, replaced: false, added, removed, diff })
    }
}

impl From<ApplyPatchOutput> for Reply {
    /// `A path`, `M path`, `D path` or `R old -> new`, a line each.
    fn from(out: ApplyPatchOutput) -> Self {
        let line = |file: &PatchedFile| {
            let replaced = if file.replaced { " (replaced)" } else { "" };
            match &file.from {
                Some(from) => format!("{} {from} -> {}{replaced}", file.mark, file.path),
                None => format!("{} {}{replaced}", file.mark, file.path),
            }
        };
        let mut lines: Vec<String> = out.files.iter().map(line).collect();
        lines.extend(out.notes.iter().map(|note| format!("note: {note}")));
        let data = json!({ "files": out.files, "notes": out.notes });
        Self { data: Some(data), ..lines.join("\n").into() }
    }
}
