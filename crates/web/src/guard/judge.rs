//! The address guard: returns the addresses that may be connected to, or the rule that forbids them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use helve_contract::{Error, Result};
use tokio::time::timeout;

use super::{Resolver, SystemResolver, Target, allow::AllowEntry, non_public_reason};

/// How long a name may take to be found.
const DNS_TIMEOUT: Duration = Duration::from_secs(10);
/// More addresses than any honest server returns.
const MAX_ADDRESSES: usize = 256;
/// Names that never mean the public internet, with what is beneath them.
const LOCAL_NAMES: &[&str] =
    &["localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa", "ip6-localhost", "ip6-loopback"];
/// Ports of services that tolerate garbage, which browsers block too.
const BLOCKED_PORTS: &[u16] = &[
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
    111, 113, 115, 117, 119, 123, 135, 137, 138, 139, 143, 161, 179, 389, 427, 445, 465, 512, 513, 514, 515, 526, 530,
    531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1433, 1521, 1719, 1720, 1723, 2049, 2375,
    2376, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697,
    10080, 11211, 27017,
];

/// Decides which addresses may be reached. Cheap to clone.
#[derive(Clone)]
pub struct AddressGuard {
    allow: Arc<[AllowEntry]>,
    reach: ReachPolicy,
    /// Whether the hosts come from the settings or the program, not from a model.
    has_configured_hosts: bool,
    resolver: Arc<dyn Resolver>,
}

/// How far requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachPolicy {
    /// The public internet, and what the operator opened.
    Public,
    /// What the operator opened, and nothing else.
    ListedOnly,
}

/// A target whose addresses were all checked. Only these may be connected to.
#[derive(Clone, Debug)]
pub struct AdmittedTarget {
    /// Where it goes.
    pub target: Target,
    /// The addresses to dial, in the resolver's order.
    pub addresses: Vec<SocketAddr>,
}

impl Default for AddressGuard {
    fn default() -> Self {
        Self {
            allow: Arc::new([]),
            reach: ReachPolicy::Public,
            has_configured_hosts: false,
            resolver: Arc::new(SystemResolver),
        }
    }
}

impl AddressGuard {
    /// A guard that admits only the public internet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits what the operator lists: `host`, `host:port`, `*.host`, an address, a block such as `10.0.0.0/8`.
    /// Listed hosts may be private.
    pub fn with_allowlist<T: AsRef<str>>(self, entries: impl IntoIterator<Item = T>) -> Result<Self, String> {
        let more = entries.into_iter().map(|it| AllowEntry::parse(it.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let allow = self.allow.iter().cloned().chain(more).collect();
        Ok(Self { allow, ..self })
    }

    /// Admits only listed hosts.
    #[must_use]
    pub fn listed_only(self) -> Self {
        Self { reach: ReachPolicy::ListedOnly, has_configured_hosts: true, ..self }
    }

    /// For a configured service: errors do not ask the model to check the spelling.
    #[must_use]
    pub fn for_service(self) -> Self {
        Self { has_configured_hosts: true, ..self }
    }

    /// Finds names another way.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, ..self }
    }

    /// Resolves the target once and checks every address. One forbidden address forbids the target.
    pub async fn admit(&self, target: Target) -> Result<AdmittedTarget> {
        self.check_name(&target)?;
        let addresses = self.look_up(&target).await?;
        for address in &addresses {
            self.check_address(&target, *address)?;
        }
        Ok(AdmittedTarget { target, addresses })
    }

    /// Checks a target that a proxy will connect to: its name, and its addresses as far as they resolve here.
    pub async fn check_for_proxy(&self, target: &Target) -> Result<()> {
        self.check_name(target)?;
        for address in self.look_up(target).await.unwrap_or_default() {
            self.check_address(target, address)?;
        }
        Ok(())
    }

    /// The error for an unknown name. Without a network every name is unknown, so that is checked first. A configured
    /// name is not the model's to correct.
    fn not_found(&self, host: &str, error: &io::Error) -> Error {
        let what = format!("{host} was not reached: its name could not be resolved ({error})");
        Error::failed(if !self.resolver.has_route() {
            format!("{what}, because this machine has no network connection. Try again later, or go on without it")
        } else if is_unanswered(error) {
            format!("{what}. The network or its name server is down. Try again later, or go on without it")
        } else if self.has_configured_hosts {
            format!(
                "{what}. This session is set up with it. The network may be off; if it is on, ask the user to check the \
                 settings"
            )
        } else {
            format!("{what}. Check the spelling; if it is right, the network may be off")
        })
    }

    async fn look_up(&self, target: &Target) -> Result<Vec<SocketAddr>> {
        if let Some(address) = target.address() {
            return Ok(vec![SocketAddr::new(address, target.port())]);
        }
        let host = target.host();
        let found = timeout(DNS_TIMEOUT, self.resolver.resolve(host, target.port())).await;
        let mut found = found
            .map_err(|_| {
                Error::failed(format!("{host} could not be looked up within {} seconds", DNS_TIMEOUT.as_secs()))
            })?
            .map_err(|error| self.not_found(host, &error))?;
        if found.is_empty() {
            return Err(Error::failed(format!("{host} has no address; check the spelling")));
        }
        if found.len() > MAX_ADDRESSES {
            return Err(refused_error(target, &format!("its name has more than {MAX_ADDRESSES} addresses")));
        }
        for address in &mut found {
            address.set_port(target.port());
        }
        Ok(found)
    }

    /// What can be said before any look-up: the list, the name, the port.
    fn check_name(&self, target: &Target) -> Result<()> {
        let (host, port) = (target.host(), target.port());
        if self.is_allowlisted(target) {
            return Ok(());
        }
        if self.reach == ReachPolicy::ListedOnly && !self.allow.iter().any(AllowEntry::is_block) {
            return Err(refused_error(target, "only hosts that the operator listed may be reached"));
        }
        if let Some(inner) = LOCAL_NAMES.iter().find(|it| is_subdomain(host, it)) {
            return Err(refused_error(target, &format!("names in `{inner}` are inside this machine or its network")));
        }
        if BLOCKED_PORTS.contains(&port) {
            return Err(refused_error(target, &format!("port {port} belongs to another kind of service")));
        }
        Ok(())
    }

    fn check_address(&self, target: &Target, address: SocketAddr) -> Result<()> {
        let ip = address.ip();
        if self.is_allowlisted(target) || self.allow.iter().any(|it| it.allows_address(ip, address.port())) {
            return Ok(());
        }
        if self.reach == ReachPolicy::ListedOnly {
            return Err(refused_error(target, "only hosts that the operator listed may be reached"));
        }
        if matches!(address, SocketAddr::V6(six) if six.scope_id() != 0) {
            return Err(refused_error(target, "its address belongs to one interface of this machine"));
        }
        match non_public_reason(ip) {
            Some(what) if target.address().is_some() => Err(refused_error(target, &format!("{ip} is {what}"))),
            Some(what) => Err(refused_error(target, &format!("the name leads to {ip}, which is {what}"))),
            None => Ok(()),
        }
    }

    /// Whether the operator opened the host as it is written.
    fn is_allowlisted(&self, target: &Target) -> bool {
        let port = target.port();
        let by_address = |address: IpAddr| self.allow.iter().any(|it| it.allows_address(address, port));
        match target.address() {
            Some(address) => by_address(address),
            None => self.allow.iter().any(|it| it.allows_name(target.host(), port)),
        }
    }
}

fn is_subdomain(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn refused_error(target: &Target, why: &str) -> Error {
    let (scheme, host, port) =
        (target.url().scheme(), target.url().host_str().unwrap_or_default(), target.url().port());
    let port = port.map(|it| format!(":{it}")).unwrap_or_default();
    Error::denied(format!(
        "{scheme}://{host}{port} was not reached: {why}. Only the operator can open it (setting web.allow)"
    ))
}

/// Whether no name server gave an answer: what `getaddrinfo` says for `EAI_AGAIN`, in glibc and musl.
fn is_unanswered(error: &io::Error) -> bool {
    let text = error.to_string();
    ["Temporary failure in name resolution", "Try again"].iter().any(|it| text.contains(it))
}

#[cfg(test)]
mod tests {

    use async_trait::async_trait;

    use super::*;

    /// A name server with one answer for each name.
    struct Book(&'static [(&'static str, &'static [&'static str])]);

    #[async_trait]
    impl Resolver for Book {
        async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            let found = self.0.iter().find(|(name, _)| *name == host).map(|(_, found)| *found);
            let found = found.ok_or_else(|| io::Error::other("no such name"))?;
            Ok(found.iter().map(|it| SocketAddr::new(it.parse().unwrap(), port)).collect())
        }
    }

    const BOOK: Book = Book(&[
        ("good.example", &["93.184.216.34", "2606:2800:220:1::"]),
        ("mixed.example", &["93.184.216.34", "10.0.0.1"]),
        ("mapped.example", &["::ffff:127.0.0.1"]),
        ("metadata.example", &["169.254.169.254"]),
        ("wiki.corp", &["10.1.2.3"]),
        ("empty.example", &[]),
    ]);

    fn asked(guard: &AddressGuard, text: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        match runtime.block_on(async { guard.admit(Target::parse(text)?).await }) {
            Ok(admitted) => format!("{:?}", admitted.addresses),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn one_forbidden_address_forbids_the_name() {
        let guard = AddressGuard::new().with_resolver(Arc::new(BOOK));
        let tail = ". Only the operator can open it (setting web.allow)";
        for (text, expected) in [
            ("http://good.example:8080/x", "[93.184.216.34:8080, [2606:2800:220:1::]:8080]".to_owned()),
            ("http://93.184.216.34/", "[93.184.216.34:80]".to_owned()),
            (
                "http://mixed.example/",
                format!(
                    "http://mixed.example was not reached: the name leads to 10.0.0.1, which is a private network (10.0.0.0/8){tail}"
                ),
            ),
            (
                "http://mapped.example/",
                format!(
                    "http://mapped.example was not reached: the name leads to ::ffff:127.0.0.1, which is IPv4 in IPv6 (::ffff:0:0/96){tail}"
                ),
            ),
            (
                "http://127.0.0.1:9/",
                format!("http://127.0.0.1:9 was not reached: port 9 belongs to another kind of service{tail}"),
            ),
            ("http://[::1]/", format!("http://[::1] was not reached: ::1 is loopback (::1){tail}")),
            (
                "http://a.LOCALHOST./",
                format!(
                    "http://a.localhost. was not reached: names in `localhost` are inside this machine or its network{tail}"
                ),
            ),
            (
                "http://metadata.google.internal/",
                format!(
                    "http://metadata.google.internal was not reached: names in `internal` are inside this machine or its network{tail}"
                ),
            ),
            (
                "http://nowhere.example/",
                "nowhere.example was not reached: its name could not be resolved (no such name). Check the spelling; if it \
                 is right, the network may be off"
                    .to_owned(),
            ),
            ("http://empty.example/", "empty.example has no address; check the spelling".to_owned()),
        ] {
            assert_eq!(asked(&guard, text), expected);
        }
    }

    /// A name server that cannot be reached.
    struct Down;

    #[async_trait]
    impl Resolver for Down {
        async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            let why = "failed to lookup address information: Temporary failure in name resolution";
            Err(io::Error::other(why))
        }
    }

    /// A machine without a network: every name is unknown, in whichever way the system says so.
    struct Offline(&'static str);

    #[async_trait]
    impl Resolver for Offline {
        async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            Err(io::Error::other(format!("failed to lookup address information: {}", self.0)))
        }

        fn has_route(&self) -> bool {
            false
        }
    }

    #[test]
    fn without_a_network_no_name_is_called_misspelt() {
        for text in ["Name or service not known", "Temporary failure in name resolution"] {
            let open = AddressGuard::new().with_resolver(Arc::new(Offline(text)));
            let listed = open.clone().listed_only().with_allowlist(["search.example"]).unwrap();
            for guard in [open, listed] {
                let told = asked(&guard, "https://search.example/");
                assert!(told.contains("could not be resolved") && told.contains("no network connection"), "{told}");
                assert!(!told.contains("spelling") && !told.contains("settings"), "{told}");
            }
        }
    }

    #[test]
    fn a_name_that_nobody_misspelt_is_not_called_misspelt() {
        let down = AddressGuard::new().with_resolver(Arc::new(Down));
        let told = asked(&down, "https://good.example/");
        assert!(told.contains("The network or its name server is down") && !told.contains("spelling"), "{told}");
        let service = AddressGuard::new()
            .with_resolver(Arc::new(BOOK))
            .listed_only()
            .with_allowlist(["nowhere.example"])
            .unwrap();
        let told = asked(&service, "https://nowhere.example/");
        assert!(told.contains("The network may be off") && !told.contains("spelling"), "{told}");
        assert!(told.contains("check the settings"), "{told}");
        let own = AddressGuard::new().with_resolver(Arc::new(BOOK)).for_service();
        assert_eq!(asked(&own, "https://nowhere.example/"), told);
    }

    #[test]
    fn the_operator_opens_what_is_inside() {
        let guard = AddressGuard::new().with_resolver(Arc::new(BOOK));
        let guard = guard.with_allowlist(["wiki.corp", "127.0.0.1:22", "10.0.0.0/24"]).unwrap();
        assert_eq!(asked(&guard, "http://wiki.corp/"), "[10.1.2.3:80]");
        assert_eq!(asked(&guard, "http://127.0.0.1:22/"), "[127.0.0.1:22]");
        assert!(asked(&guard, "http://127.0.0.1:23/").contains("port 23"));
        assert_eq!(asked(&guard, "http://mixed.example/"), "[93.184.216.34:80, 10.0.0.1:80]");
        let strict = guard.listed_only();
        assert_eq!(asked(&strict, "http://wiki.corp/"), "[10.1.2.3:80]");
        assert!(asked(&strict, "http://good.example/").contains("only hosts that the operator listed"));
    }
}
