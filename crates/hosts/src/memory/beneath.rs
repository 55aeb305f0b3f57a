//! The workspace as the lower layer of the files in memory: it can be looked at, and nothing else.
//!
//! Every look goes through the host that the workspace belongs to, so that its rules hold: what may not be read is not
//! there, and a link that leads out of the workspace is not there either. Links show as what they lead to; those to folders
//! are not listed, so that no walk goes round in circles.

use std::{
    io::{Error as IoError, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bashkit::{DirEntry, FileSystem, FileSystemExt, FileType, Metadata};
use helve_contract::{
    Access, Error, FileFault, SafePath, Workspace, async_trait,
    ports::{Host, Kind, Span, Stat},
};

/// Where the workspace shows.
pub const PROJECT: &str = "/home/user/project";
/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

/// The first root of a workspace, at [`PROJECT`].
pub(super) struct Beneath {
    host: Arc<dyn Host>,
    workspace: Workspace,
}

/// What a path is to this layer.
enum Seen {
    /// A folder above the workspace.
    Above,
    /// Something in the workspace.
    Inside(SafePath),
}

impl Beneath {
    pub(super) fn new(host: Arc<dyn Host>, workspace: Workspace) -> Self {
        Self { host, workspace }
    }

    fn seen(&self, path: &Path) -> bashkit::Result<Seen> {
        let project = Path::new(PROJECT);
        if let Ok(relative) = path.strip_prefix(project) {
            let top = self.workspace.top(Access::Read).map_err(|error| fault(&error))?;
            let inside = top.beside(top.relative().join(relative), Access::Read);
            return inside.map(Seen::Inside).map_err(|error| fault(&error));
        }
        if project.starts_with(path) { Ok(Seen::Above) } else { Err(missing()) }
    }

    /// What is there. A link is what it leads to.
    async fn look(&self, path: &SafePath) -> bashkit::Result<Metadata> {
        let stat = self.host.stat(path).await.map_err(|error| fault(&error))?;
        meta(stat).ok_or_else(missing)
    }

    async fn entry(&self, folder: &SafePath, name: &str, kind: Kind) -> Option<DirEntry> {
        let path = folder.beside(folder.relative().join(name), Access::Read).ok()?;
        let metadata = self.look(&path).await.ok()?;
        let behind_link = kind == Kind::Link && metadata.file_type.is_dir();
        (!behind_link).then(|| DirEntry { name: name.to_owned(), metadata })
    }
}

fn meta(stat: Stat) -> Option<Metadata> {
    let (file_type, mode) = match stat.kind {
        Kind::File => (FileType::File, 0o644),
        Kind::Folder => (FileType::Directory, 0o755),
        Kind::Link | Kind::Other => return None,
    };
    let modified = stat.modified.unwrap_or(UNIX_EPOCH);
    Some(Metadata { file_type, size: stat.size, mode, modified, created: modified })
}

fn folder() -> Metadata {
    Metadata { file_type: FileType::Directory, size: 0, mode: 0o755, modified: UNIX_EPOCH, created: UNIX_EPOCH }
}

fn missing() -> bashkit::Error {
    IoError::new(ErrorKind::NotFound, "not found").into()
}

fn read_only() -> bashkit::Error {
    IoError::new(ErrorKind::PermissionDenied, "the workspace is only read here").into()
}

/// What may not be seen is not there.
fn fault(error: &Error) -> bashkit::Error {
    match error {
        Error::File { fault: FileFault::IsFolder, .. } => IoError::other("is a directory").into(),
        Error::File { fault: FileFault::NotFolder, .. } => IoError::other("not a directory").into(),
        Error::File { fault: FileFault::NoPermission, .. } => {
            IoError::new(ErrorKind::PermissionDenied, "permission denied").into()
        }
        Error::File { fault: FileFault::TooLarge { .. }, .. } => IoError::other("file too large").into(),
        _ => missing(),
    }
}

impl FileSystemExt for Beneath {
    fn backend_kind(&self) -> &'static str {
        "workspace"
    }
}

#[async_trait]
impl FileSystem for Beneath {
    async fn read_file(&self, path: &Path) -> bashkit::Result<Vec<u8>> {
        let path = match self.seen(path)? {
            Seen::Above => return Err(IoError::other("is a directory").into()),
            Seen::Inside(path) => path,
        };
        let chunk = self.host.read(&path, Span::first(LARGEST)).await.map_err(|error| fault(&error))?;
        if chunk.size > LARGEST {
            return Err(IoError::other("file too large").into());
        }
        Ok(chunk.bytes)
    }

    async fn stat(&self, path: &Path) -> bashkit::Result<Metadata> {
        match self.seen(path)? {
            Seen::Above => Ok(folder()),
            Seen::Inside(path) => self.look(&path).await,
        }
    }

    async fn read_dir(&self, path: &Path) -> bashkit::Result<Vec<DirEntry>> {
        let path = match self.seen(path)? {
            Seen::Above => {
                let next = Path::new(PROJECT).strip_prefix(path).ok().and_then(|it| it.components().next());
                let name = next.map(|it| it.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
                return Ok(vec![DirEntry { name, metadata: folder() }]);
            }
            Seen::Inside(path) => path,
        };
        let items = self.host.list(&path).await.map_err(|error| fault(&error))?;
        let mut entries = Vec::with_capacity(items.len());
        for item in items {
            entries.extend(self.entry(&path, &item.name, item.kind).await);
        }
        Ok(entries)
    }

    async fn exists(&self, path: &Path) -> bashkit::Result<bool> {
        Ok(self.stat(path).await.is_ok())
    }

    async fn write_file(&self, _: &Path, _: &[u8]) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn append_file(&self, _: &Path, _: &[u8]) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn mkdir(&self, _: &Path, _: bool) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn remove(&self, _: &Path, _: bool) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn rename(&self, _: &Path, _: &Path) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn copy(&self, _: &Path, _: &Path) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn symlink(&self, _: &Path, _: &Path) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn read_link(&self, _: &Path) -> bashkit::Result<PathBuf> {
        Err(IoError::new(ErrorKind::InvalidInput, "not a symbolic link").into())
    }

    async fn chmod(&self, _: &Path, _: u32) -> bashkit::Result<()> {
        Err(read_only())
    }

    async fn set_modified_time(&self, _: &Path, _: SystemTime) -> bashkit::Result<()> {
        Err(read_only())
    }
}
