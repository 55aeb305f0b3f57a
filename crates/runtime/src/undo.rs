//! Undo: a host that records the state of files before a turn changes them.
//!
//! It records only changes through file tools. Changes by commands can be listed, not undone.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use helve_contract::{
    Access, Error, FileErrorKind, Result, SafePath, Workspace, async_trait,
    ports::{
        BlobId, Blobs, ContentDigest, Expect, FileChange, FileKind, FindQuery, Host, HostLayer, IgnoreOptions,
        SortOrder, Span, WriteOutcome,
    },
};
use helve_tools::fs::diff::{self, Diff};

/// Larger files are not recorded.
const LARGEST: u64 = 256 << 20;
/// Larger content is stored as a blob, as is everything beyond the total.
const MAX_MEMORY_FILE: usize = 8 << 20;
const MAX_MEMORY_TOTAL: usize = 64 << 20;
/// Larger texts are not compared.
const MAX_DIFF_BYTES: usize = 1 << 20;
/// The maximum number of recorded turns, and of files in a turn.
const MAX_TURNS: usize = 20;
const MAX_FILES: usize = 2000;
/// The maximum number of files checked for changes by commands.
const MAX_SCANNED_FILES: usize = 200;

/// The recorded changes. The host and the undo command share it.
pub struct UndoLog {
    /// Where large files are kept.
    blobs: Arc<dyn Blobs>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    turns: Vec<Turn>,
    /// Changes that were not shown yet.
    unshown: Vec<FileDiff>,
}

struct Turn {
    started: SystemTime,
    files: Vec<SavedFile>,
    /// What could not be recorded, and why.
    unsaved: Vec<String>,
    in_memory: usize,
}

impl Turn {
    fn knows(&self, path: &SafePath) -> bool {
        self.files.iter().any(|file| file.path.host_path() == path.host_path())
    }
}

struct SavedFile {
    path: SafePath,
    before: Kept,
    /// The content after the turn; `None` if there is no file.
    after: Option<ContentDigest>,
}

/// The previous state of a file.
enum Kept {
    Absent,
    Bytes(Vec<u8>),
    /// It expires with other blobs when nobody uses it.
    Blob(BlobId),
}

/// One change, for people.
#[derive(Clone, Debug)]
pub struct FileDiff {
    /// The file, as the model knows it.
    pub display_path: String,
    /// What is different.
    pub diff: Diff,
}

/// The result of an undo.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// Restored files.
    pub restored: Vec<String>,
    /// Files that could not be restored, and why.
    pub skipped: Vec<String>,
    /// Files that changed without a file tool, possibly by commands.
    pub changed_elsewhere: Vec<String>,
}

impl UndoLog {
    /// Nothing remembered yet.
    pub fn new(blobs: Arc<dyn Blobs>) -> Arc<Self> {
        Arc::new(Self { blobs, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn begins.
    pub fn begin_turn(&self) {
        let mut inner = self.lock();
        if inner.turns.len() == MAX_TURNS {
            inner.turns.remove(0);
        }
        inner.turns.push(Turn { started: SystemTime::now(), files: Vec::new(), unsaved: Vec::new(), in_memory: 0 });
        inner.unshown.clear();
    }

    /// Drops all turns, because another session starts.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// The changes since this was last asked.
    pub fn take_diffs(&self) -> Vec<FileDiff> {
        std::mem::take(&mut self.lock().unshown)
    }

    /// Undoes the file changes of the last turn, unless the file has changed since. `None` if there is no turn.
    pub async fn undo(&self, host: &dyn Host, workspace: &Workspace) -> Option<UndoReport> {
        let turn = self.lock().turns.pop()?;
        let mut undone = UndoReport { skipped: turn.unsaved.clone(), ..UndoReport::default() };
        for file in turn.files.iter().rev() {
            match self.restore(host, file).await {
                Ok(()) => undone.restored.push(file.path.to_string()),
                Err(Error::File {
                    fault: FileErrorKind::Changed | FileErrorKind::Exists | FileErrorKind::Missing { .. },
                    ..
                }) => {
                    undone.skipped.push(format!("{}: it was changed after that turn; left as it is", file.path));
                }
                Err(error) => undone.skipped.push(format!("{}: {error}", file.path)),
            }
        }
        undone.changed_elsewhere = changed_elsewhere(host, workspace, &turn).await;
        Some(undone)
    }

    /// Records the state of a file once per turn, before it changes.
    async fn save_before(&self, path: &SafePath, before: std::result::Result<Option<Vec<u8>>, String>) {
        let before = match before {
            Ok(None) => Ok(Kept::Absent),
            Ok(Some(bytes)) => match self.fits(path, bytes.len()) {
                None => return,
                Some(true) => Ok(Kept::Bytes(bytes)),
                Some(false) => {
                    let stored = self.blobs.put(bytes).await;
                    stored.map(Kept::Blob).map_err(|error| format!("its content could not be stored: {error}"))
                }
            },
            Err(why) => Err(why),
        };
        self.insert(path, before);
        for id in self.stored() {
            // A missing blob is reported when it is needed.
            _ = self.blobs.touch(&id).await;
        }
    }

    /// Whether this many bytes stay in memory. `None` if the turn already has the file.
    fn fits(&self, path: &SafePath, size: usize) -> Option<bool> {
        let inner = self.lock();
        let turn = inner.turns.last()?;
        (!turn.knows(path)).then_some(size <= MAX_MEMORY_FILE && turn.in_memory + size <= MAX_MEMORY_TOTAL)
    }

    fn insert(&self, path: &SafePath, before: std::result::Result<Kept, String>) {
        let mut inner = self.lock();
        let Some(turn) = inner.turns.last_mut().filter(|turn| !turn.knows(path)) else { return };
        if turn.files.len() == MAX_FILES {
            turn.unsaved.push(format!("{path}: more than {MAX_FILES} files changed in one turn"));
            return;
        }
        match before {
            Ok(before) => {
                if let Kept::Bytes(bytes) = &before {
                    turn.in_memory += bytes.len();
                }
                turn.files.push(SavedFile { path: path.clone(), before, after: None });
            }
            Err(why) => turn.unsaved.push(format!("{path}: {why}")),
        }
    }

    /// The blobs that an undo needs.
    fn stored(&self) -> Vec<BlobId> {
        let inner = self.lock();
        let files = inner.turns.iter().flat_map(|turn| &turn.files);
        files.filter_map(|file| if let Kept::Blob(id) = file.before { Some(id) } else { None }).collect()
    }

    /// Restores a file, if it is still in the state that the turn left.
    async fn restore(&self, host: &dyn Host, file: &SavedFile) -> Result<()> {
        let path = file.path.in_same_root(file.path.relative(), Access::Write)?;
        let expect = file.after.map_or(Expect::Absent, Expect::Content);
        let stored;
        let bytes = match &file.before {
            Kept::Absent if file.after.is_none() => return Ok(()),
            Kept::Absent => return host.apply_changes(vec![FileChange::Remove { path, expect }]).await.map(drop),
            Kept::Bytes(bytes) => bytes,
            Kept::Blob(id) => {
                let found = self.blobs.get(id).await?;
                stored = found.ok_or_else(|| Error::failed("its content of before is no longer stored"))?;
                &stored
            }
        };
        host.write(&path, bytes, expect).await.map(drop)
    }

    /// Notes what a change left.
    fn record_after(&self, path: &SafePath, after: Option<&[u8]>) {
        let mut inner = self.lock();
        let Inner { turns, unshown: fresh } = &mut *inner;
        let Some(turn) = turns.last_mut() else { return };
        let Some(file) = turn.files.iter_mut().find(|file| file.path.host_path() == path.host_path()) else { return };
        file.after = after.map(ContentDigest::of);
        if fresh.len() < 50 {
            fresh.extend(diff_file(file, after));
        }
    }
}

/// The change as a diff, if both sides are text of limited size.
fn diff_file(file: &SavedFile, after: Option<&[u8]>) -> Option<FileDiff> {
    let before: &[u8] = match &file.before {
        Kept::Absent => &[],
        Kept::Bytes(bytes) => bytes,
        Kept::Blob(_) => return None,
    };
    let after = after.unwrap_or_default();
    if before.len() > MAX_DIFF_BYTES || after.len() > MAX_DIFF_BYTES {
        return None;
    }
    let diff = diff::diff(std::str::from_utf8(before).ok()?, std::str::from_utf8(after).ok()?);
    Some(FileDiff { display_path: file.path.to_string(), diff })
}

/// The newest files of the workspace that changed during a turn without its file tools.
async fn changed_elsewhere(host: &dyn Host, workspace: &Workspace, turn: &Turn) -> Vec<String> {
    let Ok(top) = workspace.primary_root(Access::Read) else { return Vec::new() };
    let noise = IgnoreOptions { ignored: false, hidden: false };
    let find = FindQuery {
        pattern: None,
        whole_path: false,
        kind: Some(FileKind::File),
        noise,
        order: SortOrder::Newest,
        limit: MAX_SCANNED_FILES,
    };
    let Ok(found) = host.find(&top, &find).await else { return Vec::new() };
    let mut changed = Vec::new();
    for file in found.files {
        let Ok(path) = top.in_same_root(&file.path, Access::Read) else { continue };
        let modified = host.stat(&path).await.ok().and_then(|it| it.modified);
        if modified.is_none_or(|it| it < turn.started) {
            break;
        }
        if !turn.files.iter().any(|known| known.path.host_path() == path.host_path()) {
            changed.push(path.to_string());
        }
    }
    changed
}

/// A host that remembers what its files were.
pub struct UndoHost {
    inner: Arc<dyn Host>,
    memory: Arc<UndoLog>,
}

impl UndoHost {
    /// The same host, with a memory.
    pub fn new(inner: Arc<dyn Host>, memory: Arc<UndoLog>) -> Self {
        Self { inner, memory }
    }

    /// Records the current state.
    async fn save_file(&self, path: &SafePath) {
        let before = match self.inner.read(path, Span::first(LARGEST + 1)).await {
            Ok(chunk) if chunk.size > LARGEST => Err(format!("it had {} bytes, more than is remembered", chunk.size)),
            Ok(chunk) => Ok(Some(chunk.bytes)),
            Err(Error::File { fault: FileErrorKind::Missing { .. }, .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        self.memory.save_before(path, before).await;
    }

    /// Records a directory before its removal, file by file.
    async fn save_dir(&self, path: &SafePath) -> Vec<SafePath> {
        let noise = IgnoreOptions { ignored: true, hidden: true };
        let find = FindQuery {
            pattern: None,
            whole_path: false,
            kind: Some(FileKind::File),
            noise,
            order: SortOrder::Path,
            limit: MAX_FILES,
        };
        let found = self.inner.find(path, &find).await.unwrap_or_default();
        let mut files = Vec::new();
        for file in found.files {
            if let Ok(file) = path.in_same_root(file.path, Access::Read) {
                self.save_file(&file).await;
                files.push(file);
            }
        }
        files
    }
}

#[async_trait]
impl HostLayer for UndoHost {
    fn inner(&self) -> &dyn Host {
        &*self.inner
    }
    async fn layered_write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        self.save_file(path).await;
        let written = self.inner.write(path, bytes, expect).await?;
        self.memory.record_after(path, Some(bytes));
        Ok(written)
    }
    async fn layered_change(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for change in &changes {
            let (path, after) = match change {
                FileChange::Write { path, bytes, .. } => (path, Some(bytes.clone())),
                FileChange::Remove { path, .. } => (path, None),
            };
            self.save_file(path).await;
            notes.push((path.clone(), after));
        }
        let remarks = self.inner.apply_changes(changes).await?;
        for (path, after) in notes {
            self.memory.record_after(&path, after.as_deref());
        }
        Ok(remarks)
    }
    async fn layered_remove(&self, path: &SafePath) -> Result<FileKind> {
        let files = match self.inner.stat(path).await {
            Ok(stat) if stat.kind == FileKind::Folder => self.save_dir(path).await,
            _ => {
                self.save_file(path).await;
                vec![path.clone()]
            }
        };
        let kind = self.inner.remove(path).await?;
        for file in files {
            self.memory.record_after(&file, None);
        }
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::PathBuf, time::Duration};

    use helve_contract::{PathRules, PathStyle, Root};
    use helve_hosts::LocalHost;
    use helve_store::FileBlobs;

    use super::*;

    struct Desk {
        top: PathBuf,
        workspace: Workspace,
        memory: Arc<UndoLog>,
        host: UndoHost,
    }

    impl Desk {
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap().keep().canonicalize().unwrap();
            let work = top.join("work");
            fs::create_dir(&work).unwrap();
            let workspace = Workspace::new([Root::writable(&work)], PathRules::default(), PathStyle::Relative);
            let memory = UndoLog::new(Arc::new(FileBlobs::at(&top.join("blobs"))));
            let host = UndoHost::new(Arc::new(LocalHost::new()), memory.clone());
            Self { top, workspace, memory, host }
        }

        fn path(&self, name: &str) -> SafePath {
            self.workspace.check(name.as_ref(), Access::Write, None).unwrap()
        }

        fn put(&self, name: &str, text: &str) {
            let file = self.top.join("work").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        fn get(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.top.join("work").join(name)).ok()
        }

        async fn write(&self, name: &str, text: &str) {
            self.host.write(&self.path(name), text.as_bytes(), Expect::Anything).await.unwrap();
        }
    }

    impl Drop for Desk {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.top);
        }
    }

    fn wait<T>(work: impl Future<Output = T>) -> T {
        crate::setup::runtime().unwrap().block_on(work)
    }

    #[test]
    fn the_last_turn_is_taken_back() {
        let desk = Desk::new();
        desk.put("edited", "one\n");
        desk.put("folder/gone", "deep\n");
        wait(async {
            desk.memory.begin_turn();
            desk.write("edited", "two\n").await;
            desk.write("edited", "three\n").await;
            desk.write("made", "new\n").await;
            desk.host.remove(&desk.path("folder")).await.unwrap();
            let fresh: Vec<_> =
                desk.memory.take_diffs().iter().map(|it| (it.display_path.clone(), it.diff.added)).collect();
            assert_eq!(fresh.len(), 4, "{fresh:?}");
            let undone = desk.memory.undo(&desk.host, &desk.workspace).await.unwrap();
            assert_eq!((undone.restored.len(), undone.skipped.len()), (3, 0), "{undone:?}");
            assert!(desk.memory.undo(&desk.host, &desk.workspace).await.is_none());
        });
        assert_eq!(desk.get("edited").as_deref(), Some("one\n"));
        assert_eq!(desk.get("folder/gone").as_deref(), Some("deep\n"));
        assert_eq!(desk.get("made"), None);
    }

    #[test]
    fn what_somebody_changed_since_is_left_alone() {
        let desk = Desk::new();
        desk.put("a", "one\n");
        wait(async {
            desk.memory.begin_turn();
            desk.write("a", "two\n").await;
            desk.put("a", "mine\n");
            desk.put("by-a-command", "x");
            let undone = desk.memory.undo(&desk.host, &desk.workspace).await.unwrap();
            assert_eq!(undone.restored, Vec::<String>::new());
            assert_eq!(undone.skipped, ["a: it was changed after that turn; left as it is"]);
            assert_eq!(undone.changed_elsewhere, ["by-a-command"]);
        });
        assert_eq!(desk.get("a").as_deref(), Some("mine\n"));
    }

    #[test]
    fn large_files_are_stored_as_blobs() {
        let desk = Desk::new();
        let blobs = FileBlobs::at(&desk.top.join("blobs"));
        let large = "x".repeat(MAX_MEMORY_FILE + 1);
        desk.put("large", &large);
        wait(async {
            desk.memory.begin_turn();
            desk.write("large", "small").await;
            assert!(blobs.has(&BlobId::of(large.as_bytes())).await.unwrap());
            let undone = desk.memory.undo(&desk.host, &desk.workspace).await.unwrap();
            assert_eq!(undone.restored, ["large"]);
        });
        assert_eq!(desk.get("large"), Some(large));
    }

    #[test]
    fn a_blob_that_is_gone_or_damaged_changes_no_file() {
        let desk = Desk::new();
        let blobs = FileBlobs::at(&desk.top.join("blobs"));
        desk.put("gone", &"x".repeat(MAX_MEMORY_FILE + 1));
        desk.put("damaged", &"y".repeat(MAX_MEMORY_FILE + 1));
        wait(async {
            desk.memory.begin_turn();
            desk.write("gone", "small").await;
            assert_eq!(blobs.remove_unreferenced(&HashSet::new(), Duration::ZERO).await.unwrap(), 1);
            desk.write("damaged", "small").await;
            let id = BlobId::of("y".repeat(MAX_MEMORY_FILE + 1).as_bytes());
            fs::write(desk.top.join("blobs/default").join(id.to_string()), "z").unwrap();
            let undone = desk.memory.undo(&desk.host, &desk.workspace).await.unwrap();
            assert_eq!(undone.restored, Vec::<String>::new());
            let told = undone.skipped.join("\n");
            assert!(told.contains("gone: its content of before is no longer stored"), "{told}");
            assert!(told.contains(&format!("damaged: the stored content {id} is damaged")), "{told}");
        });
        assert_eq!((desk.get("gone").as_deref(), desk.get("damaged").as_deref()), (Some("small"), Some("small")));
    }
}
