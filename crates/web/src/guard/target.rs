//! Strict parsing of URLs: ambiguous ones are refused, so that the checked and the connected address are the same.

use std::{fmt, net::IpAddr};

use helve_contract::{Error, Result, invisible};
use url::{Host, Url};

/// The longest address.
const MAX_URL_BYTES: usize = 8192;

/// An http or https address whose host and port have one reading only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: String,
    port: u16,
}

impl Target {
    /// Takes an address as a model, a person or a page wrote it.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim_matches([' ', '\n', '\r', '\t']);
        if text.is_empty() {
            return Err(Error::failed("the address is empty; give one such as https://example.com/page"));
        }
        if text.len() > MAX_URL_BYTES {
            return Err(invalid_url_error("an address", format!("it is longer than {MAX_URL_BYTES} bytes")));
        }
        // A plain space in a path has one reading, and people write it; in a host it is refused below.
        let blank = |it: char| it.is_whitespace() && it != ' ';
        if let Some(odd) = text.chars().find(|it| blank(*it) || it.is_control() || invisible(*it).is_some()) {
            let code = u32::from(odd);
            return Err(invalid_url_error(
                text,
                format!("it has a blank or an invisible character (U+{code:04X}) in it"),
            ));
        }
        let rest = after_scheme(text)?;
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        check_authority(text, authority)?;
        let url = Url::parse(text).map_err(|error| invalid_url_error(text, format!("it is no address ({error})")))?;
        let target = Self::from_url(url)?;
        target.check_canonical(text, authority)?;
        Ok(target)
    }

    /// Where a redirect leads, from here.
    pub fn join(&self, location: &str) -> Result<Self> {
        if location.chars().any(|it| it.is_control() || invisible(it).is_some()) {
            return Err(invalid_url_error("the redirect's address", "it has an invisible character in it"));
        }
        let url = self.url.join(location.trim_matches(' '));
        Self::from_url(url.map_err(|error| invalid_url_error(location, format!("it is no address ({error})")))?)
    }

    /// Takes what the parser made of an address. Nothing here looks at the text again.
    fn from_url(mut url: Url) -> Result<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unsupported_scheme(url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid_url_error(&redact(&url), "it carries a user name or password; give it without"));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => domain(&url, name)?,
            Some(Host::Ipv4(four)) => four.to_string(),
            Some(Host::Ipv6(six)) => six.to_string(),
            None => return Err(invalid_url_error(&redact(&url), "it has no host")),
        };
        let port = url.port_or_known_default().filter(|port| *port != 0);
        let port = port.ok_or_else(|| invalid_url_error(&redact(&url), "0 is no port"))?;
        url.set_fragment(None);
        Ok(Self { url, host, port })
    }

    /// The URL parser normalises odd spellings; a changed spelling was ambiguous.
    fn check_canonical(&self, text: &str, authority: &str) -> Result<()> {
        let (host, port) = split_port(authority);
        if port.is_some_and(|port| port.is_empty() || port.len() > 5 || !port.bytes().all(|it| it.is_ascii_digit())) {
            return Err(invalid_url_error(text, "its port is not a plain number"));
        }
        let same = match self.address() {
            Some(IpAddr::V4(four)) => host == four.to_string(),
            Some(IpAddr::V6(six)) => host.trim_matches(['[', ']']).parse() == Ok(six),
            None => host.is_ascii() || self.host.split('.').any(|label| label.starts_with("xn--")),
        };
        if !same {
            let host = &self.host;
            return Err(invalid_url_error(text, format!("its host is an odd spelling of {host}; write it plainly")));
        }
        Ok(())
    }

    /// The address as it is asked for.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host: a name in lower-case ASCII without a dot at its end, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, said or understood.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host, if it is an address and no name.
    pub fn address(&self) -> Option<IpAddr> {
        match self.url.host() {
            Some(Host::Ipv4(four)) => Some(four.into()),
            Some(Host::Ipv6(six)) => Some(six.into()),
            _ => None,
        }
    }

    /// Whether TLS is spoken.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The same address over TLS, unless it is already or names a port of its own.
    #[must_use]
    pub fn to_https(&self) -> Option<Self> {
        if self.is_https() || self.url.port().is_some() {
            return None;
        }
        let mut url = self.url.clone();
        url.set_scheme("https").ok()?;
        Self::from_url(url).ok()
    }

    /// Whether both speak the same way to the same host and port.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.url.scheme() == other.url.scheme() && self.host == other.host && self.port == other.port
    }

    /// Whether both are on one host; `www.` before it makes no other one.
    pub fn same_host(&self, other: &Self) -> bool {
        fn bare(host: &str) -> &str {
            host.strip_prefix("www.").unwrap_or(host)
        }
        bare(&self.host) == bare(&other.host)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

/// What follows `http://` or `https://`; nothing else is fetched.
fn after_scheme(text: &str) -> Result<&str> {
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    let length = ["https://", "http://"].iter().find(|it| lower.starts_with(**it)).map(|it| it.len());
    if let Some(rest) = length.and_then(|it| text.get(it..)) {
        return Ok(rest);
    }
    match text.split_once(':') {
        Some((scheme, _)) if !scheme.contains(['.', '/', '[']) && !scheme.eq_ignore_ascii_case("localhost") => {
            Err(match scheme.to_ascii_lowercase().as_str() {
                same @ ("http" | "https") => {
                    invalid_url_error(text, format!("`{same}:` is followed by `//` and a host"))
                }
                other => unsupported_scheme(other),
            })
        }
        _ => Err(Error::failed("the address has no scheme; write it in full, such as https://example.com/page")),
    }
}

fn unsupported_scheme(scheme: &str) -> Error {
    let scheme: String = scheme.chars().take(20).collect();
    Error::denied(format!("only http and https addresses are fetched, not `{scheme}:`"))
}

/// The part between the slashes, before anything is parsed: no user, no escapes, no second reading.
fn check_authority(text: &str, authority: &str) -> Result<()> {
    let why = match authority {
        "" => "it has no host",
        it if it.contains('@') => "it carries a user name or password (`@` before the path); give it without",
        it if it.contains('\\') => "it has a backslash in its host",
        it if it.contains(' ') => "it has a space in its host",
        it if it.contains('%') => "its host has a `%` in it; write it plainly",
        it if it.starts_with(':') => "it has no host",
        it if it.contains("..") || it.starts_with('.') => "its host has an empty part",
        _ => return Ok(()),
    };
    Err(invalid_url_error(text, why))
}

/// Host and port of an authority that carries no user.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let after = authority.rfind(']').map_or(0, |it| it + 1);
    match authority[after..].find(':') {
        Some(colon) => (&authority[..after + colon], Some(&authority[after + colon + 1..])),
        None => (authority, None),
    }
}

/// A name that could be a name in the DNS.
fn domain(url: &Url, name: &str) -> Result<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = |it: &str| {
        (1..=63).contains(&it.len()) && it.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(invalid_url_error(&redact(url), "its host is no name that could exist"));
    }
    Ok(name.to_ascii_lowercase())
}

/// The address without what may be secret in it.
fn redact(url: &Url) -> String {
    format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default())
}

fn invalid_url_error(text: &str, why: impl fmt::Display) -> Error {
    let mut short: String = text.chars().filter(|it| !it.is_control() && invisible(*it).is_none()).take(100).collect();
    if short.len() < text.len() && short.chars().count() == 100 {
        short.push('…');
    }
    Error::denied(format!("{short} was not fetched: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        match Target::parse(text) {
            Ok(target) => format!("{} {} {}", target.host(), target.port(), target.url()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn takes_plain_addresses() {
        for (text, expected) in [
            ("http://example.com", "example.com 80 http://example.com/"),
            (" https://Example.COM:8443/a b?q r#frag ", "example.com 8443 https://example.com:8443/a%20b?q%20r"),
            (" https://Example.COM:8443/a?q#frag\n", "example.com 8443 https://example.com:8443/a?q"),
            ("http://example.com./x", "example.com 80 http://example.com./x"),
            ("http://93.184.216.34/", "93.184.216.34 80 http://93.184.216.34/"),
            ("http://[2606:4700:0::1111]:8080/", "2606:4700::1111 8080 http://[2606:4700::1111]:8080/"),
            ("https://bücher.example/ü", "xn--bcher-kva.example 443 https://xn--bcher-kva.example/%C3%BC"),
            ("http://example.com/a@b?c=@d#@e", "example.com 80 http://example.com/a@b?c=@d"),
            ("http://under_score.example", "under_score.example 80 http://under_score.example/"),
        ] {
            assert_eq!(said(text), expected);
        }
    }

    #[test]
    fn refuses_what_can_be_read_in_two_ways() {
        for text in [
            "http://2130706433/",
            "http://0x7f.1",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://127.1/",
            "http://127.0.1",
            "http://0/",
            "http://0x0/",
            "http://127.0.0.1./",
            "http://127.0.0.1..",
            "http://①②⑦.0.0.1/",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
            "http://127．0．0．1/",
            "http://ｌocalhost/",
            "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
            "http://local\u{ad}host/",
            "http://local\u{200b}host/",
            "http://a@127.0.0.1/",
            "http://public.example:80@127.0.0.1/",
            "http://a:b@c/",
            "http://@127.0.0.1/",
            "http://127.0.0.1\\@public.example/",
            "http:\\\\127.0.0.1\\",
            "http://public.example\\.evil/",
            "http:127.0.0.1",
            "http:/127.0.0.1",
            "http:///127.0.0.1",
            "http://",
            "http://:80/",
            "http://?x",
            "//127.0.0.1/",
            "127.0.0.1",
            "localhost:80",
            "http://%31%32%37.0.0.1/",
            "http://localhost%00.example/",
            "http://[::1%25lo]/",
            "http://[::1%lo]/",
            "http://[fe80::1%eth0]/",
            "http://[::1",
            "http://::1/",
            "http://[v1.x]/",
            "http://[1.2.3.4]/",
            "http://exa\tmple.com/",
            "http://exa\nmple.com",
            "http://example.com:+80/",
            "http://example.com:８０/",
            "http://example.com:/",
            "http://example.com:000080/",
            "http://example.com:0/",
            "http://example.com:99999/",
            "http://a..b/",
            "http://.a/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
            "http://0x7f.0x0.0x0.0x1",
            "file:///etc/passwd",
            "gopher://x",
            "ftp://x/",
            "data:text/html,x",
            "javascript:alert(1)",
            "jar:http://x!/y",
            "view-source:http://x/",
            "blob:http://x/",
            "http+unix://x",
            "httpx://a",
            "dict://x:11211/",
            "ws://x/",
            "about:blank",
            "",
            "   ",
            "hello",
            "http://exam ple.com/",
            "http://a,b/",
            "http://a|b/",
            "http://<x>/",
            "http://a^b/",
            "http://*/",
        ] {
            assert!(Target::parse(text).is_err(), "{text} became {}", said(text));
        }
    }

    #[test]
    fn says_what_is_wrong_with_an_address() {
        for (text, expected) in [
            (
                "http://127.1/",
                "http://127.1/ was not fetched: its host is an odd spelling of 127.0.0.1; write it plainly",
            ),
            ("FILE:///etc", "only http and https addresses are fetched, not `file:`"),
            ("http:127.0.0.1", "http:127.0.0.1 was not fetched: `http:` is followed by `//` and a host"),
            ("example.com/x", "the address has no scheme; write it in full, such as https://example.com/page"),
            (
                "http://u:p@x/",
                "http://u:p@x/ was not fetched: it carries a user name or password (`@` before the path); give it without",
            ),
        ] {
            assert_eq!(said(text), expected);
        }
    }

    #[test]
    fn a_redirect_is_read_from_where_it_stands() {
        let here = Target::parse("http://example.com/a/b").unwrap();
        let there = |location: &str| here.join(location).map_or_else(|it| it.to_string(), |it| it.to_string());
        assert_eq!(there("../c?d#e"), "http://example.com/c?d");
        assert_eq!(there("//other.example/x"), "http://other.example/x");
        assert_eq!(there("http://0x7f.1/"), "http://127.0.0.1/");
        assert_eq!(there("file:///etc/passwd"), "only http and https addresses are fetched, not `file:`");
        assert_eq!(
            there("http://a:b@other.example/"),
            "http://other.example was not fetched: it carries a user name or password; give it without"
        );
    }

    #[test]
    fn goes_up_to_tls_where_no_port_is_said() {
        let up = |text: &str| Target::parse(text).unwrap().to_https().map(|it| (it.to_string(), it.port()));
        assert_eq!(up("http://example.com/x"), Some(("https://example.com/x".into(), 443)));
        assert_eq!([up("https://example.com/"), up("http://example.com:8080/")], [None, None]);
    }
}
