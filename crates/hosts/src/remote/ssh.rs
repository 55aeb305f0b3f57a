//! The far end over `ssh`: one connection that everything goes through.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use helve_contract::{Error, Result, Workspace};
use tokio::process::{Child, Command};

use super::RemoteClient;

/// How to reach another machine. Every part comes from configuration, never from a model.
#[derive(Clone, Debug, Default)]
pub struct SshConfig {
    /// Its name or address.
    pub host: String,
    /// Who to be there.
    pub user: Option<String>,
    /// Where its server listens.
    pub port: Option<u16>,
    /// The private key.
    pub key: Option<PathBuf>,
    /// The file with the keys of known hosts; the user's own otherwise. A host that is not in it is refused.
    pub known_hosts: Option<PathBuf>,
    /// The program to start there: `helve`, wherever it is.
    pub program: Option<String>,
}

impl SshConfig {
    /// Connects, and starts the far end.
    pub async fn connect(&self, workspace: &Workspace) -> Result<RemoteClient> {
        let mut child = self
            .command(SshMultiplexing::None)?
            .arg(format!("{} host-serve", self.program.as_deref().unwrap_or("helve")))
            .spawn()
            .map_err(spawn_error)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::failed("ssh was started without its pipes"));
        };
        let name = format!("ssh {}", self.host);
        match RemoteClient::connect(name, workspace, from, to).await {
            Ok(remote) => {
                // What the far end remarks is for nobody here, but it must not wait for ever to be read.
                let remarks = child.stderr.take();
                tokio::spawn(async move {
                    if let Some(mut remarks) = remarks {
                        _ = tokio::io::copy(&mut remarks, &mut tokio::io::sink()).await;
                    }
                    child.wait().await
                });
                Ok(remote)
            }
            Err(error) => Err(with_stderr(error, child).await),
        }
    }

    /// The program `ssh`, ready for a remote command; it ends when this process does.
    pub(super) fn command(&self, line: SshMultiplexing<'_>) -> Result<Command> {
        let mut command = Command::new("ssh");
        command
            .args(self.arguments(line)?)
            .env_remove("SSH_ASKPASS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        set_pdeathsig(&mut command);
        Ok(command)
    }

    /// The arguments up to the remote command. Nothing is asked on a terminal, and an unknown host is refused.
    fn arguments(&self, line: SshMultiplexing<'_>) -> Result<Vec<String>> {
        let plain = |text: &str| {
            !text.is_empty()
                && !text.starts_with('-')
                && text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_' | ':'))
        };
        for (what, text) in [("host", Some(&self.host)), ("user", self.user.as_ref())] {
            if text.is_some_and(|text| !plain(text)) {
                return Err(Error::failed(format!("{:?} is no name of a {what}", text.map_or("", String::as_str))));
            }
        }
        let mut arguments: Vec<String> = Vec::new();
        let mut option = |text: String| arguments.extend(["-o".to_owned(), text]);
        for text in ["BatchMode=yes", "StrictHostKeyChecking=yes", "ClearAllForwardings=yes", "ServerAliveInterval=15"]
        {
            option(text.to_owned());
        }
        match line {
            SshMultiplexing::None => option("ControlPath=none".to_owned()),
            SshMultiplexing::Shared(socket) => option(format!("ControlPath={}", escape_option_path(socket))),
            SshMultiplexing::Master(socket) => {
                option(format!("ControlPath={}", escape_option_path(socket)));
                option("ControlMaster=yes".to_owned());
            }
        }
        if let Some(file) = &self.known_hosts {
            option(format!("UserKnownHostsFile={}", escape_option_path(file)));
        }
        if let Some(key) = &self.key {
            option("IdentitiesOnly=yes".to_owned());
            arguments.extend(["-i".to_owned(), key.display().to_string()]);
        }
        if let Some(port) = self.port {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            arguments.extend(["-l".to_owned(), user.clone()]);
        }
        if matches!(line, SshMultiplexing::Master(_)) {
            arguments.push("-N".to_owned());
        }
        arguments.extend(["-T".to_owned(), "--".to_owned(), self.host.clone()]);
        Ok(arguments)
    }
}

/// Which connection a run of `ssh` uses.
#[derive(Clone, Copy)]
pub(super) enum SshMultiplexing<'a> {
    /// One of its own.
    None,
    /// The one behind this socket.
    Shared(&'a Path),
    /// Its own, for others to share through this socket. It runs no command.
    Master(&'a Path),
}

/// A path in a setting of `ssh`, where a space ends a word and `%` begins a name.
fn escape_option_path(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('%', "%%"))
}

/// Why `ssh` did not start.
pub(super) fn spawn_error(error: io::Error) -> Error {
    Error::failed(format!("the program `ssh` cannot be started ({error}); install it"))
}

/// An error with what `ssh` itself said about it.
pub(super) async fn with_stderr(error: Error, mut child: Child) -> Error {
    _ = child.start_kill();
    let said = child.wait_with_output().await.map(|out| String::from_utf8_lossy(&out.stderr).trim().to_owned());
    match said {
        Ok(said) if !said.is_empty() => Error::failed(format!("{error}; ssh said: {said}")),
        _ => error,
    }
}

/// The kernel ends the program when this process is gone, however it went.
#[allow(unsafe_code, reason = "what a child does between fork and exec has no safe form")]
fn set_pdeathsig(command: &mut Command) {
    let end = || Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?);
    // SAFETY: one system call without memory of its own, which is allowed between fork and exec.
    unsafe { command.pre_exec(end) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_never_an_option() {
        for host in ["-oProxyCommand=touch x", "a b", "", "a;b", "$(x)"] {
            let ssh = SshConfig { host: host.into(), ..SshConfig::default() };
            assert!(ssh.arguments(SshMultiplexing::None).is_err(), "{host}");
        }
        let ssh =
            SshConfig { host: "build-1".into(), user: Some("ci".into()), port: Some(2222), ..SshConfig::default() };
        let line = ssh.arguments(SshMultiplexing::None).unwrap().join(" ");
        assert!(line.ends_with("-p 2222 -l ci -T -- build-1"), "{line}");
        assert!(line.contains("StrictHostKeyChecking=yes"), "{line}");
    }
}
