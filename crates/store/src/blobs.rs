//! Blobs in a directory: one file each, named by the hash of its content.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use helve_contract::{
    Error, Result,
    ids::DEFAULT_TENANT,
    ports::{BlobId, BlobStream, Blobs, MAX_BLOB},
};
use rustix::fs::{FileType, Timespec, Timestamps, UTIME_NOW, futimens};
use sha2::{Digest as _, Sha256};

use crate::files::{Dir, DirLock, Privacy, Temporary, age, blocking, explain};

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// How long a put waits for a removal, and a removal for puts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Blobs in a directory of this user. Cheap to clone.
///
/// A file is written under a temporary name, synced and renamed, with mode 0600. Links are not followed. Writers
/// share a lock on the directory and removals hold it exclusively, so a blob that was just put is never removed.
#[derive(Clone, Debug)]
pub struct FileBlobs {
    folder: PathBuf,
    limit: u64,
}

impl FileBlobs {
    /// The blobs of the default tenant beneath a directory, which is created with the first blob.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self::for_tenant(folder, DEFAULT_TENANT)
    }

    /// The blobs of a tenant beneath a directory.
    #[must_use]
    pub fn for_tenant(folder: &Path, tenant: &str) -> Self {
        Self { folder: folder.join(tenant_folder(tenant)), limit: MAX_BLOB }
    }

    /// Sets the maximum blob size, up to [`MAX_BLOB`].
    #[must_use]
    pub fn with_limit(self, bytes: u64) -> Self {
        Self { limit: bytes.min(MAX_BLOB), ..self }
    }

    fn make(&self) -> io::Result<Dir> {
        // The directory of all tenants is private too, and no link.
        if let Some(parent) = self.folder.parent() {
            Dir::make_private(parent)?;
        }
        Dir::make_private(&self.folder)
    }

    fn find(&self) -> Result<Option<Dir>> {
        match Dir::open(&self.folder) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.explain(error)),
        }
    }

    fn explain(&self, error: io::Error) -> Error {
        explain(&self.folder, error)
    }

    fn check_size(&self, bytes: u64) -> Result<()> {
        if bytes > self.limit { Err(Error::BlobTooLarge { bytes, limit: self.limit }) } else { Ok(()) }
    }

    fn open_file(&self, id: &BlobId) -> Result<Option<File>> {
        let Some(dir) = self.find()? else { return Ok(None) };
        match dir.open_file(&id.to_string()) {
            // A directory, pipe or link is not what was put.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Error::BlobDamaged(*id)),
            found => found.map_err(|error| self.explain(error)),
        }
    }

    fn put_now(&self, bytes: &[u8]) -> Result<BlobId> {
        self.check_size(bytes.len() as u64)?;
        let mut writer = self.writer()?;
        let id = BlobId::of(bytes);
        if writer.use_existing(&id).map_err(|error| self.explain(error))? {
            return Ok(id);
        }
        writer.file()?.write_all(bytes).map_err(|error| self.explain(error))?;
        writer.publish(&id).map_err(|error| self.explain(error))?;
        Ok(id)
    }

    fn writer(&self) -> Result<Writer> {
        let open = || {
            let dir = self.make()?;
            let lock = dir.lock(false, PATIENCE)?;
            Ok(Writer { temporary: None, dir, _lock: lock, folder: self.folder.clone() })
        };
        open().map_err(|error| self.explain(error))
    }

    fn get_now(&self, id: &BlobId) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(id)? else { return Ok(None) };
        let read = || {
            let size = file.metadata()?.len();
            let mut bytes = Vec::with_capacity(usize::try_from(size.min(MAX_BLOB)).unwrap_or_default());
            (&file).take(MAX_BLOB + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error| self.explain(error))?;
        if BlobId::of(&bytes) == *id { Ok(Some(bytes)) } else { Err(Error::BlobDamaged(*id)) }
    }

    /// [`Blobs::remove_unreferenced`] without a runtime.
    pub fn remove_now(&self, referenced: &HashSet<BlobId>, unused_for: Duration) -> Result<u64> {
        let Some(dir) = self.find()? else { return Ok(0) };
        let remove = || {
            let _lock = dir.lock(true, PATIENCE)?;
            dir.remove_temporaries()?;
            let mut removed = 0;
            for (name, kind) in dir.entries()? {
                let Ok(id) = name.parse::<BlobId>() else { continue };
                let is_old = |file: &File| age(file).unwrap_or_default() >= unused_for;
                if kind == FileType::RegularFile
                    && !referenced.contains(&id)
                    && dir.open_file(&name)?.as_ref().is_some_and(is_old)
                {
                    dir.remove(&name)?;
                    removed += 1;
                }
            }
            Ok(removed)
        };
        remove().map_err(|error| self.explain(error))
    }
}

/// A blob being written. It is discarded unless it is published.
struct Writer {
    // In this order: the file goes before the lock.
    temporary: Option<Temporary>,
    dir: Dir,
    _lock: DirLock,
    folder: PathBuf,
}

impl Writer {
    fn file(&mut self) -> Result<&mut File> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => self.dir.temporary(Privacy::Private).map_err(|error| explain(&self.folder, error))?,
        };
        Ok(&mut self.temporary.insert(temporary).file)
    }

    /// Marks a blob as used now, if it exists and is intact. A damaged one is written again.
    fn use_existing(&self, id: &BlobId) -> io::Result<bool> {
        let Ok(Some(mut file)) = self.dir.open_file(&id.to_string()) else { return Ok(false) };
        let (mut hasher, mut piece) = (Sha256::new(), vec![0; PIECE]);
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => hasher.update(&piece[..read]),
            }
        }
        if BlobId::from_hash(hasher.finalize().into()) != *id {
            return Ok(false);
        }
        mark_used(&file)?;
        Ok(true)
    }

    fn publish(mut self, id: &BlobId) -> io::Result<()> {
        match self.temporary.take() {
            Some(temporary) => temporary.publish(&id.to_string()),
            None => Ok(()),
        }
    }
}

fn mark_used(file: &File) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Ok(futimens(file, &Timestamps { last_access: now, last_modification: now })?)
}

/// The name of a tenant's directory: the tenant itself where it is a plain name, or else a hash of it.
fn tenant_folder(tenant: &str) -> String {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'_');
    if !tenant.is_empty() && tenant.len() <= 64 && tenant.bytes().all(is_plain) {
        tenant.to_owned()
    } else {
        format!("={}", BlobId::of(tenant.as_bytes()))
    }
}

/// A blob that is being read.
struct Reader {
    file: File,
    hasher: Sha256,
    id: BlobId,
    folder: PathBuf,
}

impl Reader {
    /// The next piece; at the end the content is compared with its hash.
    fn next(mut self) -> Result<Option<(Vec<u8>, Self)>> {
        let mut piece = vec![0; PIECE];
        let read = self.file.read(&mut piece).map_err(|error| explain(&self.folder, error))?;
        if read == 0 {
            let is_whole = BlobId::from_hash(self.hasher.finalize().into()) == self.id;
            return if is_whole { Ok(None) } else { Err(Error::BlobDamaged(self.id)) };
        }
        piece.truncate(read);
        self.hasher.update(&piece);
        Ok(Some((piece, self)))
    }
}

#[async_trait]
impl Blobs for FileBlobs {
    async fn put(&self, bytes: Vec<u8>) -> Result<BlobId> {
        let this = self.clone();
        blocking(move || this.put_now(&bytes)).await
    }

    async fn put_stream(&self, mut pieces: BlobStream<'_>) -> Result<BlobId> {
        let this = self.clone();
        let mut writer = blocking(move || this.writer()).await?;
        let (mut hasher, mut size) = (Sha256::new(), 0);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            size += piece.len() as u64;
            self.check_size(size)?;
            hasher.update(&piece);
            writer = blocking(move || {
                let folder = writer.folder.clone();
                writer.file()?.write_all(&piece).map_err(|error| explain(&folder, error))?;
                Ok(writer)
            })
            .await?;
        }
        let (this, id) = (self.clone(), BlobId::from_hash(hasher.finalize().into()));
        blocking(move || {
            if !writer.use_existing(&id).map_err(|error| this.explain(error))? {
                // Also where nothing came: an empty blob is a file too.
                writer.file()?;
                writer.publish(&id).map_err(|error| this.explain(error))?;
            }
            Ok(id)
        })
        .await
    }

    async fn get(&self, id: &BlobId) -> Result<Option<Vec<u8>>> {
        let (this, id) = (self.clone(), *id);
        blocking(move || this.get_now(&id)).await
    }

    async fn get_stream(&self, id: &BlobId) -> Result<Option<BlobStream<'static>>> {
        let (this, id) = (self.clone(), *id);
        let folder = self.folder.clone();
        let Some(file) = blocking(move || this.open_file(&id)).await? else { return Ok(None) };
        let reader = Reader { file, hasher: Sha256::new(), id, folder };
        Ok(Some(stream::try_unfold(reader, |reader| blocking(move || reader.next())).boxed()))
    }

    async fn size(&self, id: &BlobId) -> Result<Option<u64>> {
        let (this, id) = (self.clone(), *id);
        blocking(move || {
            let Some(dir) = this.find()? else { return Ok(None) };
            dir.size(&id.to_string()).map_err(|_| Error::BlobDamaged(id))
        })
        .await
    }

    async fn touch(&self, id: &BlobId) -> Result<bool> {
        let (this, id) = (self.clone(), *id);
        blocking(move || {
            let Some(dir) = this.find()? else { return Ok(false) };
            let touch = || {
                let _lock = dir.lock(false, PATIENCE)?;
                let Some(file) = dir.open_file(&id.to_string())? else { return Ok(false) };
                mark_used(&file)?;
                Ok(true)
            };
            touch().map_err(|error| this.explain(error))
        })
        .await
    }

    async fn remove_unreferenced(&self, referenced: &HashSet<BlobId>, unused_for: Duration) -> Result<u64> {
        let (this, referenced) = (self.clone(), referenced.clone());
        blocking(move || this.remove_now(&referenced, unused_for)).await
    }
}
