//! Connects over `ssh`, with one connection for everything.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use helve_contract::{Error, Result, Workspace};
use tokio::process::{Child, Command};

use super::RemoteClient;

/// How to reach another machine. Every value comes from the configuration, never from a model.
#[derive(Clone, Debug, Default)]
pub struct SshConfig {
    /// The host name or address.
    pub host: String,
    /// The user name.
    pub user: Option<String>,
    /// The port of the SSH server.
    pub port: Option<u16>,
    /// The file of the private key.
    pub key: Option<PathBuf>,
    /// The known-hosts file; the user's file by default. An unknown host is refused.
    pub known_hosts: Option<PathBuf>,
    /// The `helve` program on the other machine.
    pub program: Option<String>,
}

impl SshConfig {
    /// Connects and starts the server side.
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
                // Nothing reads the server's standard error, but it must be drained.
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

    /// The `ssh` program, prepared for a remote command; it ends with this process.
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

    /// The arguments before the remote command. `ssh` never prompts and refuses unknown hosts.
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

#[derive(Clone, Copy)]
pub(super) enum SshMultiplexing<'a> {
    /// A separate connection.
    None,
    /// The shared connection at this socket.
    Shared(&'a Path),
    /// A connection that others share through this socket. It runs no command.
    Master(&'a Path),
}

/// Escapes a path for an `ssh` option, where a space ends a word and `%` starts a token.
fn escape_option_path(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('%', "%%"))
}

/// The error for a failed start of `ssh`.
pub(super) fn spawn_error(error: io::Error) -> Error {
    Error::failed(format!("the program `ssh` cannot be started ({error}); install it"))
}

/// Adds the standard error of `ssh` to an error.
pub(super) async fn with_stderr(error: Error, mut child: Child) -> Error {
    _ = child.start_kill();
    let said = child.wait_with_output().await.map(|out| String::from_utf8_lossy(&out.stderr).trim().to_owned());
    match said {
        Ok(said) if !said.is_empty() => Error::failed(format!("{error}; ssh said: {said}")),
        _ => error,
    }
}

/// The kernel kills the program when this process exits for any reason.
#[allow(unsafe_code, reason = "what a child does between fork and exec has no safe form")]
fn set_pdeathsig(command: &mut Command) {
    let end = || Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?);
    // SAFETY: the closure makes one system call and allocates nothing, so it is safe between fork and exec.
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
