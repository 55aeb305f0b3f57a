//! The far end over `ssh`: one connection that everything goes through.

use std::{path::PathBuf, process::Stdio};

use helve_contract::{Error, Result, Workspace};
use tokio::process::Command;

use super::Remote;

/// How to reach another machine. Every part comes from configuration, never from a model.
#[derive(Clone, Debug, Default)]
pub struct Ssh {
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

impl Ssh {
    /// Connects, and starts the far end.
    pub async fn connect(&self, workspace: &Workspace) -> Result<Remote> {
        let mut command = Command::new("ssh");
        command
            .args(self.arguments()?)
            .arg(format!("{} host-serve", self.program.as_deref().unwrap_or("helve")))
            .env_remove("SSH_ASKPASS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| Error::failed(format!("the program `ssh` cannot be started ({error}); install it")))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::failed("ssh was started without its pipes"));
        };
        let name = format!("ssh {}", self.host);
        match Remote::connect(name, workspace, from, to).await {
            Ok(remote) => {
                tokio::spawn(async move { child.wait().await });
                Ok(remote)
            }
            Err(error) => {
                _ = child.start_kill();
                let said =
                    child.wait_with_output().await.map(|out| String::from_utf8_lossy(&out.stderr).trim().to_owned());
                match said {
                    Ok(said) if !said.is_empty() => Err(Error::failed(format!("{error}; ssh said: {said}"))),
                    _ => Err(error),
                }
            }
        }
    }

    /// The arguments up to the remote command. Nothing is asked on a terminal, and an unknown host is refused.
    pub(super) fn arguments(&self) -> Result<Vec<String>> {
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
        if let Some(file) = &self.known_hosts {
            option(format!("UserKnownHostsFile={}", file.display()));
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
        arguments.extend(["-T".to_owned(), "--".to_owned(), self.host.clone()]);
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_never_an_option() {
        for host in ["-oProxyCommand=touch x", "a b", "", "a;b", "$(x)"] {
            let ssh = Ssh { host: host.into(), ..Ssh::default() };
            assert!(ssh.arguments().is_err(), "{host}");
        }
        let ssh = Ssh { host: "build-1".into(), user: Some("ci".into()), port: Some(2222), ..Ssh::default() };
        let line = ssh.arguments().unwrap().join(" ");
        assert!(line.ends_with("-p 2222 -l ci -T -- build-1"), "{line}");
        assert!(line.contains("StrictHostKeyChecking=yes"), "{line}");
    }
}
