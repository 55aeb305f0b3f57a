//! Proxy requests: `CONNECT` for TLS, absolute URLs for plain HTTP; everything else is refused.

use std::{net::IpAddr, sync::Arc, time::Duration};

use helve_contract::Error;
use http_body_util::{Either, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    client::conn::http1 as client,
    header::{self, HeaderMap, HeaderName},
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::TcpStream,
    time::timeout,
};

use super::{
    HostAllowlist,
    hello::{self, ClientHello},
};
use crate::guard::{AddressGuard, AdmittedTarget, Target};

/// How long a server may take to answer a knock, and a client to say its first word.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers that are between two neighbours only.
const HOP_BY_HOP_HEADERS: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("proxy-connection"),
];

type ProxyResponse = Response<Either<Incoming, Full<Bytes>>>;

/// Decides which hosts are reached, and reaches them. Cheap to clone.
#[derive(Clone)]
pub struct ProxyGateway {
    hosts: Arc<HostAllowlist>,
    guard: AddressGuard,
}

/// Why a request goes no further: a status and words for whoever reads the command's output.
struct ProxyRefusal(StatusCode, String);

impl ProxyGateway {
    /// A gateway to these hosts. Names that resolve to this machine or its network are refused even if listed; listed
    /// addresses are not.
    pub fn new(hosts: HostAllowlist, guard: AddressGuard) -> Result<Self, String> {
        let guard = guard.with_allowlist(hosts.addresses())?;
        Ok(Self { hosts: Arc::new(hosts), guard })
    }

    /// Serves one connection until it ends.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let service = service_fn(|request| {
            let gateway = self.clone();
            async move { Ok::<_, hyper::Error>(gateway.handle(request).await) }
        });
        let mut builder = server::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(CONNECT_TIMEOUT).max_headers(200).max_buf_size(64 << 10);
        // A failing client only loses its own connection.
        _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }

    async fn handle(&self, request: Request<Incoming>) -> ProxyResponse {
        let done =
            if request.method() == Method::CONNECT { self.connect(request).await } else { self.forward(request).await };
        done.unwrap_or_else(|ProxyRefusal(status, text)| {
            let mut reply = Response::new(Either::Right(Full::new(Bytes::from(format!("{text}\n")))));
            *reply.status_mut() = status;
            reply
        })
    }

    /// Opens a tunnel. It must carry TLS to the named server.
    async fn connect(&self, request: Request<Incoming>) -> Result<ProxyResponse, ProxyRefusal> {
        let place =
            request.uri().authority().filter(|_| request.uri().path().is_empty() || request.uri().path() == "/");
        let place = place.ok_or_else(|| bad_request("CONNECT wants host:port"))?.as_str().to_owned();
        let target = Target::parse(&format!("https://{place}/")).map_err(|error| bad_request(&error.to_string()))?;
        let admitted = self.admit(target, 443).await?;
        let mut tcp = dial(&admitted).await?;
        let host = admitted.target.host().to_owned();
        tokio::spawn(async move {
            if let Ok(upgraded) = hyper::upgrade::on(request).await {
                // Nobody is left to tell why it ended.
                _ = tunnel(TokioIo::new(upgraded), &mut tcp, &host).await;
            }
        });
        Ok(Response::new(Either::Right(Full::default())))
    }

    /// Passes a plain request on, and the answer back.
    async fn forward(&self, mut request: Request<Incoming>) -> Result<ProxyResponse, ProxyRefusal> {
        let uri = request.uri().clone();
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err(bad_request("this is a proxy; it wants CONNECT, or the whole http address"));
        }
        let target = Target::parse(&uri.to_string()).map_err(|error| bad_request(&error.to_string()))?;
        let host = target.url()[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
        let told = request.headers().get(header::HOST).map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        let same = |told: &str| told.eq_ignore_ascii_case(&host) || told.eq_ignore_ascii_case(&format!("{host}:80"));
        if !told.is_none_or(|told| same(&told)) {
            return Err(bad_request("the host in the address and in the header are not the same"));
        }
        let admitted = self.admit(target, 80).await?;
        let wanted = admitted.target.url();
        let tcp = dial(&admitted).await?;
        let place = wanted[url::Position::BeforePath..]
            .parse::<Uri>()
            .map_err(|_| bad_request("the address is not understood"))?;
        *request.uri_mut() = place;
        strip_hop_headers(request.headers_mut());
        let value = host.parse().map_err(|_| bad_request("the host is not understood"))?;
        request.headers_mut().insert(header::HOST, value);
        let failed =
            |error: hyper::Error| ProxyRefusal(StatusCode::BAD_GATEWAY, format!("{host} did not answer: {error}"));
        let (mut sender, connection) = client::handshake(TokioIo::new(tcp)).await.map_err(failed)?;
        tokio::spawn(connection);
        let mut answer = sender.send_request(request).await.map_err(failed)?;
        strip_hop_headers(answer.headers_mut());
        Ok(answer.map(Either::Left))
    }

    /// The addresses of a target that is on the list and may be reached.
    async fn admit(&self, target: Target, usual: u16) -> Result<AdmittedTarget, ProxyRefusal> {
        let (host, port) = (target.host().trim_end_matches('.'), target.port());
        if !self.hosts.allows(host, port, usual) {
            let port = if port == usual { String::new() } else { format!(":{port}") };
            return Err(ProxyRefusal(
                StatusCode::FORBIDDEN,
                format!(
                    "commands may not reach {host}{port}. They may reach: {}. Ask the user to add it to allow_hosts under \
                     [sandbox] in helve.toml",
                    self.hosts.describe()
                ),
            ));
        }
        self.guard.admit(target).await.map_err(|error| match error {
            Error::Denied(text) => ProxyRefusal(StatusCode::FORBIDDEN, text),
            other => ProxyRefusal(StatusCode::BAD_GATEWAY, other.to_string()),
        })
    }
}

fn bad_request(text: &str) -> ProxyRefusal {
    ProxyRefusal(StatusCode::BAD_REQUEST, text.to_owned())
}

/// Removes what was meant for the proxy.
fn strip_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(','))
        .filter_map(|it| it.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP_HEADERS.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Connects to the first of the judged addresses that answers.
async fn dial(admitted: &AdmittedTarget) -> Result<TcpStream, ProxyRefusal> {
    let mut last = "it has no address".to_owned();
    for address in &admitted.addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(*address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = String::from("no answer"),
        }
    }
    let host = admitted.target.host();
    Err(ProxyRefusal(StatusCode::BAD_GATEWAY, format!("{host} could not be reached: {last}")))
}

/// Copies bytes both ways after the client hello has named the tunnel's server.
async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: S,
    tcp: &mut TcpStream,
    host: &str,
) -> std::io::Result<()> {
    let mut first = Vec::new();
    let asked = loop {
        match hello::parse(&first) {
            ClientHello::Incomplete => {}
            ClientHello::ServerName(name) => break name,
            ClientHello::NotTls => return Ok(()),
        }
        let mut piece = [0; 4096];
        let count = timeout(CONNECT_TIMEOUT, client.read(&mut piece)).await??;
        if count == 0 || first.len() + count > hello::MAX_HELLO_BYTES + piece.len() {
            return Ok(());
        }
        first.extend_from_slice(&piece[..count]);
    };
    let fits = match &asked {
        Some(name) => name.trim_end_matches('.') == host.trim_end_matches('.'),
        // A name is not sent for an address.
        None => host.parse::<IpAddr>().is_ok(),
    };
    if !fits {
        return Ok(());
    }
    tcp.write_all(&first).await?;
    copy_bidirectional(&mut client, tcp).await.map(drop)
}
