//! A session's view of a host on another machine: connects at the first use and keeps the session's private
//! directories local.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use helve_contract::{
    Error, Result, Root, SafePath, Workspace,
    ports::{
        DirEntry, DirListing, Expect, FileChange, FileChunk, FileKind, FindQuery, FindResult, GrepQuery, GrepResult,
        Host, ListOptions, Process, ProcessSpec, SandboxLevel, Span, Stat, WriteOutcome,
    },
};
use tokio::sync::Mutex;

use super::RemoteClient;
use crate::LocalHost;

/// Makes a connection to another machine.
#[async_trait]
pub(crate) trait Connect: Send + Sync {
    /// The machine's name for messages: `ssh build-1`.
    fn name(&self) -> String;

    /// Connects for a workspace whose roots are all on the other machine.
    async fn connect(&self, workspace: &Workspace) -> Result<RemoteClient>;

    /// Whether a new connection finds the files of a lost one.
    fn keeps_files(&self) -> bool;
}

/// A host on another machine. It has the workspace files and runs all commands.
///
/// Roots outside the workspace directory (saved output, the session's temporary directory, the vault) stay on this
/// machine. File tools reach both sides; commands see only the other machine.
///
/// It connects at the first use. It reconnects after a lost connection if the files still exist.
pub struct RemoteHost {
    name: String,
    connector: Box<dyn Connect>,
    /// The workspace directory on the other machine.
    folder: PathBuf,
    workspace: Workspace,
    near: LocalHost,
    remote: Mutex<Option<Arc<RemoteClient>>>,
    level: RwLock<SandboxLevel>,
}

impl RemoteHost {
    pub(crate) fn new(
        connector: Box<dyn Connect>,
        folder: PathBuf,
        workspace: &Workspace,
        near: LocalHost,
    ) -> Result<Self> {
        check_folder(&folder)?;
        let far: Vec<Root> = workspace
            .roots()
            .iter()
            .filter(|root| root.dir.starts_with(&folder) && !workspace.is_vault(root))
            .map(|root| Root::clone(root))
            .collect();
        if far.is_empty() {
            return Err(Error::failed(format!(
                "no root of this session is in {}, the workspace folder on {}",
                folder.display(),
                connector.name()
            )));
        }
        let workspace = Workspace::new(far, workspace.rules().clone(), workspace.path_style());
        Ok(Self {
            name: connector.name(),
            connector,
            folder,
            workspace,
            near,
            remote: Mutex::new(None),
            level: RwLock::new(SandboxLevel::External),
        })
    }

    /// Whether a path is on the other machine.
    fn is_far(&self, path: &SafePath) -> bool {
        path.root().dir.starts_with(&self.folder) && !path.is_in_vault()
    }

    /// The connection; connects if there is none.
    async fn remote(&self) -> Result<Arc<RemoteClient>> {
        let mut remote = self.remote.lock().await;
        match &*remote {
            Some(open) if !open.is_closed() => return Ok(open.clone()),
            Some(_) if !self.connector.keeps_files() => {
                return Err(Error::failed(format!(
                    "the connection to {} is lost, and its files with it; start a new session",
                    self.name
                )));
            }
            _ => {}
        }
        let open = Arc::new(self.connector.connect(&self.workspace).await?);
        *self.level.write().unwrap_or_else(PoisonError::into_inner) = open.sandbox_level();
        *remote = Some(open.clone());
        Ok(open)
    }
}

/// Checks that the workspace directory is absolute, because this machine cannot resolve it.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    if folder.is_absolute() && folder.parent().is_some() {
        return Ok(());
    }
    Err(Error::failed(format!(
        "`{}` cannot be the workspace on another machine; give the absolute path of a folder there",
        folder.display()
    )))
}

/// Runs an operation on the side that has the path.
macro_rules! on_its_side {
    ($self:ident, $path:ident, $operation:ident ( $($argument:expr),* )) => {
        if $self.is_far($path) {
            $self.remote().await?.$operation($path, $($argument),*).await
        } else {
            $self.near.$operation($path, $($argument),*).await
        }
    };
}

#[async_trait]
impl Host for RemoteHost {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        on_its_side!(self, path, stat())
    }

    async fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        on_its_side!(self, path, real_path())
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk> {
        on_its_side!(self, path, read(span))
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        on_its_side!(self, path, write(bytes, expect))
    }

    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        let (mut far, mut near) = (false, false);
        for change in &changes {
            let (path, like) = match change {
                FileChange::Write { path, like, .. } => (path, like.as_ref()),
                FileChange::Remove { path, .. } => (path, None),
            };
            for path in [Some(path), like].into_iter().flatten() {
                if self.is_far(path) { far = true } else { near = true }
            }
        }
        match (far, near) {
            (true, true) => Err(Error::failed(format!(
                "files on {} and on this machine cannot be changed in one step; change them one after the other",
                self.name
            ))),
            (true, false) => self.remote().await?.apply_changes(changes).await,
            (false, _) => self.near.apply_changes(changes).await,
        }
    }

    async fn remove(&self, path: &SafePath) -> Result<FileKind> {
        on_its_side!(self, path, remove())
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        on_its_side!(self, path, list())
    }

    async fn list_with(&self, path: &SafePath, glance: ListOptions) -> Result<DirListing> {
        on_its_side!(self, path, list_with(glance))
    }

    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
        on_its_side!(self, path, find(find))
    }

    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
        on_its_side!(self, path, grep(grep))
    }

    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        if !self.is_far(&command.cwd) {
            return Err(Error::denied(format!(
                "{} is on this machine, and commands run on {}; start it in the workspace",
                command.cwd, self.name
            )));
        }
        let roots = command.roots.iter().filter(|root| self.is_far(root)).cloned().collect();
        self.remote().await?.spawn(&ProcessSpec { roots, ..command.clone() }).await
    }

    fn sandbox_level(&self) -> SandboxLevel {
        *self.level.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{
            Mutex as BlockingMutex,
            atomic::{AtomicU32, Ordering},
        },
    };

    use helve_contract::{Access, PathRules, PathStyle};
    use tokio::task::AbortHandle;

    use super::*;
    use crate::remote::serve;

    /// Connects to a server in this process, which the test can end.
    #[derive(Clone, Default)]
    struct InProcess {
        keeps_files: bool,
        ends: Arc<BlockingMutex<Vec<AbortHandle>>>,
    }

    #[async_trait]
    impl Connect for InProcess {
        fn name(&self) -> String {
            "far".to_owned()
        }

        async fn connect(&self, workspace: &Workspace) -> Result<RemoteClient> {
            let (here, there) = tokio::io::duplex(1 << 16);
            let (from, to) = tokio::io::split(there);
            let end = tokio::spawn(async move { serve(Arc::new(LocalHost::new()), from, to).await });
            self.ends.lock().unwrap().push(end.abort_handle());
            let (from, to) = tokio::io::split(here);
            RemoteClient::connect("far", workspace, from, to).await
        }

        fn keeps_files(&self) -> bool {
            self.keeps_files
        }
    }

    /// Two directories, one of them the remote workspace; removed when dropped.
    struct Ground(PathBuf);

    impl Ground {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("helve-far-{}-{count}", std::process::id()));
            fs::create_dir_all(dir.join("far")).unwrap();
            fs::create_dir_all(dir.join("near")).unwrap();
            Self(fs::canonicalize(dir).unwrap())
        }

        fn workspace(&self) -> Workspace {
            let roots = [Root::writable(self.0.join("far")), Root::writable(self.0.join("near"))];
            Workspace::new(roots, PathRules::default(), PathStyle::Relative)
        }

        fn host(&self, connector: &InProcess) -> RemoteHost {
            let connector = Box::new(connector.clone());
            RemoteHost::new(connector, self.0.join("far"), &self.workspace(), LocalHost::new()).unwrap()
        }

        fn path(&self, side: &str) -> SafePath {
            self.workspace().resolve_in_root(&self.0.join(side), "a.txt", Access::Write).unwrap()
        }
    }

    impl Drop for Ground {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn the_workspace_is_far_and_other_roots_are_near() {
        let ground = Ground::new();
        let connector = InProcess::default();
        let host = ground.host(&connector);
        host.write(&ground.path("near"), b"n", Expect::Anything).await.unwrap();
        assert_eq!(connector.ends.lock().unwrap().len(), 0, "nothing far was used yet");
        host.write(&ground.path("far"), b"f", Expect::Anything).await.unwrap();
        assert_eq!(connector.ends.lock().unwrap().len(), 1);
        assert_eq!(host.read(&ground.path("far"), Span::first(9)).await.unwrap().bytes, b"f");
        let write = |side: &str| FileChange::Write {
            path: ground.path(side),
            bytes: Vec::new(),
            expect: Expect::Anything,
            like: None,
        };
        let mixed = host.apply_changes(vec![write("near"), write("far")]).await.unwrap_err().to_string();
        assert!(mixed.starts_with("files on far and on this machine cannot be changed in one step"), "{mixed}");
        host.apply_changes(vec![write("far")]).await.unwrap();
    }

    #[tokio::test]
    async fn a_lost_connection_is_made_again_where_the_files_are_still_there() {
        let ground = Ground::new();
        for keeps_files in [true, false] {
            let connector = InProcess { keeps_files, ..InProcess::default() };
            let host = ground.host(&connector);
            host.write(&ground.path("far"), b"f", Expect::Anything).await.unwrap();
            connector.ends.lock().unwrap()[0].abort();
            let lost = host.read(&ground.path("far"), Span::first(9)).await.unwrap_err().to_string();
            assert!(lost.contains("is lost"), "{lost}");
            let again = host.read(&ground.path("far"), Span::first(9)).await;
            if keeps_files {
                assert_eq!(again.unwrap().bytes, b"f");
            } else {
                assert!(again.unwrap_err().to_string().ends_with("start a new session"));
            }
        }
    }

    #[test]
    fn the_far_folder_is_absolute_and_holds_a_root() {
        let ground = Ground::new();
        for (folder, why) in
            [("work", "give the absolute path"), ("/", "give the absolute path"), ("/no/such", "no root of")]
        {
            let connector = Box::new(InProcess::default());
            let opened = RemoteHost::new(connector, folder.into(), &ground.workspace(), LocalHost::new());
            let told = opened.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains(why), "{folder}: {told}");
        }
    }
}
