//! Runs programs in a container for each session, through the Docker Engine API; files stay with [`LocalHost`].
//!
//! The roots are bind mounts with the same paths inside and outside, so a file has one name everywhere. File tools
//! work on this machine with the guarantees of [`LocalHost`]; only programs run in the container.

mod api;
mod http;
mod program;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use helve_contract::{
    Error, Result, Root, RootPermission, Workspace,
    ports::{EnvVars, NetworkAccess, Process, ProcessSpec, SandboxLevel},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::api::DockerClient;
use self::program::ExecProcess;
use crate::{
    LocalHost, Spawn,
    sandbox::{environment, hidden_places, path_rules},
};

/// The operator's settings for containers. Nothing in it comes from the model or the project.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// The address of the engine: `unix:///var/run/docker.sock`, `tcp://127.0.0.1:2375`.
    pub endpoint: String,
    /// The image. It needs only a shell.
    pub image: String,
    /// The user that programs run as, as `uid:gid`. Default: the user of this process, or `nobody` if that is root.
    pub user: Option<String>,
    /// The network: `none`, `bridge`, or the name of one.
    pub network: String,
    /// The memory limit of the whole container, in bytes.
    pub memory: u64,
    /// The maximum number of processes in the container.
    pub processes: u64,
    /// Names of environment variables that programs inherit, as in [`SandboxConfig`](crate::SandboxConfig).
    pub inherited: Vec<String>,
    /// Names beneath each root that programs must not change, such as `.git/hooks`. Existing ones are mounted
    /// read-only.
    pub protected: Vec<String>,
    /// Helve's private directories and files. Programs never see them, nor keys and tokens, even where a root
    /// contains them.
    pub private: Vec<PathBuf>,
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            endpoint: "unix:///var/run/docker.sock".to_owned(),
            image: "debian:12".to_owned(),
            user: None,
            network: "none".to_owned(),
            memory: 4 << 30,
            processes: 512,
            inherited: Vec::new(),
            protected: Vec::new(),
            private: Vec::new(),
        }
    }
}

impl DockerConfig {
    /// Creates and starts a container for a session. It is removed when the host and its last program are dropped.
    pub async fn open(&self, workspace: &Workspace) -> Result<LocalHost> {
        Ok(LocalHost::with_spawner(Arc::new(self.start(workspace).await?)))
    }

    /// Like `open`, but creates the container when the first program starts.
    pub fn open_lazy(self, workspace: Workspace) -> LocalHost {
        LocalHost::with_spawner(Arc::new(LazyContainer { docker: self, workspace, container: OnceCell::new() }))
    }

    /// Queries the engine's version and checks that the image exists.
    pub async fn probe(&self) -> Result<Vec<String>> {
        let api = DockerClient::connect(&self.endpoint)?;
        let found =
            if api.has_image(&self.image).await? { "there" } else { "not there; it is pulled for the first command" };
        let image = format!("the image {} is {found}", self.image);
        Ok(vec![format!("the container engine {} answers at {}", api.version().await?, self.endpoint), image])
    }

    async fn start(&self, workspace: &Workspace) -> Result<Container> {
        environment::check_inherited(&self.inherited)?;
        let api = DockerClient::connect(&self.endpoint)?;
        let wanted = self.container_spec(workspace)?;
        let id = match api.create(&wanted).await? {
            Some(id) => id,
            None => {
                api.pull(&self.image).await?;
                let made = api.create(&wanted).await?;
                made.ok_or_else(|| Error::failed(format!("the image {} was pulled and is not there", self.image)))?
            }
        };
        // From here on the guard removes the container when it is dropped, also after an error.
        let held = Arc::new(ContainerGuard { api, id });
        held.api.start(&held.id).await?;
        let inherited = environment::inherited(&self.inherited).collect();
        Ok(Container { held, has_network: self.network != "none", inherited })
    }

    /// The request body that creates the container.
    fn container_spec(&self, workspace: &Workspace) -> Result<Value> {
        let mut mounts = Vec::new();
        for root in workspace.roots() {
            if workspace.is_vault(root) {
                // The vault is hidden where another root contains it.
                let covered = |other: &Arc<Root>| !workspace.is_vault(other) && root.dir.starts_with(&other.dir);
                if workspace.roots().iter().any(covered) {
                    mounts.push(json!({ "Type": "tmpfs", "Target": root.dir, "ReadOnly": true }));
                }
                continue;
            }
            self.check_mount(&root.dir)?;
            mounts.push(mount(&root.dir, root.rights == RootPermission::Read));
            let kept = self.protected.iter().map(|name| root.dir.join(name)).filter(|path| path.exists());
            mounts.extend(kept.filter(|_| root.rights == RootPermission::Write).map(|path| mount(&path, true)));
        }
        let dirs = workspace.roots().iter().filter(|root| !workspace.is_vault(root)).map(|root| root.dir.clone());
        let hidden = hidden_places(&self.private, &dirs.collect::<Vec<_>>());
        mounts.retain(|mount| {
            let target = mount["Target"].as_str().unwrap_or_default();
            workspace.roots().iter().any(|root| root.dir == Path::new(target))
                || !hidden.iter().any(|place| Path::new(target).starts_with(place))
        });
        // The engine mounts by depth, so that a root inside a hidden directory comes after it.
        mounts.extend(hidden.iter().map(|place| hide(place)));
        Ok(json!({
            "Image": self.image,
            // Waits until it receives SIGTERM.
            "Entrypoint": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"],
            "Cmd": [],
            "User": self.user.clone().unwrap_or_else(current_uid_gid),
            "Env": ["HOME=/tmp"],
            "WorkingDir": workspace.roots().first().map_or(Path::new("/"), |root| &root.dir),
            "Labels": { "helve": "session" },
            "HostConfig": {
                "Mounts": mounts,
                "NetworkMode": self.network,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges:true"],
                "PidsLimit": self.processes,
                "Memory": self.memory,
                "MemorySwap": self.memory,
                "ReadonlyRootfs": true,
                "Tmpfs": { "/tmp": "rw,exec,nosuid,nodev,mode=1777" },
                "Init": true,
                "AutoRemove": true,
                "IpcMode": "private",
            },
        }))
    }

    /// Refuses a mount that contains the engine's socket: access to the socket is root access on this machine.
    fn check_mount(&self, dir: &Path) -> Result<()> {
        let socket = self.endpoint.strip_prefix("unix://").map(PathBuf::from);
        let real = socket.map(|it| it.canonicalize().unwrap_or(it));
        if dir == Path::new("/") || real.is_some_and(|it| it.starts_with(dir)) {
            return Err(Error::denied(format!(
                "{} cannot be a root of a container: it holds the engine's own socket; choose a folder below",
                dir.display()
            )));
        }
        Ok(())
    }
}

/// A mount that hides a path.
fn hide(place: &Path) -> Value {
    if place.is_dir() {
        json!({ "Type": "tmpfs", "Target": place, "ReadOnly": true })
    } else {
        json!({ "Type": "bind", "Source": "/dev/null", "Target": place, "ReadOnly": true })
    }
}

fn mount(path: &Path, read_only: bool) -> Value {
    json!({ "Type": "bind", "Source": path, "Target": path, "ReadOnly": read_only })
}

fn current_uid_gid() -> String {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() { "65534:65534".to_owned() } else { format!("{}:{}", user.as_raw(), group.as_raw()) }
}

/// A container that is removed when it is dropped.
struct ContainerGuard {
    api: DockerClient,
    id: String,
}

impl Drop for ContainerGuard {
    fn drop(&mut self) {
        let (api, id) = (self.api.clone(), std::mem::take(&mut self.id));
        crate::parting::block_on_cleanup(async move { _ = api.remove(&id).await });
    }
}

/// The container of a session.
struct Container {
    held: Arc<ContainerGuard>,
    has_network: bool,
    /// Environment variables that every program gets.
    inherited: EnvVars,
}

#[async_trait]
impl Spawn for Container {
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        environment::check(&command.env)?;
        if command.cwd.is_in_vault() {
            return Err(Error::denied(format!(
                "{} is in the vault, which commands cannot see; start elsewhere",
                command.cwd
            )));
        }
        path_rules::refuse_any(command, "a Docker container")?;
        if command.network == NetworkAccess::Off && self.has_network {
            return Err(Error::denied(
                "this container has a network, which cannot be turned off for one command; run it without that wish",
            ));
        }
        Ok(Box::new(ExecProcess::start(self.held.clone(), command, &self.inherited).await?))
    }

    fn level(&self) -> SandboxLevel {
        SandboxLevel::External
    }
}

/// The container of a session, created at the first use.
struct LazyContainer {
    docker: DockerConfig,
    workspace: Workspace,
    container: OnceCell<Container>,
}

#[async_trait]
impl Spawn for LazyContainer {
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        let container = self.container.get_or_try_init(|| self.docker.start(&self.workspace)).await?;
        container.spawn(command).await
    }

    fn level(&self) -> SandboxLevel {
        SandboxLevel::External
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{PathRules, PathStyle};

    use super::*;

    #[test]
    fn a_container_has_no_more_than_it_needs() {
        let docker = DockerConfig { user: Some("7:8".into()), ..DockerConfig::default() };
        let roots = [Root::writable("/w"), Root::readable("/r")];
        let wanted = docker.container_spec(&Workspace::new(roots, PathRules::default(), PathStyle::Relative)).unwrap();
        assert_eq!(wanted["User"], "7:8");
        let host = &wanted["HostConfig"];
        assert_eq!(
            host["Mounts"],
            json!([
                { "Type": "bind", "Source": "/w", "Target": "/w", "ReadOnly": false },
                { "Type": "bind", "Source": "/r", "Target": "/r", "ReadOnly": true },
            ])
        );
        assert_eq!((&host["NetworkMode"], &host["CapDrop"]), (&json!("none"), &json!(["ALL"])));
        assert_eq!(host["SecurityOpt"], json!(["no-new-privileges:true"]));
        assert_eq!((&host["PidsLimit"], &host["Memory"]), (&json!(512), &json!(4_294_967_296_u64)));
    }

    #[test]
    fn a_container_does_not_have_the_vault() {
        let docker = DockerConfig::default();
        let workspace = |shared: &str| {
            let roots = [Root::writable(shared).with_name("shared"), Root::readable("/s/vault").with_name("vault")];
            Workspace::new(roots, PathRules::default(), PathStyle::Virtual)
        };
        let wanted = docker.container_spec(&workspace("/w")).unwrap();
        assert_eq!(wanted["HostConfig"]["Mounts"].as_array().unwrap().len(), 1);
        let wanted = docker.container_spec(&workspace("/s")).unwrap();
        assert_eq!(
            wanted["HostConfig"]["Mounts"][1],
            json!({ "Type": "tmpfs", "Target": "/s/vault", "ReadOnly": true })
        );
    }

    #[test]
    fn a_container_does_not_have_the_state_folder() {
        let top = std::env::temp_dir().join(format!("helve-docker-{}", std::process::id()));
        std::fs::create_dir_all(top.join("state/spill")).unwrap();
        std::fs::write(top.join("store.db"), "").unwrap();
        let top = top.canonicalize().unwrap();
        let docker = DockerConfig {
            private: vec![top.join("state"), top.join("store.db")],
            protected: vec!["state".to_owned()],
            ..DockerConfig::default()
        };
        let roots = [Root::writable(&top), Root::readable(top.join("state/spill"))];
        let wanted = docker.container_spec(&Workspace::new(roots, PathRules::default(), PathStyle::Relative)).unwrap();
        let mounts = wanted["HostConfig"]["Mounts"].as_array().unwrap();
        let of = |name: &str| -> Vec<_> {
            let target = json!(top.join(name));
            mounts.iter().filter(|it| it["Target"] == target).map(|it| it["Type"].as_str().unwrap()).collect()
        };
        assert_eq!((of("state"), of("state/spill"), of("store.db")), (vec!["tmpfs"], vec!["bind"], vec!["bind"]));
        std::fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_engines_socket_stays_outside() {
        for dir in ["/", "/var/run", "/run", "/var"] {
            let dir = Path::new(dir).canonicalize().unwrap();
            let docker =
                DockerConfig { endpoint: format!("unix://{}/docker.sock", dir.display()), ..DockerConfig::default() };
            assert!(docker.check_mount(&dir).is_err(), "{}", dir.display());
        }
        assert!(DockerConfig::default().check_mount(Path::new("/home/me/project")).is_ok());
    }
}
