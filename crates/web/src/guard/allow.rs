//! The operator's allowlist: hosts, hosts with a port, addresses and blocks.

use std::net::IpAddr;

use url::Host;

use super::ranges::block_contains;

/// One entry of the operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowEntry {
    what: AllowTarget,
    /// Only this port, if one is said.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowTarget {
    /// This name.
    Name(String),
    /// What is beneath this name.
    Subdomains(String),
    /// A block; a single address is one too.
    Block(IpAddr, u32),
}

impl AllowEntry {
    /// Takes `host`, `host:port`, `*.host`, an address (IPv6 in brackets where a port follows), `10.0.0.0/8`, or the
    /// address of a page, of which host and port count.
    pub(super) fn parse(entry: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{entry}` is not an entry of an allowlist: {why}");
        let text = entry.trim().to_ascii_lowercase();
        let (text, implied) = match text.split_once("://") {
            Some(("http" | "https", rest)) => {
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                // Without a port in it, a page's address means the port of its scheme.
                (authority.to_owned(), Some(if text.starts_with("https") { 443 } else { 80 }))
            }
            Some(_) => return Err(wrong("only http and https are fetched")),
            None => (text, None),
        };
        if let Some((start, length)) = text.split_once('/') {
            let start: IpAddr = start.trim_matches(['[', ']']).parse().map_err(|_| wrong("no block of addresses"))?;
            let most = if start.is_ipv4() { 32 } else { 128 };
            let length = length.parse().ok().filter(|it| *it <= most).ok_or_else(|| wrong("no length of a prefix"))?;
            return Ok(Self { what: AllowTarget::Block(start, length), port: None });
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self { what: single_address(address), port: implied });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| wrong("no port after the colon"))?)),
            None => (text.as_str(), implied),
        };
        let beneath = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
        let what = match Host::parse(beneath.unwrap_or(host)).map_err(|_| wrong("no host"))? {
            Host::Ipv4(four) => single_address(four.into()),
            Host::Ipv6(six) => single_address(six.into()),
            Host::Domain(name) => {
                let name = name.trim_end_matches('.').to_owned();
                if name.is_empty() || name.contains('*') {
                    return Err(wrong("`*.` stands at the front only"));
                }
                if beneath.is_some() { AllowTarget::Subdomains(name) } else { AllowTarget::Name(name) }
            }
        };
        Ok(Self { what, port })
    }

    /// Whether it opens a name.
    pub(super) fn allows_name(&self, name: &str, port: u16) -> bool {
        self.port.is_none_or(|it| it == port)
            && match &self.what {
                AllowTarget::Name(it) => it == name,
                AllowTarget::Subdomains(it) => name.strip_suffix(it.as_str()).is_some_and(|rest| rest.ends_with('.')),
                AllowTarget::Block(..) => false,
            }
    }

    /// Whether it opens an address.
    pub(super) fn allows_address(&self, address: IpAddr, port: u16) -> bool {
        let AllowTarget::Block(start, length) = self.what else { return false };
        self.port.is_none_or(|it| it == port) && block_contains(start, length, address)
    }

    /// Whether it is about addresses, so that a name has to be looked up first.
    pub(super) fn is_block(&self) -> bool {
        matches!(self.what, AllowTarget::Block(..))
    }
}

fn single_address(address: IpAddr) -> AllowTarget {
    AllowTarget::Block(address, if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_open_what_they_say_and_nothing_beside_it() {
        let opens = |entry: &str, host: &str, port: u16| {
            let allow = AllowEntry::parse(entry).unwrap();
            host.parse().map_or_else(|_| allow.allows_name(host, port), |it| allow.allows_address(it, port))
        };
        for (entry, host, port) in [
            ("wiki.corp", "wiki.corp", 80),
            ("wiki.corp:8080", "wiki.corp", 8080),
            ("https://Wiki.corp/start", "wiki.corp", 443),
            ("http://127.0.0.1:18970/x", "127.0.0.1", 18970),
            ("*.corp.example", "a.b.corp.example", 80),
            (".corp.example", "a.corp.example", 80),
            ("127.0.0.1", "127.0.0.1", 9999),
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("10.0.0.0/8", "10.9.8.7", 1),
            ("::1", "::1", 5),
            ("[::1]:80", "::1", 80),
            ("fd00::/8", "fd12::1", 443),
            ("localhost", "localhost", 3000),
        ] {
            assert!(opens(entry, host, port), "{entry} {host} {port}");
        }
        for (entry, host, port) in [
            ("docs.x.io", "docs.x.io.evil.com", 443),
            ("docs.x.io", "evildocs.x.io", 443),
            ("*.x.io", "x.io", 443),
            ("*.x.io", "evilx.io", 443),
            ("wiki.corp:8080", "wiki.corp", 80),
            ("127.0.0.1:80", "127.0.0.1", 81),
            ("10.0.0.0/8", "11.0.0.0", 80),
            ("https://wiki.corp/", "wiki.corp", 80),
        ] {
            assert!(!opens(entry, host, port), "{entry} {host} {port}");
        }
        for entry in ["", "*", "*.*", "10.0.0.0/33", "x/8", "ftp://x", "x:y", "a b"] {
            assert!(AllowEntry::parse(entry).is_err(), "{entry}");
        }
    }
}
