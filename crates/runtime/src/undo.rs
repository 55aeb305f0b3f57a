//! Undo: a host that remembers what a file was before a turn changed it.
//!
//! Only changes through the file tools are seen. What a command changed can be listed, not taken back.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use helve_contract::{
    Access, Error, FileFault, Result, SafePath, Workspace, async_trait,
    ports::{BlobId, Blobs, Change, Content, Expect, Find, Host, HostLayer, Kind, Noise, Order, Span, Written},
};
use helve_tools::fs::diff::{self, Diff};

/// A file that is larger is not remembered.
const LARGEST: u64 = 256 << 20;
/// Content that is larger than this is stored as a blob, and so is everything past the sum.
const IN_MEMORY: usize = 8 << 20;
const IN_MEMORY_ALL: usize = 64 << 20;
/// Texts that are larger are not compared.
const COMPARED: usize = 1 << 20;
/// How many turns are remembered, and how many files of one.
const TURNS: usize = 20;
const FILES: usize = 2000;
/// How many files are looked at for changes that commands made.
const LOOKED_AT: usize = 200;

/// What the turns changed. Shared by the host that notices and the program that takes back.
pub struct Memory {
    /// Where large files are kept.
    blobs: Arc<dyn Blobs>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    turns: Vec<Turn>,
    /// Changes that nobody has shown yet.
    fresh: Vec<Changed>,
}

struct Turn {
    began: SystemTime,
    files: Vec<Remembered>,
    /// What could not be remembered, and why.
    lost: Vec<String>,
    in_memory: usize,
}

impl Turn {
    fn knows(&self, path: &SafePath) -> bool {
        self.files.iter().any(|file| file.path.on_host() == path.on_host())
    }
}

struct Remembered {
    path: SafePath,
    before: Kept,
    /// The content that the turn left; `None`: no file.
    after: Option<Content>,
}

/// What a file was.
enum Kept {
    Absent,
    Bytes(Vec<u8>),
    /// It expires with other blobs when nobody uses it.
    Blob(BlobId),
}

/// One change, for people.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The file, as the model knows it.
    pub shown: String,
    /// What is different.
    pub diff: Diff,
}

/// What an undo did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Files that are as before.
    pub restored: Vec<String>,
    /// Files that are not, and why.
    pub skipped: Vec<String>,
    /// Files that changed meanwhile, though not through a file tool: commands may have.
    pub others: Vec<String>,
}

impl Memory {
    /// Nothing remembered yet.
    pub fn new(blobs: Arc<dyn Blobs>) -> Arc<Self> {
        Arc::new(Self { blobs, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn begins.
    pub fn begin(&self) {
        let mut inner = self.lock();
        if inner.turns.len() == TURNS {
            inner.turns.remove(0);
        }
        inner.turns.push(Turn { began: SystemTime::now(), files: Vec::new(), lost: Vec::new(), in_memory: 0 });
        inner.fresh.clear();
    }

    /// Forgets all turns: another conversation begins.
    pub fn forget(&self) {
        *self.lock() = Inner::default();
    }

    /// The changes since this was last asked.
    pub fn fresh(&self) -> Vec<Changed> {
        std::mem::take(&mut self.lock().fresh)
    }

    /// Takes the last turn's changes of files back, where nothing else has changed the file since. `None`: no turn.
    pub async fn undo(&self, host: &dyn Host, workspace: &Workspace) -> Option<Undone> {
        let turn = self.lock().turns.pop()?;
        let mut undone = Undone { skipped: turn.lost.clone(), ..Undone::default() };
        for file in turn.files.iter().rev() {
            match self.restore(host, file).await {
                Ok(()) => undone.restored.push(file.path.to_string()),
                Err(Error::File {
                    fault: FileFault::Changed | FileFault::Exists | FileFault::Missing { .. }, ..
                }) => {
                    undone.skipped.push(format!("{}: it was changed after that turn; left as it is", file.path));
                }
                Err(error) => undone.skipped.push(format!("{}: {error}", file.path)),
            }
        }
        undone.others = changed_since(host, workspace, &turn).await;
        Some(undone)
    }

    /// Remembers what a file was, once a turn, before it is changed.
    async fn remember(&self, path: &SafePath, before: std::result::Result<Option<Vec<u8>>, String>) {
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
            // A blob that is gone is reported when it is needed.
            _ = self.blobs.touch(&id).await;
        }
    }

    /// Whether so many bytes stay in memory. `None`: they are not needed, because the turn knows the file already.
    fn fits(&self, path: &SafePath, size: usize) -> Option<bool> {
        let inner = self.lock();
        let turn = inner.turns.last()?;
        (!turn.knows(path)).then_some(size <= IN_MEMORY && turn.in_memory + size <= IN_MEMORY_ALL)
    }

    fn insert(&self, path: &SafePath, before: std::result::Result<Kept, String>) {
        let mut inner = self.lock();
        let Some(turn) = inner.turns.last_mut().filter(|turn| !turn.knows(path)) else { return };
        if turn.files.len() == FILES {
            turn.lost.push(format!("{path}: more than {FILES} files changed in one turn"));
            return;
        }
        match before {
            Ok(before) => {
                if let Kept::Bytes(bytes) = &before {
                    turn.in_memory += bytes.len();
                }
                turn.files.push(Remembered { path: path.clone(), before, after: None });
            }
            Err(why) => turn.lost.push(format!("{path}: {why}")),
        }
    }

    /// The blobs that an undo needs.
    fn stored(&self) -> Vec<BlobId> {
        let inner = self.lock();
        let files = inner.turns.iter().flat_map(|turn| &turn.files);
        files.filter_map(|file| if let Kept::Blob(id) = file.before { Some(id) } else { None }).collect()
    }

    /// Puts a file back to what it was, if it still is what the turn left.
    async fn restore(&self, host: &dyn Host, file: &Remembered) -> Result<()> {
        let path = file.path.beside(file.path.relative(), Access::Write)?;
        let expect = file.after.map_or(Expect::Absent, Expect::Content);
        let stored;
        let bytes = match &file.before {
            Kept::Absent if file.after.is_none() => return Ok(()),
            Kept::Absent => return host.change(vec![Change::Remove { path, expect }]).await.map(drop),
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
    fn note(&self, path: &SafePath, after: Option<&[u8]>) {
        let mut inner = self.lock();
        let Inner { turns, fresh } = &mut *inner;
        let Some(turn) = turns.last_mut() else { return };
        let Some(file) = turn.files.iter_mut().find(|file| file.path.on_host() == path.on_host()) else { return };
        file.after = after.map(Content::of);
        if fresh.len() < 50 {
            fresh.extend(compare(file, after));
        }
    }
}

/// The change as a diff, where both sides are text of a bearable size.
fn compare(file: &Remembered, after: Option<&[u8]>) -> Option<Changed> {
    let before: &[u8] = match &file.before {
        Kept::Absent => &[],
        Kept::Bytes(bytes) => bytes,
        Kept::Blob(_) => return None,
    };
    let after = after.unwrap_or_default();
    if before.len() > COMPARED || after.len() > COMPARED {
        return None;
    }
    let diff = diff::between(std::str::from_utf8(before).ok()?, std::str::from_utf8(after).ok()?);
    Some(Changed { shown: file.path.to_string(), diff })
}

/// The newest files of the workspace that changed during a turn and are not its own.
async fn changed_since(host: &dyn Host, workspace: &Workspace, turn: &Turn) -> Vec<String> {
    let Ok(top) = workspace.top(Access::Read) else { return Vec::new() };
    let noise = Noise { ignored: false, hidden: false };
    let find = Find {
        pattern: None,
        whole_path: false,
        kind: Some(Kind::File),
        noise,
        order: Order::Newest,
        limit: LOOKED_AT,
    };
    let Ok(found) = host.find(&top, &find).await else { return Vec::new() };
    let mut changed = Vec::new();
    for file in found.files {
        let Ok(path) = top.beside(&file.path, Access::Read) else { continue };
        let modified = host.stat(&path).await.ok().and_then(|it| it.modified);
        if modified.is_none_or(|it| it < turn.began) {
            break;
        }
        if !turn.files.iter().any(|known| known.path.on_host() == path.on_host()) {
            changed.push(path.to_string());
        }
    }
    changed
}

/// A host that remembers what its files were.
pub struct Remembering {
    inner: Arc<dyn Host>,
    memory: Arc<Memory>,
}

impl Remembering {
    /// The same host, with a memory.
    pub fn new(inner: Arc<dyn Host>, memory: Arc<Memory>) -> Self {
        Self { inner, memory }
    }

    /// Remembers what is there now.
    async fn look(&self, path: &SafePath) {
        let before = match self.inner.read(path, Span::first(LARGEST + 1)).await {
            Ok(chunk) if chunk.size > LARGEST => Err(format!("it had {} bytes, more than is remembered", chunk.size)),
            Ok(chunk) => Ok(Some(chunk.bytes)),
            Err(Error::File { fault: FileFault::Missing { .. }, .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        self.memory.remember(path, before).await;
    }

    /// Remembers a folder that is about to go, file by file.
    async fn look_beneath(&self, path: &SafePath) -> Vec<SafePath> {
        let noise = Noise { ignored: true, hidden: true };
        let find =
            Find { pattern: None, whole_path: false, kind: Some(Kind::File), noise, order: Order::Path, limit: FILES };
        let found = self.inner.find(path, &find).await.unwrap_or_default();
        let mut files = Vec::new();
        for file in found.files {
            if let Ok(file) = path.beside(file.path, Access::Read) {
                self.look(&file).await;
                files.push(file);
            }
        }
        files
    }
}

#[async_trait]
impl HostLayer for Remembering {
    fn inner(&self) -> &dyn Host {
        &*self.inner
    }
    async fn layered_write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
        self.look(path).await;
        let written = self.inner.write(path, bytes, expect).await?;
        self.memory.note(path, Some(bytes));
        Ok(written)
    }
    async fn layered_change(&self, changes: Vec<Change>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for change in &changes {
            let (path, after) = match change {
                Change::Write { path, bytes, .. } => (path, Some(bytes.clone())),
                Change::Remove { path, .. } => (path, None),
            };
            self.look(path).await;
            notes.push((path.clone(), after));
        }
        let remarks = self.inner.change(changes).await?;
        for (path, after) in notes {
            self.memory.note(&path, after.as_deref());
        }
        Ok(remarks)
    }
    async fn layered_remove(&self, path: &SafePath) -> Result<Kind> {
        let files = match self.inner.stat(path).await {
            Ok(stat) if stat.kind == Kind::Folder => self.look_beneath(path).await,
            _ => {
                self.look(path).await;
                vec![path.clone()]
            }
        };
        let kind = self.inner.remove(path).await?;
        for file in files {
            self.memory.note(&file, None);
        }
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::PathBuf, time::Duration};

    use helve_contract::{PathRules, Reading, Root};
    use helve_hosts::Local;
    use helve_store::FileBlobs;

    use super::*;

    struct Desk {
        top: PathBuf,
        workspace: Workspace,
        memory: Arc<Memory>,
        host: Remembering,
    }

    impl Desk {
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap().keep().canonicalize().unwrap();
            let work = top.join("work");
            fs::create_dir(&work).unwrap();
            let workspace = Workspace::new([Root::writable(&work)], PathRules::default(), Reading::Relative);
            let memory = Memory::new(Arc::new(FileBlobs::at(&top.join("blobs"))));
            let host = Remembering::new(Arc::new(Local::new()), memory.clone());
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
            desk.memory.begin();
            desk.write("edited", "two\n").await;
            desk.write("edited", "three\n").await;
            desk.write("made", "new\n").await;
            desk.host.remove(&desk.path("folder")).await.unwrap();
            let fresh: Vec<_> = desk.memory.fresh().iter().map(|it| (it.shown.clone(), it.diff.added)).collect();
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
            desk.memory.begin();
            desk.write("a", "two\n").await;
            desk.put("a", "mine\n");
            desk.put("by-a-command", "x");
            let undone = desk.memory.undo(&desk.host, &desk.workspace).await.unwrap();
            assert_eq!(undone.restored, Vec::<String>::new());
            assert_eq!(undone.skipped, ["a: it was changed after that turn; left as it is"]);
            assert_eq!(undone.others, ["by-a-command"]);
        });
        assert_eq!(desk.get("a").as_deref(), Some("mine\n"));
    }

    #[test]
    fn large_files_are_stored_as_blobs() {
        let desk = Desk::new();
        let blobs = FileBlobs::at(&desk.top.join("blobs"));
        let large = "x".repeat(IN_MEMORY + 1);
        desk.put("large", &large);
        wait(async {
            desk.memory.begin();
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
        desk.put("gone", &"x".repeat(IN_MEMORY + 1));
        desk.put("damaged", &"y".repeat(IN_MEMORY + 1));
        wait(async {
            desk.memory.begin();
            desk.write("gone", "small").await;
            assert_eq!(blobs.remove_unreferenced(&HashSet::new(), Duration::ZERO).await.unwrap(), 1);
            desk.write("damaged", "small").await;
            let id = BlobId::of("y".repeat(IN_MEMORY + 1).as_bytes());
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
