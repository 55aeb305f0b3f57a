//! The hosts that commands may reach.

use std::net::IpAddr;

use url::Host;

/// The operator's list: `example.org`, `*.example.org`, either with a port, or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAllowlist(Vec<HostEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostEntry {
    name: String,
    subdomains: bool,
    port: Option<u16>,
    address: bool,
}

impl HostAllowlist {
    /// Reads the list, or says what is wrong with it.
    pub fn new<T: AsRef<str>>(entries: impl IntoIterator<Item = T>) -> Result<Self, String> {
        entries.into_iter().map(|it| parse_entry(it.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a host may be reached at a port: the one it is listed with, else the usual one of its scheme.
    #[must_use]
    pub fn allows(&self, host: &str, port: u16, usual: u16) -> bool {
        self.0.iter().any(|entry| {
            let named = match (entry.subdomains, host.strip_suffix(entry.name.as_str())) {
                (true, Some(rest)) => rest.ends_with('.'),
                (false, Some(rest)) => rest.is_empty(),
                (_, None) => false,
            };
            named && port == entry.port.unwrap_or(usual)
        })
    }

    /// The entries that are addresses. They are configured, so they may be private; names must not resolve to private
    /// addresses.
    pub(super) fn addresses(&self) -> Vec<String> {
        let shown = |entry: &HostEntry| match (entry.port, entry.name.contains(':')) {
            (Some(port), true) => format!("[{}]:{port}", entry.name),
            (Some(port), false) => format!("{}:{port}", entry.name),
            (None, _) => entry.name.clone(),
        };
        self.0.iter().filter(|it| it.address).map(shown).collect()
    }

    /// The list, for a message.
    #[must_use]
    pub fn describe(&self) -> String {
        let shown: Vec<_> = self
            .0
            .iter()
            .take(20)
            .map(|it| {
                let star = if it.subdomains { "*." } else { "" };
                let port = it.port.map(|port| format!(":{port}")).unwrap_or_default();
                format!("{star}{}{port}", it.name)
            })
            .collect();
        match (shown.is_empty(), self.0.len() > shown.len()) {
            (true, _) => "none".to_owned(),
            (false, false) => shown.join(", "),
            (false, true) => format!("{}, …", shown.join(", ")),
        }
    }
}

fn parse_entry(text: &str) -> Result<HostEntry, String> {
    let wrong = |why: &str| format!("`{text}` is not a host: {why}");
    let plain = text.trim().to_ascii_lowercase();
    if let Ok(address) = plain.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(HostEntry { name: address.to_string(), subdomains: false, port: None, address: true });
    }
    let (host, port) = match plain.rsplit_once(':') {
        Some((host, port)) => {
            let port =
                port.parse().ok().filter(|it| *it != 0).ok_or_else(|| wrong("what follows the colon is no port"))?;
            (host, Some(port))
        }
        None => (plain.as_str(), None),
    };
    let (beneath, host) = host.strip_prefix("*.").map_or((false, host), |rest| (true, rest));
    match Host::parse(host).map_err(|_| wrong("write it as in example.org or *.example.org"))? {
        Host::Domain(name) if !name.contains('*') => {
            let name = name.trim_end_matches('.').to_owned();
            Ok(HostEntry { name, subdomains: beneath, port, address: false })
        }
        Host::Ipv4(it) if !beneath => Ok(HostEntry { name: it.to_string(), subdomains: beneath, port, address: true }),
        Host::Ipv6(it) if !beneath => Ok(HostEntry { name: it.to_string(), subdomains: beneath, port, address: true }),
        _ => Err(wrong("`*.` stands before a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_on_the_list_or_not() {
        let hosts =
            HostAllowlist::new(["Example.org", "*.crates.io", "registry.local:8080", "10.0.0.7:81", "[::1]:82"])
                .unwrap();
        let seen = [
            ("example.org", 443),
            ("example.org", 22),
            ("www.example.org", 443),
            ("static.crates.io", 443),
            ("crates.io", 443),
            ("evilcrates.io", 443),
            ("registry.local", 8080),
            ("registry.local", 443),
            ("10.0.0.7", 81),
            ("::1", 82),
        ]
        .map(|(host, port)| hosts.allows(host, port, 443));
        assert_eq!(seen, [true, false, false, true, false, false, true, false, true, true]);
        assert_eq!(hosts.addresses(), ["10.0.0.7:81", "[::1]:82"]);
        assert_eq!(hosts.describe(), "example.org, *.crates.io, registry.local:8080, 10.0.0.7:81, ::1:82");
        for wrong in ["", "*", "a b", "x:y", "*.*", "*.10.0.0.7"] {
            assert!(HostAllowlist::new([wrong]).is_err(), "{wrong}");
        }
    }
}
