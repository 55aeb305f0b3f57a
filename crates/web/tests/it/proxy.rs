//! The proxy for commands, over its socket, with servers on loopback behind it.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use helve_contract::async_trait;
use helve_web::{
    guard::{AddressGuard, Resolver},
    proxy::{HostAllowlist, ProxyGateway, ProxyListener, listen},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};
use tokio_rustls::TlsConnector;

use crate::loopback::{CERTIFICATE, Http, Mailer, Smtp};

/// Every name leads to this machine, but for one that has no address.
struct Here;

#[async_trait]
impl Resolver for Here {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host == "nowhere.example" { Ok(Vec::new()) } else { Ok(vec![([127, 0, 0, 1], port).into()]) }
    }
}

fn proxy(folder: &Path, hosts: &[String]) -> ProxyListener {
    let gateway =
        ProxyGateway::new(HostAllowlist::new(hosts).unwrap(), AddressGuard::new().with_resolver(Arc::new(Here)))
            .unwrap();
    listen(gateway, &folder.join("proxy.sock")).unwrap()
}

/// Says something to the proxy and hears all that it says.
async fn say(proxy: &ProxyListener, text: &str) -> String {
    let mut stream = UnixStream::connect(proxy.socket()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn plain_requests_go_to_listed_hosts_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = Http::saying(vec![(200, "x-a: b\r\n", "hello".into())]).await;
    let port = server.base.rsplit(':').next().unwrap();
    let proxy = proxy(folder.path(), &[format!("good.example:{port}"), format!("127.0.0.1:{port}")]);
    let asked = format!(
        "GET http://good.example:{port}/a?b HTTP/1.1\r\nHost: good.example:{port}\r\nProxy-Authorization: x\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Kept: 2\r\n\r\n"
    );
    let answer = say(&proxy, &asked).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello") && answer.contains("x-a: b"), "{answer}");
    let seen = server.asked().remove(0);
    assert_eq!(
        (seen.line.as_str(), seen.header("host")),
        ("GET /a?b HTTP/1.1", format!("good.example:{port}").as_str())
    );
    assert_eq!((seen.header("x-hop"), seen.header("proxy-authorization"), seen.header("x-kept")), ("", "", "2"));

    let answer =
        say(&proxy, "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert_eq!(status(&answer), "403");
    let told = format!(
        "commands may not reach evil.example. They may reach: good.example:{port}, 127.0.0.1:{port}. Ask the user to add it to allow_hosts under [sandbox] in helve.toml\n"
    );
    assert!(answer.ends_with(&told), "{answer}");
}

#[tokio::test]
async fn tricks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Http::json("{}").await;
    let port = server.base.rsplit(':').next().unwrap();
    let hosts = ["good.example", "nowhere.example", "*.corp.example"].map(str::to_owned);
    let proxy = proxy(folder.path(), &hosts);
    let get = |url: &str, host: &str| format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let connect = |place: &str| format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    for (text, wanted, why) in [
        (get("http://good.example/", "good.example"), "403", "a listed name that leads to loopback"),
        (get("http://a.corp.example/", "a.corp.example"), "403", "the same beneath a star"),
        (get("http://nowhere.example/", "nowhere.example"), "502", "a name without an address"),
        (get("http://good.example/", "evil.example"), "400", "another host in the header"),
        (get("http://good.example:22/", "good.example:22"), "403", "another port"),
        (get("http://good.example@evil.example/", "evil.example"), "400", "a user name"),
        (get("http://good.example.evil.example/", "good.example.evil.example"), "403", "a name that begins like it"),
        (get("/", "good.example"), "400", "not a proxy's request"),
        (get("ftp://good.example/", "good.example"), "400", "another scheme"),
        (
            get(&format!("http://127.0.0.1:{port}/"), &format!("127.0.0.1:{port}")),
            "403",
            "an address that is not listed",
        ),
        (get("http://0x7f.1/", "x"), "400", "an address in other words"),
        (connect("good.example:22"), "403", "a tunnel to another port"),
        (connect("good.example:443"), "403", "a tunnel to loopback"),
        (connect("evil.example\0.good.example:443"), "400", "a name in two parts"),
        (connect("[::1]:443"), "403", "an address"),
    ] {
        assert_eq!(status(&say(&proxy, &text).await), wanted, "{why}");
    }
    assert!(server.asked().is_empty());
}

async fn tunnel(proxy: &ProxyListener, place: &str) -> BufReader<UnixStream> {
    let mut stream = BufReader::new(UnixStream::connect(proxy.socket()).await.unwrap());
    stream.write_all(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert_eq!(status(&line), "200", "{line}");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
    }
    stream
}

/// The first line that a TLS server behind the tunnel says, or nothing.
async fn hears(proxy: &ProxyListener, place: &str, name: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(CERTIFICATE).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = tunnel(proxy, place).await;
    let Ok(tls) = TlsConnector::from(Arc::new(config)).connect(name, stream).await else { return String::new() };
    let mut line = String::new();
    _ = BufReader::new(tls).read_line(&mut line).await;
    line
}

#[tokio::test]
async fn a_tunnel_is_tls_to_the_server_that_was_named() {
    let folder = tempfile::tempdir().unwrap();
    // A mail server is a TLS server that speaks first.
    let server = Smtp::new(Mailer::Implicit).await;
    let port = server.port;
    let proxy = proxy(
        folder.path(),
        &[format!("good.example:{port}"), format!("127.0.0.1:{port}"), format!("localhost.example:{port}")],
    );
    assert_eq!(hears(&proxy, &format!("127.0.0.1:{port}"), "127.0.0.1").await, "220 mail.example ready\r\n");
    // The certificate is for localhost, so a tunnel to another name cannot ask for it.
    assert_eq!(hears(&proxy, &format!("good.example:{port}"), "localhost").await, "");
    assert_eq!(hears(&proxy, &format!("127.0.0.1:{port}"), "localhost").await, "");

    let mut stream = tunnel(&proxy, &format!("good.example:{port}")).await;
    stream.write_all(b"EHLO x\r\n").await.unwrap();
    let mut rest = Vec::new();
    _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn the_socket_goes_with_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(folder.path(), &[]);
    let socket = proxy.socket().to_owned();
    let answer = say(&proxy, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").await;
    assert!(answer.contains("They may reach: none."), "{answer}");
    drop(proxy);
    assert!(!socket.exists());
    assert!(HostAllowlist::new(["*"]).is_err());
}
