//! Checks every kind of host that settings can name, for `helve doctor`.

use std::time::Duration;

use helve_hosts::HostSettings;

use crate::{
    config::{HostKind, Settings},
    shell,
};

/// The timeout of a host check.
const PROBE: Duration = Duration::from_secs(15);

/// The result of a host check.
pub struct HostReport {
    /// `docker`, `ssh` or `e2b`.
    pub kind: HostKind,
    /// Whether `host.kind` names it.
    pub is_selected: bool,
    /// What works there; the error says what to do.
    pub found: Result<String, String>,
}

/// The settings of a host on another machine or in a container. The error names the setting that is missing.
fn configured(settings: &Settings, kind: HostKind) -> Result<Option<HostSettings>, String> {
    Ok(Some(match kind {
        HostKind::Local => return Ok(None),
        HostKind::Docker => HostSettings::Docker(shell::docker_host(settings, Vec::new())),
        HostKind::Ssh => HostSettings::Ssh(shell::ssh_host(settings).map_err(|fault| fault.to_string())?),
        HostKind::E2b => {
            let variable = &settings.config.host.e2b.key_env;
            if std::env::var_os(variable).is_none_or(|it| it.is_empty()) {
                return Err(format!("not configured: set the environment variable {variable}"));
            }
            HostSettings::E2b(shell::e2b_host(settings))
        }
    }))
}

/// Checks every kind of remote host in parallel. Hosts that are not configured are not contacted.
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
