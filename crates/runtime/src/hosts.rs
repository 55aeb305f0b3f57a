//! The kinds of hosts by the settings: what each needs, and whether it can be used. Open it to add a kind.

use std::{path::PathBuf, time::Duration};

use helve_hosts::{Docker, E2bHost, HostSettings, Ssh, SshHost};

use crate::config::{HostKind, Settings};

/// How long a host has to answer.
const PROBE: Duration = Duration::from_secs(15);

/// What was found out about one kind of host.
pub struct HostReport {
    /// `docker`, `ssh` or `e2b`.
    pub kind: HostKind,
    /// Whether `host.kind` names it.
    pub is_selected: bool,
    /// What works there; an error says what to do.
    pub found: Result<String, String>,
}

/// The settings of a host on another machine or in a container. The error names the setting that is missing.
pub fn configured(settings: &Settings, kind: HostKind) -> Result<Option<HostSettings>, String> {
    let host = &settings.config.host;
    let dir = |dir: &Option<String>| dir.as_ref().map_or_else(|| settings.workspace.clone(), PathBuf::from);
    Ok(Some(match kind {
        HostKind::Local => return Ok(None),
        HostKind::Docker => HostSettings::Docker(Docker {
            endpoint: host.docker.endpoint.clone(),
            image: host.docker.image.clone(),
            network: host.docker.network.clone(),
            user: host.docker.user.clone(),
            ..Docker::default()
        }),
        HostKind::Ssh => {
            let name = host.ssh.host.clone().ok_or("not configured: set `host.ssh.host`")?;
            HostSettings::Ssh(SshHost {
                connection: Ssh {
                    host: name,
                    user: host.ssh.user.clone(),
                    port: Some(host.ssh.port),
                    key: host.ssh.key.as_ref().map(|it| it.to_path_buf()),
                    known_hosts: host.ssh.known_hosts.as_ref().map(|it| it.to_path_buf()),
                    program: None,
                },
                workspace: dir(&host.ssh.dir),
            })
        }
        HostKind::E2b => {
            let variable = &host.e2b.key_env;
            if std::env::var_os(variable).is_none_or(|it| it.is_empty()) {
                return Err(format!("not configured: set the environment variable {variable}"));
            }
            HostSettings::E2b(E2bHost {
                key_variable: variable.clone(),
                url: host.e2b.url.clone(),
                template: host.e2b.template.clone(),
                workspace: dir(&host.e2b.dir),
                ..E2bHost::default()
            })
        }
    }))
}

/// Tries every kind of host but this machine, side by side. Hosts that are not configured are not contacted.
pub async fn probe(settings: &Settings) -> Vec<HostReport> {
    let kinds = [HostKind::Docker, HostKind::Ssh, HostKind::E2b];
    let reports = kinds.map(|kind| async move {
        let found = match configured(settings, kind) {
            Ok(Some(host)) => match tokio::time::timeout(PROBE, host.probe()).await {
                Ok(Ok(facts)) => Ok(facts.join("; ")),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {} s", PROBE.as_secs())),
            },
            Ok(None) => Ok(String::new()),
            Err(why) => Err(why),
        };
        HostReport { kind, is_selected: settings.config.host.kind == kind, found }
    });
    let [docker, ssh, e2b] = reports;
    let (docker, ssh, e2b) = tokio::join!(docker, ssh, e2b);
    vec![docker, ssh, e2b]
}
