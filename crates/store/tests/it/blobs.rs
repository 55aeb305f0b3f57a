//! The contract of `Blobs` for every implementation, and kills, links and full disks with blobs in files.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, stream};
use helve_contract::{
    Call, Error, PathRules, PathStyle, Ports, Result, Session, Workspace, async_trait,
    ports::{Attachment, BlobId, BlobStream, Blobs, NoHost, StoredAttachment},
};
use helve_store::{FileBlobs, SqliteStore};
use proptest::{prelude::*, strategy::ValueTree as _};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A place for blobs that goes away with this.
trait BlobMaker: Default + Send + Sync + 'static {
    /// Another handle on the blobs of a tenant, which takes blobs of this size at most.
    fn blobs_of(&self, tenant: &str, limit: u64) -> Arc<dyn Blobs>;
    /// Replaces the stored content behind the back of every handle.
    fn damage(&self, id: &BlobId, bytes: &[u8]);
    /// Lets every blob be unused for this much longer.
    fn age(&self, by: Duration);

    fn blobs(&self) -> Arc<dyn Blobs> {
        self.blobs_of("default", 1 << 20)
    }
}

macro_rules! blob_suite {
    ($maker:ty: $($case:ident)*) => { $(
        #[tokio::test]
        async fn $case() {
            super::$case::<$maker>().await;
        }
    )* };
    ($module:ident, $maker:ty) => {
        mod $module {
            blob_suite!($maker:
                equal_content_is_one_blob any_content_comes_back damage_is_an_error_and_a_put_repairs_it
                unused_blobs_are_removed tenants_are_apart too_large_is_an_error_that_leaves_nothing
                a_stream_that_fails_leaves_nothing puts_and_removals_at_once_lose_nothing);
        }
    };
}

blob_suite!(files, super::Folder);
blob_suite!(memory, super::InMemory);

async fn equal_content_is_one_blob<M: BlobMaker>() {
    let place = M::default();
    let blobs = place.blobs();
    assert_eq!(blobs.get(&BlobId::of(b"a")).await.unwrap(), None);
    assert_eq!(
        (blobs.size(&BlobId::of(b"a")).await.unwrap(), blobs.touch(&BlobId::of(b"a")).await.unwrap()),
        (None, false)
    );
    let id = blobs.put(b"a".to_vec()).await.unwrap();
    assert_eq!(id, BlobId::of(b"a"));
    assert_eq!(place.blobs().put(b"a".to_vec()).await.unwrap(), id);
    let pieces = stream::iter([Ok(b"a".to_vec())]).boxed();
    assert_eq!(place.blobs().put_stream(pieces).await.unwrap(), id);
    assert!(place.blobs().has(&id).await.unwrap());
    assert_eq!(place.blobs().size(&id).await.unwrap(), Some(1));
    assert_eq!(blobs.remove_unreferenced(&HashSet::new(), Duration::ZERO).await.unwrap(), 1, "it is one blob");
    assert_eq!(place.blobs().get(&id).await.unwrap(), None);
}

async fn whole(blobs: &dyn Blobs, id: &BlobId) -> Result<Option<Vec<u8>>> {
    let Some(mut pieces) = blobs.get_stream(id).await? else { return Ok(None) };
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend(piece?);
    }
    Ok(Some(bytes))
}

async fn any_content_comes_back<M: BlobMaker>() {
    let place = M::default();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let strategy = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6);
    let mut cases = vec![vec![], vec![vec![0; 700_000]]];
    cases.extend((0..64).map(|_| strategy.new_tree(&mut runner).unwrap().current()));
    for pieces in cases {
        let bytes = pieces.concat();
        let id = place.blobs().put_stream(stream::iter(pieces.into_iter().map(Ok)).boxed()).await.unwrap();
        assert_eq!(id, BlobId::of(&bytes));
        assert_eq!(place.blobs().put(bytes.clone()).await.unwrap(), id);
        assert_eq!(place.blobs().size(&id).await.unwrap(), Some(bytes.len() as u64));
        assert_eq!(whole(&*place.blobs(), &id).await.unwrap().as_ref(), Some(&bytes));
        assert_eq!(place.blobs().get(&id).await.unwrap(), Some(bytes));
    }
}

async fn damage_is_an_error_and_a_put_repairs_it<M: BlobMaker>() {
    let place = M::default();
    let blobs = place.blobs();
    let good = b"what was put".to_vec();
    let id = blobs.put(good.clone()).await.unwrap();
    for damaged in [b"what was pus".as_slice(), b"what was", b"what was put and more", b""] {
        place.damage(&id, damaged);
        let error = blobs.get(&id).await.unwrap_err();
        assert!(matches!(error, Error::BlobDamaged(found) if found == id), "{error}");
        assert!(error.to_string().contains("is damaged"), "{error}");
        assert!(matches!(whole(&*blobs, &id).await, Err(Error::BlobDamaged(_))));
        assert_eq!(blobs.put(good.clone()).await.unwrap(), id);
        assert_eq!(blobs.get(&id).await.unwrap().as_ref(), Some(&good));
    }
}

async fn unused_blobs_are_removed<M: BlobMaker>() {
    let place = M::default();
    let blobs = place.blobs();
    let [old, put, touched, referenced] = ["old", "put", "touched", "referenced"].map(|it| it.as_bytes().to_vec());
    let mut ids = Vec::new();
    for bytes in [&old, &put, &touched, &referenced] {
        ids.push(blobs.put(bytes.clone()).await.unwrap());
    }
    assert_eq!(blobs.remove_unreferenced(&HashSet::new(), DAY).await.unwrap(), 0);
    place.age(2 * DAY);
    blobs.put(put).await.unwrap();
    assert!(blobs.touch(&ids[2]).await.unwrap());
    assert_eq!(blobs.remove_unreferenced(&HashSet::from([ids[3]]), DAY).await.unwrap(), 1);
    let mut there = Vec::new();
    for id in &ids {
        there.push(blobs.has(id).await.unwrap());
    }
    assert_eq!(there, [false, true, true, true]);
}

async fn tenants_are_apart<M: BlobMaker>() {
    let place = M::default();
    let names = ["default", "other", "", "../default", "Default", "other/..", "ünï", &"x".repeat(300)];
    let id = place.blobs_of(names[0], 10).put(b"mine".to_vec()).await.unwrap();
    for name in &names[1..] {
        let other = place.blobs_of(name, 10);
        assert_eq!((other.get(&id).await.unwrap(), other.has(&id).await.unwrap()), (None, false), "{name}");
        other.put(b"mine".to_vec()).await.unwrap();
        assert_eq!(other.remove_unreferenced(&HashSet::new(), Duration::ZERO).await.unwrap(), 1, "{name}");
    }
    assert!(place.blobs().has(&id).await.unwrap());
}

async fn too_large_is_an_error_that_leaves_nothing<M: BlobMaker>() {
    let place = M::default();
    let blobs = place.blobs_of("default", 10);
    let error = blobs.put(vec![7; 11]).await.unwrap_err();
    assert!(matches!(error, Error::BlobTooLarge { bytes: 11, limit: 10 }), "{error}");
    assert!(error.to_string().contains("11 bytes are too large to be stored: 10 is the most"), "{error}");
    let endless = stream::repeat_with(|| Ok(vec![7; 4])).boxed();
    assert!(matches!(blobs.put_stream(endless).await, Err(Error::BlobTooLarge { limit: 10, .. })));
    blobs.put(vec![7; 10]).await.unwrap();
    assert_eq!(blobs.remove_unreferenced(&HashSet::new(), Duration::ZERO).await.unwrap(), 1);
}

async fn a_stream_that_fails_leaves_nothing<M: BlobMaker>() {
    let place = M::default();
    let blobs = place.blobs();
    let pieces = stream::iter([Ok(b"a".to_vec()), Err(Error::failed("broken off"))]).boxed();
    assert_eq!(blobs.put_stream(pieces).await.unwrap_err().to_string(), "broken off");
    assert!(!blobs.has(&BlobId::of(b"a")).await.unwrap());
    assert_eq!(blobs.remove_unreferenced(&HashSet::new(), Duration::ZERO).await.unwrap(), 0);
}

async fn puts_and_removals_at_once_lose_nothing<M: BlobMaker>() {
    let place = M::default();
    let bytes = b"old, and put again".to_vec();
    let id = BlobId::of(&bytes);
    for round in 0..30 {
        place.blobs().put(bytes.clone()).await.unwrap();
        place.age(2 * DAY);
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..6 {
            let (blobs, bytes) = (place.blobs(), bytes.clone());
            tasks.spawn(async move {
                if n % 2 == 0 {
                    blobs.put(bytes).await.unwrap();
                } else {
                    blobs.remove_unreferenced(&HashSet::new(), DAY).await.unwrap();
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert_eq!(place.blobs().get(&id).await.unwrap().as_ref(), Some(&bytes), "round {round}");
    }
}

/// Blobs in a directory.
struct Folder(tempfile::TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Folder {
    fn top(&self) -> PathBuf {
        self.0.path().join("blobs")
    }

    fn file(&self, id: &BlobId) -> PathBuf {
        self.top().join("default").join(id.to_string())
    }

    fn names(&self) -> Vec<String> {
        names(&self.top().join("default"))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|it| it.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl BlobMaker for Folder {
    fn blobs_of(&self, tenant: &str, limit: u64) -> Arc<dyn Blobs> {
        Arc::new(FileBlobs::for_tenant(&self.top(), tenant).with_limit(limit))
    }

    fn damage(&self, id: &BlobId, bytes: &[u8]) {
        fs::write(self.file(id), bytes).unwrap();
    }

    fn age(&self, by: Duration) {
        for name in self.names() {
            // Another test thread may replace or remove it meanwhile.
            if let Ok(file) = File::options().write(true).open(self.top().join("default").join(name)) {
                let before = file.metadata().unwrap().modified().unwrap();
                file.set_modified(before.checked_sub(by).unwrap_or(SystemTime::UNIX_EPOCH)).unwrap();
            }
        }
    }
}

/// Blobs by tenant and id: the content, and for how long each was unused.
type Table = Arc<Mutex<HashMap<(String, BlobId), (Vec<u8>, Duration)>>>;

/// Blobs as rows, in the way of a table.
#[derive(Default)]
struct InMemory(Table);

struct Rows {
    table: Table,
    tenant: String,
    limit: u64,
}

impl BlobMaker for InMemory {
    fn blobs_of(&self, tenant: &str, limit: u64) -> Arc<dyn Blobs> {
        Arc::new(Rows { table: self.0.clone(), tenant: tenant.to_owned(), limit })
    }

    fn damage(&self, id: &BlobId, bytes: &[u8]) {
        self.0.lock().unwrap().get_mut(&("default".to_owned(), *id)).unwrap().0 = bytes.to_vec();
    }

    fn age(&self, by: Duration) {
        self.0.lock().unwrap().values_mut().for_each(|it| it.1 += by);
    }
}

#[async_trait]
impl Blobs for Rows {
    async fn put(&self, bytes: Vec<u8>) -> Result<BlobId> {
        self.put_stream(stream::iter([Ok(bytes)]).boxed()).await
    }
    async fn put_stream(&self, mut pieces: BlobStream<'_>) -> Result<BlobId> {
        let mut whole = Vec::new();
        while let Some(piece) = pieces.next().await {
            whole.extend(piece?);
            if whole.len() as u64 > self.limit {
                return Err(Error::BlobTooLarge { bytes: whole.len() as u64, limit: self.limit });
            }
        }
        let id = BlobId::of(&whole);
        self.table.lock().unwrap().insert((self.tenant.clone(), id), (whole, Duration::ZERO));
        Ok(id)
    }
    async fn get(&self, id: &BlobId) -> Result<Option<Vec<u8>>> {
        let found = self.table.lock().unwrap().get(&(self.tenant.clone(), *id)).map(|it| it.0.clone());
        match found {
            Some(bytes) if BlobId::of(&bytes) != *id => Err(Error::BlobDamaged(*id)),
            found => Ok(found),
        }
    }
    async fn get_stream(&self, id: &BlobId) -> Result<Option<BlobStream<'static>>> {
        Ok(self.get(id).await?.map(|bytes| stream::iter([Ok(bytes)]).boxed()))
    }
    async fn size(&self, id: &BlobId) -> Result<Option<u64>> {
        Ok(self.table.lock().unwrap().get(&(self.tenant.clone(), *id)).map(|it| it.0.len() as u64))
    }
    async fn touch(&self, id: &BlobId) -> Result<bool> {
        let mut table = self.table.lock().unwrap();
        Ok(table.get_mut(&(self.tenant.clone(), *id)).map(|it| it.1 = Duration::ZERO).is_some())
    }
    async fn remove_unreferenced(&self, referenced: &HashSet<BlobId>, unused_for: Duration) -> Result<u64> {
        let mut table = self.table.lock().unwrap();
        let before = table.len();
        table.retain(|(tenant, id), it| *tenant != self.tenant || referenced.contains(id) || it.1 < unused_for);
        Ok((before - table.len()) as u64)
    }
}

#[tokio::test]
async fn files_are_their_owners_alone() {
    let place = Folder::default();
    let id = place.blobs().put(b"secret".to_vec()).await.unwrap();
    let modes = [place.file(&id), place.top().join("default"), place.top()].map(|it| fs::metadata(it).unwrap().mode());
    assert_eq!(modes.map(|it| it & 0o777), [0o600, 0o700, 0o700]);
    // A directory that others can enter is closed again.
    fs::set_permissions(place.top().join("default"), fs::Permissions::from_mode(0o755)).unwrap();
    place.blobs().put(b"more".to_vec()).await.unwrap();
    assert_eq!(fs::metadata(place.top().join("default")).unwrap().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn links_are_not_followed() {
    let place = Folder::default();
    let outside = place.0.path().join("outside");
    fs::write(&outside, "from outside").unwrap();
    let id = place.blobs().put(b"mine".to_vec()).await.unwrap();
    // In place of a blob: it is not read, and a put replaces the link.
    fs::remove_file(place.file(&id)).unwrap();
    symlink(&outside, place.file(&id)).unwrap();
    assert!(matches!(place.blobs().get(&id).await, Err(Error::BlobDamaged(_))));
    assert!(matches!(place.blobs().size(&id).await, Err(Error::BlobDamaged(_))));
    place.blobs().put(b"mine".to_vec()).await.unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "from outside");
    assert_eq!(place.blobs().get(&id).await.unwrap(), Some(b"mine".to_vec()));
    // In place of a directory.
    for folder in ["default", ""] {
        let place = Folder::default();
        let elsewhere = place.0.path().join("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        let link = place.top().join(folder);
        fs::create_dir_all(place.top()).unwrap();
        _ = fs::remove_dir(&link);
        symlink(&elsewhere, link.to_str().unwrap().trim_end_matches('/')).unwrap();
        let error = place.blobs().put(b"mine".to_vec()).await.unwrap_err().to_string();
        assert!(error.contains("links are not followed there"), "{error}");
        assert_eq!(names(&elsewhere), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_full_disk_leaves_nothing() {
    let place = Folder::default();
    place.blobs().put(b"there before".to_vec()).await.unwrap();
    let before = place.names();
    // A limit of the size of files stops a write in the middle, as a full disk does.
    let ended = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["blobs::writer", "--exact", "--nocapture"])
        .env(ORDER, place.top())
        .env(FULL, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.contains("refused"), "{told}");
    assert_eq!(place.names(), before);
}

/// Set for the process that puts blobs: the directory, and whether its files have a limit.
const ORDER: &str = "HELVE_TEST_BLOBS";
const FULL: &str = "HELVE_TEST_BLOBS_FULL";

fn content(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + (n as usize * 977) % 60_000)
}

/// Not a test: this binary started again as a process that puts blobs until it is killed.
#[tokio::test]
async fn writer() {
    let Ok(folder) = std::env::var(ORDER) else { return };
    let blobs = FileBlobs::at(Path::new(&folder));
    let tell = |line: String| writeln!(std::io::stderr().lock(), "{line}").unwrap();
    if std::env::var(FULL).is_ok() {
        let large = vec![1; 5 << 20];
        for _ in 0..3 {
            assert!(blobs.put(large.clone()).await.is_err());
            let pieces = large.chunks(1 << 16).map(|it| Ok(it.to_vec())).collect::<Vec<_>>();
            assert!(blobs.put_stream(stream::iter(pieces).boxed()).await.is_err());
        }
        return tell("refused".to_owned());
    }
    for n in 0.. {
        let id = if n % 2 == 0 {
            blobs.put(content(n)).await.unwrap()
        } else {
            let pieces = content(n).chunks(5000).map(|it| Ok(it.to_vec())).collect::<Vec<_>>();
            blobs.put_stream(stream::iter(pieces).boxed()).await.unwrap()
        };
        tell(format!("put {n} {id}"));
    }
}

#[tokio::test]
async fn acknowledged_blobs_survive_a_kill() {
    let kills = std::env::var("HELVE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let place = Folder::default();
    let mut acknowledged = HashMap::new();
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["blobs::writer", "--exact", "--nocapture"])
            .env(ORDER, place.top())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut hear = |line: Option<std::io::Result<String>>| {
            let Some(Ok(line)) = line else { return false };
            if let ["put", n, id] = line.split(' ').collect::<Vec<_>>()[..]
                && let (Ok(n), Ok(id)) = (n.parse::<u64>(), id.parse::<BlobId>())
            {
                acknowledged.insert(id, n);
            }
            true
        };
        for _ in 0..kill * 7 % 11 {
            assert!(hear(lines.next()), "the writer ended by itself in round {kill}");
        }
        let moment = std::time::Instant::now() + Duration::from_micros(kill * 977 % 4000);
        while std::time::Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while hear(lines.next()) {}
        for (id, n) in &acknowledged {
            assert_eq!(place.blobs().get(id).await.unwrap(), Some(content(*n)), "after kill {kill}");
        }
        // Nothing has a blob's name that is not whole.
        for name in place.names() {
            if let Ok(id) = name.parse::<BlobId>() {
                assert!(place.blobs().get(&id).await.unwrap().is_some(), "{name} after kill {kill}");
            }
        }
    }
    assert!(!acknowledged.is_empty());
    place.blobs().remove_unreferenced(&HashSet::new(), DAY).await.unwrap();
    let left = place.names();
    assert!(left.iter().all(|name| name.parse::<BlobId>().is_ok()), "files of killed writers are gone: {left:?}");
}

/// A session as one process has it.
fn session(place: &Folder) -> Call {
    let ports = Ports {
        store: Arc::new(SqliteStore::lazy(place.0.path().join("helve.db"))),
        blobs: Arc::new(FileBlobs::at(&place.top())),
        ..Ports::new(Arc::new(NoHost))
    };
    let nowhere = Workspace::new([], PathRules::default(), PathStyle::Absolute);
    Call::new("call-1", Arc::new(Session::new("s", nowhere, ports)))
}

async fn begin_turn(call: &Call, files: Vec<Attachment>) {
    let stored = StoredAttachment::store(call.blobs(), files).await.unwrap();
    let held = call.session.hold().await.unwrap();
    call.session.list_attachments(&held, &stored).await.unwrap();
    call.session.release(held).await.unwrap();
}

#[tokio::test]
async fn whoever_continues_a_turn_has_its_files() {
    let place = Folder::default();
    let files = [("a.txt", b"one".to_vec()), ("b.bin", vec![0xff; 100_000])];
    let call = session(&place);
    assert!(call.session.stores_attachments());
    begin_turn(&call, files.iter().map(|(name, bytes)| Attachment::new(name, bytes.clone())).collect()).await;
    drop(call);

    let other = session(&place);
    assert_eq!(other.count_attachments().await.unwrap(), 2);
    for (index, (_, bytes)) in files.iter().enumerate() {
        assert_eq!(&other.attachment(index).await.unwrap().unwrap().bytes, bytes);
    }
    assert_eq!(other.attachment(0).await.unwrap().unwrap().mime, "text/plain");
    assert!(other.attachment(2).await.unwrap().is_none());

    // Content that expired is an error that says what to do, and not a missing file.
    other.blobs().remove_unreferenced(&HashSet::from([BlobId::of(b"one")]), Duration::ZERO).await.unwrap();
    assert!(other.attachment(0).await.unwrap().is_some());
    let told = other.attachment(1).await.unwrap_err().to_string();
    assert!(told.contains("b.bin is no longer stored. Ask the user to send it again"), "{told}");

    begin_turn(&session(&place), Vec::new()).await;
    assert!(session(&place).attachment(0).await.unwrap().is_none());
}
