//! The kinds of hosts that settings can select: how to open and probe each.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use helve_contract::{
    Access, Error, FileErrorKind, PathRules, PathStyle, Result, Root, Workspace,
    ports::{FileKind, Host, SandboxLevel},
};

use crate::{
    DockerConfig, E2bConfig, LocalHost, RemoteClient, RemoteHost, Sandbox, SandboxConfig, SshConfig,
    remote::{Connect, check_folder},
};

/// Where a session's files are and where its commands run, with the settings of each kind.
///
/// | kind | files | commands |
/// |---|---|---|
/// | `Local` | here | here, in the sandbox |
/// | `Docker` | here | in a container that has the roots at the same paths |
/// | `Ssh` | on the other machine | on the other machine |
/// | `E2b` | in the service's sandbox, gone at the session's end | in the same sandbox |
///
/// With `Ssh` and `E2b` the session's first root is [`far_workspace`](Self::far_workspace). Other roots stay on this
/// machine.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one value for each session")]
pub enum HostSettings {
    /// This machine.
    Local(SandboxConfig),
    /// Files on this machine, commands in a container.
    Docker(DockerConfig),
    /// Another machine, over `ssh`.
    Ssh(SshHost),
    /// A sandbox of the E2B service.
    E2b(E2bHost),
}

/// A host on another machine that runs `helve host-serve` over `ssh`.
#[derive(Clone, Debug)]
pub struct SshHost {
    /// The connection settings.
    pub connection: SshConfig,
    /// The workspace directory on the other machine: absolute and existing.
    pub workspace: PathBuf,
}

/// A host in a sandbox of the E2B service. The sandbox is created at the first use and ends with the session.
#[derive(Clone, Debug)]
pub struct E2bHost {
    /// The environment variable that holds the API key.
    pub key_variable: String,
    /// The URL of the API. Default: the E2B service.
    pub url: Option<String>,
    /// The URL of the sandbox daemons, if sandboxes do not have their own addresses.
    pub sandbox_url: Option<String>,
    /// The template. Default: `base`.
    pub template: Option<String>,
    /// The user that programs run as in the sandbox. Default: `user`.
    pub user: Option<String>,
    /// The `helve` program in the template. Default: this program is uploaded.
    pub program: Option<String>,
    /// Whether the sandbox has a network.
    pub network: bool,
    /// The workspace directory in the sandbox. It is created there and starts empty.
    pub workspace: PathBuf,
}

impl Default for E2bHost {
    fn default() -> Self {
        Self {
            key_variable: "E2B_API_KEY".to_owned(),
            url: None,
            sandbox_url: None,
            template: None,
            user: None,
            program: None,
            network: false,
            workspace: "/home/user/workspace".into(),
        }
    }
}

impl E2bHost {
    /// Reads the API key and returns the service settings.
    fn service(&self) -> Result<E2bConfig> {
        let key = env::var(&self.key_variable).ok().filter(|key| !key.is_empty()).ok_or_else(|| {
            Error::failed(format!("the environment variable {} holds no E2B key; set it", self.key_variable))
        })?;
        Ok(E2bConfig {
            url: self.url.clone(),
            sandbox_url: self.sandbox_url.clone(),
            template: self.template.clone(),
            user: self.user.clone(),
            program: self.program.clone(),
            network: self.network,
            ..E2bConfig::with_key(key)
        })
    }
}

impl HostSettings {
    /// The kind's name: `local`, `docker`, `ssh` or `e2b`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Docker(_) => "docker",
            Self::Ssh(_) => "ssh",
            Self::E2b(_) => "e2b",
        }
    }

    /// The workspace directory on another machine, if the host has one. It becomes the first root of the session.
    pub fn far_workspace(&self) -> Option<&Path> {
        match self {
            Self::Local(_) | Self::Docker(_) => None,
            Self::Ssh(ssh) => Some(&ssh.workspace),
            Self::E2b(e2b) => Some(&e2b.workspace),
        }
    }

    /// Opens the host for a session. It starts and connects nothing before the first use. `journal` is a private
    /// directory for the journal of multi-file changes on this machine.
    pub fn open(self, workspace: &Workspace, journal: Option<PathBuf>) -> Result<Arc<dyn Host>> {
        let noted = |local: LocalHost| match journal {
            Some(folder) => local.with_journal(folder),
            None => local,
        };
        Ok(match self {
            Self::Local(settings) => Arc::new(noted(LocalHost::with_spawner(Arc::new(Sandbox::new(settings)?)))),
            Self::Docker(docker) => Arc::new(noted(docker.open_lazy(workspace.clone()))),
            Self::Ssh(SshHost { connection, workspace: folder }) => {
                Arc::new(RemoteHost::new(Box::new(connection), folder, workspace, noted(LocalHost::new()))?)
            }
            Self::E2b(e2b) => {
                let service = Box::new(e2b.service()?);
                Arc::new(RemoteHost::new(service, e2b.workspace, workspace, noted(LocalHost::new()))?)
            }
        })
    }

    /// Checks that the host can be used and returns the facts found. The error says what to do.
    pub async fn probe(&self) -> Result<Vec<String>> {
        match self {
            Self::Local(settings) => {
                let settings = settings.clone();
                let probed = tokio::task::spawn_blocking(move || Sandbox::probe(settings)).await;
                let sandbox = probed.map_err(|error| Error::Internal(error.into()))??;
                let level = sandbox.report().level.map_or("no sandbox works; commands are refused", SandboxLevel::name);
                Ok(vec![format!("commands run here at {level}")])
            }
            Self::Docker(docker) => docker.probe().await,
            Self::Ssh(ssh) => ssh.probe().await,
            Self::E2b(e2b) => {
                check_folder(&e2b.workspace)?;
                e2b.service()?.probe().await
            }
        }
    }
}

impl SshHost {
    async fn probe(&self) -> Result<Vec<String>> {
        check_folder(&self.workspace)?;
        let workspace = Workspace::new([Root::writable(&self.workspace)], PathRules::default(), PathStyle::Absolute);
        let remote = self.connection.connect(&workspace).await?;
        let top = workspace.primary_root(Access::Read)?;
        match remote.stat(&top).await {
            Ok(about) if about.kind == FileKind::Folder => Ok(vec![
                format!("{} answers", remote.name()),
                format!("the workspace {} is there", self.workspace.display()),
                format!("commands run there at {}", remote.sandbox_level().name()),
            ]),
            Ok(_) => Err(Error::failed(format!("{} is not a folder on {}", self.workspace.display(), remote.name()))),
            Err(Error::File { fault: FileErrorKind::Missing { .. }, .. }) => Err(Error::failed(format!(
                "{} does not exist on {}; create it there",
                self.workspace.display(),
                remote.name()
            ))),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Connect for SshConfig {
    fn name(&self) -> String {
        format!("ssh {}", self.host)
    }

    async fn connect(&self, workspace: &Workspace) -> Result<RemoteClient> {
        Self::connect(self, workspace).await
    }

    fn keeps_files(&self) -> bool {
        true
    }
}

#[async_trait]
impl Connect for E2bConfig {
    fn name(&self) -> String {
        "e2b".to_owned()
    }

    async fn connect(&self, workspace: &Workspace) -> Result<RemoteClient> {
        self.open(workspace).await
    }

    fn keeps_files(&self) -> bool {
        false
    }
}
