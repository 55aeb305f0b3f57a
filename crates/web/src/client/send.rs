//! Sends a request hop by hop. Every hop is checked again and connects only to checked addresses.

use std::time::Duration;

use helve_contract::{Call, Error, Result, ports::RedirectPolicy};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{self, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{HttpLimits, HttpRequest, HttpResponse, MaybeTlsStream, UpstreamProxy, decode, wire};
use crate::guard::{AddressGuard, Target};

const USER_AGENT: &str = concat!("helve/", env!("CARGO_PKG_VERSION"), " (tool layer of an agent)");
/// Headers of an answer: how many, and how many bytes.
const MAX_HEADERS: usize = 200;
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Headers sent to another origin; all others were meant for the first one.
const PUBLIC_HEADERS: &[HeaderName] = &[header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE];

/// Sends requests that the guard admits. It keeps no cookies, logins or connections. Cheap to clone.
#[derive(Clone)]
pub struct GuardedClient {
    guard: AddressGuard,
    proxy: Option<UpstreamProxy>,
}

/// One step of the way.
struct Hop {
    target: Target,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

impl GuardedClient {
    /// A client that connects directly to what the guard admits.
    #[must_use]
    pub fn new(guard: AddressGuard) -> Self {
        Self { guard, proxy: None }
    }

    /// Sends every request through this proxy. The guard checks it first.
    #[must_use]
    pub fn with_proxy(self, proxy: UpstreamProxy) -> Self {
        Self { proxy: Some(proxy), ..self }
    }

    /// The guard.
    pub fn guard(&self) -> &AddressGuard {
        &self.guard
    }

    /// Sends for a call, and stops when it is cancelled.
    pub async fn send_for(&self, call: &Call, request: HttpRequest) -> Result<HttpResponse> {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Err(Error::Cancelled),
            answer = self.send(request) => answer,
        }
    }

    /// Sends, follows redirects as the request says, and reads the answer up to the limits.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse> {
        let target = Target::parse(&request.url)?;
        self.send_to(target, request).await
    }

    /// Sends to a parsed target; ignores the request's own URL.
    pub async fn send_to(&self, target: Target, request: HttpRequest) -> Result<HttpResponse> {
        let hop =
            Hop { target, method: request.method, headers: headers(&request.headers)?, body: request.body.into() };
        let total = request.limits.total_timeout;
        timeout(total, self.follow(hop, request.redirects, request.limits)).await.unwrap_or(Err(Error::Timeout(total)))
    }

    /// A connection to a target that the guard admits, with TLS where its address says so.
    pub async fn connect(&self, target: &Target) -> Result<MaybeTlsStream> {
        match &self.proxy {
            Some(proxy) => {
                self.guard.check_for_proxy(target).await?;
                proxy.connect(target).await
            }
            None => wire::connect(&self.guard.admit(target.clone()).await?).await,
        }
    }

    async fn follow(&self, mut hop: Hop, redirects: RedirectPolicy, limits: HttpLimits) -> Result<HttpResponse> {
        let mut followed = 0;
        loop {
            let answer = self.send_hop(&hop, limits.first_byte_timeout).await?;
            let Some(next) = redirect_target(&hop, &answer)? else { return read(&hop.target, answer, limits).await };
            let goes_on = match redirects {
                RedirectPolicy::Follow => true,
                RedirectPolicy::SameHost => next.same_host(&hop.target),
                RedirectPolicy::Never => false,
            };
            // A body for one origin is not sent to another.
            let foreign = !hop.body.is_empty() && !next.same_origin(&hop.target) && keeps_body(answer.status());
            if !goes_on || foreign {
                let moved_to = Some(next.to_string());
                return Ok(HttpResponse { moved_to, ..read(&hop.target, answer, limits).await? });
            }
            followed += 1;
            if followed > limits.redirects {
                let most = limits.redirects;
                return Err(Error::failed(format!("{} redirects more than {most} times", hop.target)));
            }
            hop = next_hop(hop, next, answer.status());
        }
    }

    /// Sends one request over a connection of its own, and waits for the head of the answer.
    async fn send_hop(&self, hop: &Hop, patience: Duration) -> Result<hyper::Response<Incoming>> {
        let host = hop.target.host();
        let asked = async {
            let stream = self.connect(&hop.target).await?;
            let (mut sender, connection) = http1::Builder::new()
                .max_headers(MAX_HEADERS)
                .max_header_size(MAX_HEADER_BYTES)
                .max_buf_size(4 * MAX_HEADER_BYTES)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| transport_error(host, &error))?;
            // The task ends with the response, or when its reader is dropped.
            tokio::spawn(connection);
            let request =
                self.request(hop).map_err(|error| Error::failed(format!("{host} cannot be asked: {error}")))?;
            sender.send_request(request).await.map_err(|error| transport_error(host, &error))
        };
        let late = || Error::failed(format!("{host} did not answer within {} seconds", patience.as_secs()));
        timeout(patience, asked).await.map_err(|_| late())?
    }

    fn request(&self, hop: &Hop) -> hyper::http::Result<hyper::Request<Full<Bytes>>> {
        let url = hop.target.url();
        // A proxy gets the full URL; inside TLS it does not see it.
        let by_proxy = self.proxy.as_ref().filter(|_| !hop.target.is_https());
        let place = if by_proxy.is_some() { url.as_str() } else { &url[url::Position::BeforePath..] };
        let mut request = hyper::Request::builder().method(&hop.method).uri(place);
        if let Some(login) = by_proxy.and_then(UpstreamProxy::login) {
            request = request.header(header::PROXY_AUTHORIZATION, login);
        }
        request = request
            .header(header::HOST, &url[url::Position::BeforeHost..url::Position::AfterPort])
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT_ENCODING, decode::ACCEPT_ENCODING)
            .header(header::CONNECTION, "close");
        for (name, value) in &hop.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(hop.body.clone()))
    }
}

/// The caller's headers, except those that the transport sets.
fn headers(given: &[(String, String)]) -> Result<HeaderMap> {
    let ours = [
        header::HOST,
        header::USER_AGENT,
        header::ACCEPT_ENCODING,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::PROXY_AUTHORIZATION,
        header::UPGRADE,
        header::TE,
        header::EXPECT,
    ];
    let mut map = HeaderMap::new();
    for (name, value) in given {
        let wrong = || Error::failed(format!("the header `{}` cannot be sent", name.escape_debug()));
        let name = HeaderName::try_from(name).map_err(|_| wrong())?;
        let value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        if !ours.contains(&name) {
            map.append(name, value);
        }
    }
    Ok(map)
}

/// Where an answer sends us, if it does.
fn redirect_target(hop: &Hop, answer: &hyper::Response<Incoming>) -> Result<Option<Target>> {
    if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = answer.headers().get(header::LOCATION) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    hop.target.join(&location).map(Some).map_err(|error| match error {
        Error::Denied(why) => Error::denied(format!("{} redirects elsewhere, and that was refused: {why}", hop.target)),
        error => error,
    })
}

fn keeps_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
}

/// The next hop. Data private to one origin stays there.
fn next_hop(hop: Hop, target: Target, status: StatusCode) -> Hop {
    let Hop { target: from, mut method, mut headers, mut body } = hop;
    if !keeps_body(status) && method != Method::HEAD {
        method = Method::GET;
        body = Bytes::new();
        headers.remove(header::CONTENT_TYPE);
    }
    if !target.same_origin(&from) {
        let public = headers.iter().filter(|(name, _)| PUBLIC_HEADERS.contains(name));
        headers = public.map(|(name, value)| (name.clone(), value.clone())).collect();
    }
    Hop { target, method, headers, body }
}

/// Reads the body up to the limit and unpacks it.
async fn read(target: &Target, answer: hyper::Response<Incoming>, limits: HttpLimits) -> Result<HttpResponse> {
    let (head, mut body) = answer.into_parts();
    let host = target.host();
    let (mut bytes, mut cut, mut notes) = (Vec::new(), false, Vec::new());
    loop {
        let piece = match timeout(limits.idle_timeout, body.frame()).await {
            Err(_) if bytes.is_empty() => {
                let seconds = limits.idle_timeout.as_secs();
                return Err(Error::failed(format!("{host} stopped in the middle of its answer for {seconds} seconds")));
            }
            Err(_) => {
                notes.push("the server stopped in the middle of its answer; this is what came".to_owned());
                cut = true;
                break;
            }
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(error))) if bytes.is_empty() => return Err(transport_error(host, &error)),
            Ok(Some(Err(_))) => {
                notes.push("the connection broke in the middle of the answer; this is what came".to_owned());
                cut = true;
                break;
            }
        };
        let room = limits.body.saturating_sub(bytes.len());
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            cut = true;
            break;
        }
    }
    let encoding: Vec<_> =
        head.headers.get_all(header::CONTENT_ENCODING).iter().filter_map(|it| it.to_str().ok()).collect();
    let (body, more) =
        if bytes.is_empty() { (bytes, false) } else { decode::decompress(bytes, &encoding.join(","), limits.body)? };
    let reason =
        head.extensions.get::<hyper::ext::ReasonPhrase>().map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
    let reason = reason.or_else(|| head.status.canonical_reason().map(str::to_owned)).unwrap_or_default();
    Ok(HttpResponse {
        url: target.to_string(),
        moved_to: None,
        status: head.status.as_u16(),
        reason: reason.chars().filter(|it| !it.is_control()).take(100).collect(),
        headers: head.headers,
        body,
        truncated: cut || more,
        notes,
    })
}

fn transport_error(host: &str, error: &hyper::Error) -> Error {
    Error::failed(if error.is_parse_too_large() {
        format!("{host} answered with more headers than are read")
    } else if error.is_parse() {
        format!("{host} did not answer in HTTP ({error})")
    } else if error.is_incomplete_message() {
        format!("{host} closed the connection before it answered")
    } else {
        format!("the connection to {host} broke: {error}")
    })
}
