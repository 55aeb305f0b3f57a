//! The workspace as a read-only lower layer of the in-memory files.
//!
//! Every access goes through the workspace's host and its rules. Unreadable files and links that leave the workspace
//! do not exist here. Links appear as their targets; links to directories are not listed, so that walks end.

use std::{
    io::{Error as IoError, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bashkit::{DirEntry, FileSystem, FileSystemExt, FileType, Metadata};
use helve_contract::{
    Access, Error, FileErrorKind, SafePath, Workspace, async_trait,
    ports::{FileKind, Host, Span, Stat},
};

/// The path of the workspace in the in-memory file system.
pub const PROJECT_DIR: &str = "/home/user/project";
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The first root of a workspace, at [`PROJECT_DIR`].
pub(super) struct WorkspaceLayer {
    host: Arc<dyn Host>,
    workspace: Workspace,
}

/// A path as this layer classifies it.
enum LayerPath {
    /// A directory above the workspace.
    Above,
    /// Something in the workspace.
    Inside(SafePath),
}

impl WorkspaceLayer {
    pub(super) fn new(host: Arc<dyn Host>, workspace: Workspace) -> Self {
        Self { host, workspace }
    }

    fn classify(&self, path: &Path) -> bashkit::Result<LayerPath> {
        let project = Path::new(PROJECT_DIR);
        if let Ok(relative) = path.strip_prefix(project) {
            let top = self.workspace.primary_root(Access::Read).map_err(|error| to_bashkit_error(&error))?;
            let inside = top.in_same_root(top.relative().join(relative), Access::Read);
            return inside.map(LayerPath::Inside).map_err(|error| to_bashkit_error(&error));
        }
        if project.starts_with(path) { Ok(LayerPath::Above) } else { Err(missing()) }
    }

    /// Metadata of a path, following links.
    async fn metadata(&self, path: &SafePath) -> bashkit::Result<Metadata> {
        let stat = self.host.stat(path).await.map_err(|error| to_bashkit_error(&error))?;
        meta(stat).ok_or_else(missing)
    }

    async fn entry(&self, folder: &SafePath, name: &str, kind: FileKind) -> Option<DirEntry> {
        let path = folder.in_same_root(folder.relative().join(name), Access::Read).ok()?;
        let metadata = self.metadata(&path).await.ok()?;
        let behind_link = kind == FileKind::Link && metadata.file_type.is_dir();
        (!behind_link).then(|| DirEntry { name: name.to_owned(), metadata })
    }
}

fn meta(stat: Stat) -> Option<Metadata> {
    let (file_type, mode) = match stat.kind {
        FileKind::File => (FileType::File, 0o644),
        FileKind::Folder => (FileType::Directory, 0o755),
        FileKind::Link | FileKind::Other => return None,
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

/// Maps errors: unreadable files do not exist here.
fn to_bashkit_error(error: &Error) -> bashkit::Error {
    match error {
        Error::File { fault: FileErrorKind::IsFolder, .. } => IoError::other("is a directory").into(),
        Error::File { fault: FileErrorKind::NotFolder, .. } => IoError::other("not a directory").into(),
        Error::File { fault: FileErrorKind::NoPermission, .. } => {
            IoError::new(ErrorKind::PermissionDenied, "permission denied").into()
        }
        Error::File { fault: FileErrorKind::TooLarge { .. }, .. } => IoError::other("file too large").into(),
        _ => missing(),
    }
}

impl FileSystemExt for WorkspaceLayer {
    fn backend_kind(&self) -> &'static str {
        "workspace"
    }
}

#[async_trait]
impl FileSystem for WorkspaceLayer {
    async fn read_file(&self, path: &Path) -> bashkit::Result<Vec<u8>> {
        let path = match self.classify(path)? {
            LayerPath::Above => return Err(IoError::other("is a directory").into()),
            LayerPath::Inside(path) => path,
        };
        let chunk =
            self.host.read(&path, Span::first(MAX_FILE_BYTES)).await.map_err(|error| to_bashkit_error(&error))?;
        if chunk.size > MAX_FILE_BYTES {
            return Err(IoError::other("file too large").into());
        }
        Ok(chunk.bytes)
    }

    async fn stat(&self, path: &Path) -> bashkit::Result<Metadata> {
        match self.classify(path)? {
            LayerPath::Above => Ok(folder()),
            LayerPath::Inside(path) => self.metadata(&path).await,
        }
    }

    async fn read_dir(&self, path: &Path) -> bashkit::Result<Vec<DirEntry>> {
        let path = match self.classify(path)? {
            LayerPath::Above => {
                let next = Path::new(PROJECT_DIR).strip_prefix(path).ok().and_then(|it| it.components().next());
                let name = next.map(|it| it.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
                return Ok(vec![DirEntry { name, metadata: folder() }]);
            }
            LayerPath::Inside(path) => path,
        };
        let items = self.host.list(&path).await.map_err(|error| to_bashkit_error(&error))?;
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
