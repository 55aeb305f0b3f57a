//! `apply_patch`: many changes of many files, all of them or none.

use std::{collections::HashMap, path::PathBuf};

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileFault, Reply, Result, SafePath, Tool,
    ports::{Change, Expect, Kind, Span, Stamp},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    diff::{self, Diff},
    patch::{self, Act, Existing, Op},
};

/// Changes several files at once: all of the patch is applied, or nothing.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ApplyPatch {
    /// The patch: `*** Begin Patch` … `*** End Patch`, or a unified diff.
    pub patch: String,
}

/// What a patch did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchOut {
    /// Each file, in the order of the patch.
    pub files: Vec<Patched>,
    /// What was overlooked to make a hunk fit.
    pub notes: Vec<String>,
}

/// What a patch did to one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Patched {
    /// `A`dded, `M`odified, `D`eleted or `R`enamed.
    pub mark: char,
    /// The file.
    pub path: String,
    /// Where it was before it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Another file was there, and is gone.
    pub replaced: bool,
    /// Lines that came.
    pub added: usize,
    /// Lines that went.
    pub removed: usize,
    /// The change as a unified diff; empty where it is too large to be of use.
    pub diff: String,
}

/// The largest file that is patched.
const MOST: u64 = 64 << 20;
/// Lines of a diff that are still worth telling.
const LONG: usize = 5000;

impl Tool for ApplyPatch {
    const NAME: &'static str = "apply_patch";
    const EFFECTS: Effects = Effects::READS.and(Effects::WRITES).and(Effects::DESTROYS);
    type Output = PatchOut;

    fn access(&self) -> Option<AccessRequest> {
        // A patch that cannot be read changes nothing.
        let ops = patch::read(&self.patch).unwrap_or_default();
        let moved = |op: &Op| if let Act::Update { to: Some(to), .. } = &op.act { Some(to.clone()) } else { None };
        Some(AccessRequest::writes(ops.iter().flat_map(|op| [Some(op.path.clone()), moved(op)]).flatten()))
    }

    async fn run(self, call: &Call) -> Result<PatchOut> {
        let ops = patch::read(&self.patch)?;
        let mut stage = Stage { call, slots: Vec::new(), by_path: HashMap::new() };
        let mut out = PatchOut { files: Vec::new(), notes: Vec::new() };
        for op in ops {
            call.still_wanted()?;
            stage.apply(op, &mut out).await?;
        }
        let changes = stage.changes();
        if !changes.is_empty() {
            call.remark(call.host().change(changes).await?);
        }
        Ok(out)
    }
}

/// A file as it was and as it will be.
struct Slot {
    path: SafePath,
    before: Before,
    stamp: Stamp,
    now: Now,
    like: Option<SafePath>,
}

enum Before {
    Absent,
    Bytes(Vec<u8>),
    /// Too large to be read; it can only be replaced or removed.
    Unread(u64),
}

enum Now {
    /// As before.
    Same,
    Gone,
    Bytes(Vec<u8>),
}

impl Slot {
    /// What will be in the file; nothing of one that was not read. `None`: it will not be there.
    fn content(&self) -> Option<&[u8]> {
        match (&self.now, &self.before) {
            (Now::Bytes(bytes), _) | (Now::Same, Before::Bytes(bytes)) => Some(bytes),
            (Now::Same, Before::Unread(_)) => Some(&[]),
            (Now::Same, Before::Absent) | (Now::Gone, _) => None,
        }
    }
}

/// The files of a patch. Nothing reaches the host before all of it fits.
struct Stage<'a> {
    call: &'a Call,
    slots: Vec<Slot>,
    by_path: HashMap<PathBuf, usize>,
}

impl Stage<'_> {
    /// The place of a file on the stage; it is read when it is first named.
    async fn slot(&mut self, name: &str) -> Result<usize> {
        let path = self.call.writable(name)?;
        if path.relative().as_os_str().is_empty() || name.ends_with('/') {
            return Err(Error::file(&path, FileFault::IsFolder));
        }
        if let Some(at) = self.by_path.get(&path.on_host()) {
            return Ok(*at);
        }
        let (before, stamp) = self.before(&path).await?;
        self.only_once(&path, &before, stamp)?;
        self.by_path.insert(path.on_host(), self.slots.len());
        self.slots.push(Slot { path, before, stamp, now: Now::Same, like: None });
        Ok(self.slots.len() - 1)
    }

    async fn before(&self, path: &SafePath) -> Result<(Before, Stamp)> {
        let stat = match self.call.host().stat(path).await {
            Ok(stat) => stat,
            Err(Error::File { fault: FileFault::Missing { .. }, .. }) => return Ok((Before::Absent, Stamp::default())),
            Err(error) => return Err(error),
        };
        match stat.kind {
            Kind::File => {}
            Kind::Folder => return Err(Error::file(path, FileFault::IsFolder)),
            Kind::Link | Kind::Other => return Err(Error::file(path, FileFault::NotRegular)),
        }
        let chunk = self.call.host().read(path, Span::first(if stat.size > MOST { 0 } else { MOST })).await?;
        let before = if chunk.size > MOST { Before::Unread(chunk.size) } else { Before::Bytes(chunk.bytes) };
        Ok((before, chunk.stamp))
    }

    /// Refuses a file that is on the stage by another name, through a link: one of two changes would be lost.
    fn only_once(&self, path: &SafePath, before: &Before, stamp: Stamp) -> Result<()> {
        let told = stamp.0.iter().filter(|it| **it != 0).count() >= 2;
        let same = |slot: &&Slot| match (&slot.before, before) {
            (Before::Bytes(a), Before::Bytes(b)) => slot.stamp == stamp && a == b,
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

    async fn apply(&mut self, op: Op, out: &mut PatchOut) -> Result<()> {
        let at = self.slot(&op.path).await?;
        let shown = self.slots[at].path.to_string();
        match op.act {
            Act::Add { text, existing } => {
                let old = self.slots[at].content();
                if old.is_some() && existing == Existing::Refused {
                    return Err(Error::file(shown, FileFault::Exists));
                }
                let diff = compared(old.unwrap_or_default(), text.as_bytes(), None);
                let names = if old.is_some() { Diff::unified } else { Diff::created };
                out.tell('A', &shown, &diff, names).replaced = old.is_some();
                self.slots[at].now = Now::Bytes(text.into_bytes());
            }
            Act::Delete { hunks } => {
                let old = self.present(at).await?;
                if !hunks.is_empty() && !patch::apply(&shown, self.readable(at, old)?, &hunks)?.bytes.is_empty() {
                    return Err(Error::failed(format!(
                        "{shown}: the patch deletes the file but not all of its lines; nothing was changed"
                    )));
                }
                out.tell('D', &shown, &compared(old, &[], None), Diff::deleted);
                self.slots[at].now = Now::Gone;
            }
            Act::Update { to, hunks } => {
                let old = self.readable(at, self.present(at).await?)?;
                let changed = patch::apply(&shown, old, &hunks)?;
                let diff = compared(old, &changed.bytes, Some(changed.changes));
                out.notes.extend(changed.notes);
                let target = match &to {
                    Some(to) => self.slot(to).await?,
                    None => at,
                };
                if target == at {
                    out.tell('M', &shown, &diff, Diff::unified);
                } else {
                    let to = self.slots[target].path.to_string();
                    let told = out.tell('R', &to, &diff, Diff::unified);
                    told.replaced = self.slots[target].content().is_some();
                    told.from = Some(shown);
                    self.slots[at].now = Now::Gone;
                    self.slots[target].like = Some(self.slots[at].path.clone());
                }
                self.slots[target].now = Now::Bytes(changed.bytes);
            }
        }
        Ok(())
    }

    /// The content of a file that must be there.
    async fn present(&self, at: usize) -> Result<&[u8]> {
        let slot = &self.slots[at];
        match (slot.content(), &slot.before) {
            (Some(bytes), _) => Ok(bytes),
            (None, Before::Absent) => {
                let missing = Error::file(&slot.path, FileFault::Missing { near: Vec::new() });
                Err(super::explain(self.call, &slot.path, missing).await)
            }
            (None, _) => Err(Error::failed(format!("{}: an earlier part of the patch took it away", slot.path))),
        }
    }

    fn readable<'b>(&self, at: usize, bytes: &'b [u8]) -> Result<&'b [u8]> {
        match &self.slots[at] {
            Slot { before: Before::Unread(size), path, .. } if bytes.is_empty() => {
                Err(Error::file(path, FileFault::TooLarge { bytes: *size, limit: MOST }))
            }
            _ => Ok(bytes),
        }
    }

    /// What the host has to do, with what must still be there when it does.
    fn changes(self) -> Vec<Change> {
        let changes = self.slots.into_iter().filter_map(|slot| {
            let Slot { path, before, now, like, .. } = slot;
            let expect = match &before {
                Before::Absent => Expect::Absent,
                Before::Bytes(bytes) => Expect::bytes(bytes),
                Before::Unread(_) => Expect::Anything,
            };
            match (before, now) {
                (_, Now::Same) | (Before::Absent, Now::Gone) => None,
                (Before::Bytes(old), Now::Bytes(new)) if old == new && like.is_none() => None,
                (_, Now::Bytes(bytes)) => Some(Change::Write { path, bytes, expect, like }),
                (_, Now::Gone) => Some(Change::Remove { path, expect }),
            }
        });
        changes.collect()
    }
}

/// What is different between two files; quickly told where the changes are known.
fn compared(old: &[u8], new: &[u8], changes: Option<Vec<diff::Change>>) -> Diff {
    match (std::str::from_utf8(old), std::str::from_utf8(new), changes) {
        (Ok(old), Ok(new), Some(changes)) => diff::across(old, new, changes),
        _ => diff::between(&String::from_utf8_lossy(old), &String::from_utf8_lossy(new)),
    }
}

impl PatchOut {
    fn tell(&mut self, mark: char, path: &str, diff: &Diff, shown: fn(&Diff, &str) -> String) -> &mut Patched {
        let Diff { added, removed, .. } = *diff;
        let diff = if added + removed > LONG { String::new() } else { shown(diff, path) };
        let path = path.to_owned();
        self.files.push_mut(Patched { mark, path, from: None, replaced: false, added, removed, diff })
    }
}

impl From<PatchOut> for Reply {
    /// `A path`, `M path`, `D path` or `R old -> new`, a line each.
    fn from(out: PatchOut) -> Self {
        let line = |file: &Patched| {
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
