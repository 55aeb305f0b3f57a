//! Access control: checks the host name, the origin and the token of a request.
//!
//! A web page can reach a local server through a DNS name (DNS rebinding) or directly. So the host and the origin
//! must be allowed, and neither suffices without the token.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HOST, HeaderName, ORIGIN},
    http::request::Parts,
};
use sha2::{Digest, Sha256};

use super::{
    body::HttpRefusal,
    options::{HttpConfig, RequestAccess},
};

/// Whether an address can be reached from this machine alone.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A caller, identified by the hash of its token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallerId([u8; 32]);

impl CallerId {
    fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// A constant-time comparison.
    fn ct_eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// The checks before a request is processed.
pub(crate) struct AccessControl {
    hosts: Vec<String>,
    origins: Vec<String>,
    callers: Vec<CallerId>,
}

impl AccessControl {
    /// The door of a server at this address.
    pub(crate) fn new(at: SocketAddr, options: &HttpConfig) -> Self {
        let port = at.port();
        let mut names: Vec<String> = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).into();
        if !at.ip().is_unspecified() {
            names.push(if at.is_ipv6() { format!("[{}]", at.ip()) } else { at.ip().to_string() });
        }
        let ours = names.iter().map(|name| format!("{name}:{port}"));
        let given = options.hosts.iter().flat_map(|it| {
            let name = it.to_ascii_lowercase();
            let with_port = format!("{name}:{port}");
            [name, with_port]
        });
        let hosts: Vec<_> =
            ours.chain((port == 80).then_some(names.clone()).into_iter().flatten()).chain(given).collect();
        let origins = names.iter().map(|name| format!("http://{name}:{port}"));
        let origins = origins.chain(options.origins.iter().map(|it| it.trim_end_matches('/').to_ascii_lowercase()));
        Self { origins: origins.collect(), hosts, callers: options.tokens.iter().map(|it| CallerId::of(it)).collect() }
    }

    /// Lets a request in, or says why not.
    pub(crate) fn authorize(&self, head: &Parts) -> Result<CallerId, HttpRefusal> {
        self.check_host_and_origin(head)?;
        self.authenticate(&head.headers)
    }

    /// Classifies a request whose token is checked elsewhere.
    pub(crate) fn classify(&self, head: &Parts) -> RequestAccess {
        match self.check_host_and_origin(head) {
            Err(refusal) => RequestAccess::Refused(refusal.status, refusal.why),
            Ok(()) if self.authenticate(&head.headers).is_ok() => RequestAccess::Authenticated,
            Ok(()) => RequestAccess::Anonymous,
        }
    }

    /// Whether the host and the origin are allowed.
    fn check_host_and_origin(&self, head: &Parts) -> Result<(), HttpRefusal> {
        let host = single_header(&head.headers, &HOST)?.ok_or_else(|| forbidden("Host is missing"))?;
        let asked = head.uri.authority().map(hyper::http::uri::Authority::as_str);
        for name in [Some(host), asked].into_iter().flatten() {
            if !self.hosts.contains(&name.to_ascii_lowercase()) {
                return Err(forbidden("this server does not answer to that Host"));
            }
        }
        if let Some(origin) = single_header(&head.headers, &ORIGIN)?
            && !self.origins.contains(&origin.to_ascii_lowercase())
        {
            return Err(forbidden("this Origin may not ask here"));
        }
        Ok(())
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<CallerId, HttpRefusal> {
        if self.callers.is_empty() {
            return Ok(CallerId([0; 32]));
        }
        let token = single_header(headers, &AUTHORIZATION)?.and_then(|it| {
            let (scheme, token) = it.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| CallerId::of(token.trim()))
        });
        let found = token.and_then(|token| self.callers.iter().find(|it| it.ct_eq(&token)));
        found.copied().ok_or_else(|| {
            HttpRefusal::new(StatusCode::UNAUTHORIZED, "a bearer token is needed: Authorization: Bearer TOKEN")
        })
    }
}

/// The value of a header that may be there once.
pub(crate) fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, HttpRefusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bad = || HttpRefusal::new(StatusCode::BAD_REQUEST, format!("the header {name} makes no sense"));
    if values.next().is_some() {
        return Err(bad());
    }
    value.to_str().map(|it| Some(it.trim())).map_err(|_| bad())
}

fn forbidden(why: &str) -> HttpRefusal {
    HttpRefusal::new(StatusCode::FORBIDDEN, why)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn tried(options: &HttpConfig, headers: &[(&str, &str)]) -> u16 {
        let door = AccessControl::new("127.0.0.1:8080".parse().unwrap(), options);
        let request = headers.iter().fold(Request::post("/mcp"), |it, (name, value)| it.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        door.authorize(&head).map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
    }

    #[test]
    fn answers_to_its_own_names_only() {
        let open = HttpConfig { hosts: vec!["Tools.Lan".into()], ..HttpConfig::default() };
        for ours in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080", "tools.lan", "tools.lan:8080"]
        {
            assert_eq!(tried(&open, &[("host", ours)]), 200, "{ours}");
        }
        for other in
            ["evil.tld", "evil.tld:8080", "127.0.0.1", "127.0.0.1:80", "localhost.:8080", "127.0.0.1.nip.io:8080"]
        {
            assert_eq!(tried(&open, &[("host", other)]), 403, "{other}");
        }
        assert_eq!(tried(&open, &[]), 403);
        assert_eq!(tried(&open, &[("host", "localhost:8080"), ("host", "evil.tld")]), 400);
    }

    #[test]
    fn lets_in_no_page_but_its_own() {
        let open = HttpConfig { origins: vec!["https://desk.example/".into()], ..HttpConfig::default() };
        let from = |origin| tried(&open, &[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(["http://localhost:8080", "http://127.0.0.1:8080", "https://desk.example"].map(from), [200; 3]);
        assert_eq!(["null", "https://evil.tld", "http://localhost", "https://localhost:8080", ""].map(from), [403; 5]);
    }

    #[test]
    fn wants_the_whole_token() {
        let closed = HttpConfig { tokens: vec!["secret".into()], ..HttpConfig::default() };
        let with = |value| tried(&closed, &[("host", "localhost:8080"), ("authorization", value)]);
        assert_eq!(["Bearer secret", "bearer secret"].map(with), [200; 2]);
        assert_eq!(["Bearer secre", "Bearer secret2", "Bearer ", "Basic secret", "secret"].map(with), [401; 5]);
        assert_eq!(tried(&closed, &[("host", "localhost:8080")]), 401);
    }
}
