//! Connections: to a checked address or through the operator's proxy, with TLS for https.

use std::{
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{Error, Result};
use rustls::{CertificateError, ClientConfig, pki_types::ServerName};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use url::Url;

use crate::guard::{AdmittedTarget, Target};

/// How long one address may take to answer a knock.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// … and while there are others to try.
const CONNECT_TIMEOUT_WITH_ALTERNATIVES: Duration = Duration::from_secs(4);
/// The maximum size of a proxy's response head.
const MAX_PROXY_HEAD_BYTES: usize = 16 << 10;

/// The operator's proxy: every request goes by it.
#[derive(Clone)]
pub struct UpstreamProxy {
    host: String,
    port: u16,
    login: Option<String>,
}

impl UpstreamProxy {
    /// Takes `http://[user:password@]host:port`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is no address of a proxy: {error}"))?;
        let host = url.host_str().filter(|_| url.scheme() == "http");
        let host = host.ok_or("a proxy is given as http://host:port")?.trim_matches(['[', ']']).to_owned();
        let login = (!url.username().is_empty()).then(|| {
            let [user, password] = [url.username(), url.password().unwrap_or_default()].map(percent_decode);
            format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
        });
        Ok(Self { host, port: url.port_or_known_default().unwrap_or(8080), login })
    }

    /// What the proxy wants to know about us, as the value of `Proxy-Authorization`.
    pub(super) fn login(&self) -> Option<&str> {
        self.login.as_deref()
    }

    /// A connection to the proxy; for TLS, through it to the target.
    pub(super) async fn connect(&self, target: &Target) -> Result<MaybeTlsStream> {
        let failed = |error: io::Error| Error::failed(format!("the proxy could not be reached: {error}"));
        let mut tcp = timeout(CONNECT_TIMEOUT, TcpStream::connect((self.host.as_str(), self.port)))
            .await
            .map_err(|_| Error::failed("the proxy does not answer"))?
            .map_err(failed)?;
        if !target.is_https() {
            return Ok(MaybeTlsStream::Plain(tcp));
        }
        let place = format!("{}:{}", target.url().host_str().unwrap_or_default(), target.port());
        let login = self.login.as_ref().map(|it| format!("Proxy-Authorization: {it}\r\n")).unwrap_or_default();
        let ask = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{login}\r\n");
        tcp.write_all(ask.as_bytes()).await.map_err(failed)?;
        let said = read_proxy_head(&mut tcp).await.map_err(failed)?;
        let status = said.split(' ').nth(1).unwrap_or_default();
        if status != "200" {
            let line: String = said.lines().next().unwrap_or_default().chars().take(80).collect();
            return Err(Error::failed(format!("the proxy did not connect to {place}: {line}")));
        }
        tls_handshake(tcp, target).await
    }
}

/// Reads a proxy's response head byte by byte: what follows belongs to the tunnel.
async fn read_proxy_head(tcp: &mut TcpStream) -> io::Result<String> {
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        if said.len() > MAX_PROXY_HEAD_BYTES {
            return Err(io::Error::other("it talks too much"));
        }
        said.push(tcp.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn percent_decode(text: &str) -> String {
    url::form_urlencoded::parse(format!("x={}", text.replace('+', "%2B")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

/// Connects to the first of the judged addresses that answers.
pub(super) async fn connect(admitted: &AdmittedTarget) -> Result<MaybeTlsStream> {
    let tcp = dial(admitted).await?;
    if admitted.target.is_https() { tls_handshake(tcp, &admitted.target).await } else { Ok(MaybeTlsStream::Plain(tcp)) }
}

async fn dial(admitted: &AdmittedTarget) -> Result<TcpStream> {
    let host = admitted.target.host();
    let mut last = String::from("no address to try");
    let count = admitted.addresses.len();
    for (at, address) in admitted.addresses.iter().enumerate() {
        let patience = if at + 1 < count { CONNECT_TIMEOUT_WITH_ALTERNATIVES } else { CONNECT_TIMEOUT };
        match timeout(patience, TcpStream::connect(*address)).await {
            Ok(Ok(tcp)) => {
                let _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = "no answer".into(),
        }
    }
    Err(Error::failed(format!("{host} could not be reached: {last}")))
}

async fn tls_handshake(tcp: TcpStream, target: &Target) -> Result<MaybeTlsStream> {
    let host = target.host();
    let failed =
        |error: &dyn std::fmt::Display| Error::failed(format!("no secure connection to {host} could be made: {error}"));
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    let config = tls().map_err(|error| failed(&error))?;
    let stream = timeout(CONNECT_TIMEOUT, TlsConnector::from(config).connect(name, tcp)).await;
    let stream = stream.map_err(|_| failed(&"no answer"))?.map_err(|error| failed(&tls_error_text(&error)))?;
    Ok(MaybeTlsStream::Secure(Box::new(stream)))
}

/// The TLS error. Usually the certificate is the cause, and its details say what to do.
fn tls_error_text(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(fault)) = inner else { return error.to_string() };
    let why = match fault {
        CertificateError::UnknownIssuer => "nobody whom this machine trusts vouches for it; it may be self-signed",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => "it is for another host",
        CertificateError::Revoked => "it was revoked",
        other => return format!("its certificate cannot be trusted: it may be self-signed ({other})"),
    };
    format!("its certificate cannot be trusted: {why}")
}

/// The system's certificates, read once; a machine without any says so at the first https address.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .and_then(BuilderVerifierExt::with_platform_verifier)
                .map_err(|error| error.to_string())?;
            let mut config = config.with_no_client_auth();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        })
        .clone()
}

/// A connection, plain or with TLS.
pub enum MaybeTlsStream {
    /// As it is.
    Plain(TcpStream),
    /// With TLS.
    Secure(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Secure(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Secure(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Secure(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Secure(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
