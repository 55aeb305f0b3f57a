//! A server over HTTP: posts every message; answers arrive as JSON or as an event stream.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    lines::MAX_LINE_BYTES,
    link::{RpcClientError, RpcConnection},
    sse::{SseEvent, SseParser},
    text,
};

const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
/// How long a message that needs no answer may take.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of reconnects of the server's event stream.
const MAX_RECONNECTS: u32 = 20;

struct HttpTransport {
    client: Client,
    headers: HeaderMap,
    /// Where messages go.
    post_url: OnceLock<Url>,
    session: Mutex<Option<HeaderValue>>,
    /// The older HTTP transport: answers arrive on one stream.
    legacy_sse: bool,
    /// The longest that a question may take.
    limit: Duration,
}

/// Carries messages between a server at a URL and the link.
pub(crate) async fn open(
    link: &Arc<RpcConnection>,
    queue: mpsc::Receiver<Value>,
    url: &str,
    headers: &BTreeMap<String, String>,
    limit: Duration,
    older: bool,
) -> Result<JoinSet<()>, String> {
    let url = checked(url, headers)?;
    let http = Arc::new(HttpTransport {
        client: client(&url)?,
        headers: header_map(headers)?,
        post_url: OnceLock::new(),
        session: Mutex::new(None),
        legacy_sse: older,
        limit,
    });
    let mut tasks = JoinSet::new();
    if older {
        let request = http.client.get(url.clone()).headers(http.headers.clone()).header(ACCEPT, "text/event-stream");
        let stream = request.send().await.map_err(|error| describe_error(&error))?;
        if !stream.status().is_success() {
            return Err(status_error(stream.status()));
        }
        let mut pump = SseReader::new(stream);
        http.post_url.set(pump.read_endpoint(&url).await?).map_err(|_| "a second endpoint".to_owned())?;
        let link = link.clone();
        tasks.spawn(async move {
            pump.run(&link, None).await;
            link.close("its stream ended");
        });
    } else {
        _ = http.post_url.set(url);
    }
    tasks.spawn(run_transport(http, link.clone(), queue));
    Ok(tasks)
}

/// Checks a URL. Secrets must not be sent without TLS.
fn checked(url: &str, headers: &BTreeMap<String, String>) -> Result<Url, String> {
    let url = Url::parse(url).map_err(|error| format!("`{}` is no URL: {error}", text::quote_message(url)))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if headers.is_empty() || is_loopback(&url) => Ok(url),
        "http" => Err("headers are sent in the clear over http; use https, or a loopback address".into()),
        other => Err(format!("`{other}` is no way to reach a server; use https")),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

fn client(url: &Url) -> Result<Client, String> {
    // An error means that a provider is already installed, which is sufficient.
    _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = Client::builder().redirect(Policy::none()).connect_timeout(Duration::from_secs(15));
    if url.scheme() == "http" {
        // Plain HTTP needs no certificates, and this machine may have none.
        client = client.tls_certs_only([]);
    }
    if is_loopback(url) {
        client = client.no_proxy();
    }
    client.build().map_err(|error| describe_error(&error))
}

fn header_map(headers: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is no header"))?;
        let mut value =
            HeaderValue::try_from(value.as_str()).map_err(|_| format!("the header `{name}` cannot be sent"))?;
        value.set_sensitive(true);
        map.insert(header, value);
    }
    Ok(map)
}

async fn run_transport(http: Arc<HttpTransport>, link: Arc<RpcConnection>, mut queue: mpsc::Receiver<Value>) {
    let mut posts = JoinSet::new();
    loop {
        tokio::select! {
            () = link.closing.cancelled() => break,
            () = link.ended.cancelled() => break,
            Some(_) = posts.join_next(), if !posts.is_empty() => {}
            message = queue.recv() => {
                let Some(message) = message else { break };
                let method = message["method"].as_str().unwrap_or_default();
                match message["id"].as_u64().filter(|_| !method.is_empty()) {
                    Some(id) => _ = posts.spawn(http.clone().ask(link.clone(), message, id)),
                    None => {
                        let starts = method == "notifications/initialized";
                        // In order: later messages may depend on it.
                        _ = timeout(NOTIFY_TIMEOUT, http.post(&link, &message).send()).await;
                        if starts && !http.legacy_sse {
                            posts.spawn(http.clone().listen_events(link.clone()));
                        }
                    }
                }
            }
        }
    }
    if http.session().is_some() && link.closing.is_cancelled() {
        let request = http.request(&link, Method::DELETE);
        _ = timeout(Duration::from_secs(2), request.send()).await;
    }
    link.close("the connection was closed");
}

impl HttpTransport {
    fn session(&self) -> Option<HeaderValue> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn request(&self, link: &RpcConnection, method: Method) -> RequestBuilder {
        // Set before the first message is carried.
        let url = self.post_url.get().map_or("", Url::as_str);
        let mut request = self.client.request(method, url).headers(self.headers.clone());
        if let Some(session) = self.session() {
            request = request.header(SESSION, session);
        }
        if let Some(revision) = link.revision.get() {
            request = request.header(REVISION, revision);
        }
        request
    }

    fn post(&self, link: &RpcConnection, message: &Value) -> RequestBuilder {
        self.request(link, Method::POST)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(message.to_string())
    }

    async fn ask(self: Arc<Self>, link: Arc<RpcConnection>, message: Value, id: u64) {
        let work = self.exchange(&link, &message, id);
        let lost = match timeout(self.limit, work).await {
            Ok(Ok(())) if self.legacy_sse => return,
            Ok(Ok(())) => RpcClientError::Refused(-32603, "no answer came to this question".into()),
            Ok(Err(lost)) => lost,
            Err(_) => RpcClientError::Timeout,
        };
        if let RpcClientError::Closed(why) = &lost {
            link.close(why.clone());
        }
        link.fail(id, lost);
    }

    async fn exchange(&self, link: &RpcConnection, message: &Value, id: u64) -> Result<(), RpcClientError> {
        let response =
            self.post(link, message).send().await.map_err(|error| RpcClientError::Closed(describe_error(&error)))?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && self.session().is_some() {
            return Err(RpcClientError::Closed("it has forgotten the session".into()));
        }
        if !status.is_success() {
            let body = body(response, 2048).await.unwrap_or_default();
            let said = text::quote_message(&String::from_utf8_lossy(&body));
            let said = if said.is_empty() { said } else { format!(": {said}") };
            return Err(RpcClientError::Refused(i64::from(status.as_u16()), format!("{}{said}", status_error(status))));
        }
        if message["method"] == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
        if is_stream(&response) {
            SseReader::new(response).run(link, Some(id)).await;
        } else if !self.legacy_sse {
            let body = body(response, MAX_LINE_BYTES).await.map_err(|why| RpcClientError::Refused(-32603, why))?;
            link.receive(&body);
        }
        Ok(())
    }

    /// Reads the server's own messages from a separate stream, if it offers one.
    async fn listen_events(self: Arc<Self>, link: Arc<RpcConnection>) {
        for turn in 0..MAX_RECONNECTS {
            let request = self.request(&link, Method::GET).header(ACCEPT, "text/event-stream");
            let Ok(response) = request.send().await else { return };
            if !response.status().is_success() || !is_stream(&response) {
                return;
            }
            SseReader::new(response).run(&link, None).await;
            sleep(Duration::from_secs(1 << turn.min(6))).await;
        }
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

/// The body, if it is not too large.
async fn body(response: Response, most: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| describe_error(&error))?;
        if body.len() + piece.len() > most {
            return Err(format!("it sent more than {most} bytes, which is not taken; ask for less at once"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Events of a stream, one after another.
struct SseReader {
    pieces: futures::stream::BoxStream<'static, reqwest::Result<Vec<u8>>>,
    events: SseParser,
    ready: VecDeque<SseEvent>,
}

impl SseReader {
    fn new(response: Response) -> Self {
        let pieces = response.bytes_stream().map(|it| it.map(|piece| piece.to_vec())).boxed();
        Self { pieces, events: SseParser::default(), ready: VecDeque::new() }
    }

    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let piece = self.pieces.next().await?.ok()?;
            self.ready.extend(self.events.push(&piece).ok()?);
        }
    }

    /// Delivers messages until the stream ends or the request is answered.
    async fn run(&mut self, link: &RpcConnection, until: Option<u64>) {
        while let Some(event) = self.next().await {
            if event.kind.is_empty() || event.kind == "message" {
                link.receive(&event.data);
            }
            if until.is_some_and(|id| !link.is_open(id)) {
                return;
            }
        }
    }

    /// The URL for messages to an older server: it must be on the same host.
    async fn read_endpoint(&mut self, stream: &Url) -> Result<Url, String> {
        while let Some(event) = self.next().await {
            if event.kind != "endpoint" {
                continue;
            }
            let place = String::from_utf8_lossy(&event.data).into_owned();
            let url = stream.join(&place).map_err(|error| format!("its endpoint is no URL: {error}"))?;
            if url.origin() != stream.origin() {
                return Err("its endpoint is on another host, and was not used".into());
            }
            return Ok(url);
        }
        Err("its stream ended before it named an endpoint".into())
    }
}

fn status_error(status: StatusCode) -> String {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            format!("it wants other credentials ({status}); mend its headers in the settings")
        }
        status if status.is_redirection() => format!("it leads elsewhere ({status}), which is not followed"),
        status => format!("HTTP {status}"),
    }
}

/// An error with its causes, without the URL, which may contain a token.
fn describe_error(error: &reqwest::Error) -> String {
    let mut words = String::from("cannot be reached");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text::quote_message(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_travel_in_the_clear() {
        let some = BTreeMap::from([("Authorization".to_owned(), "Bearer x".to_owned())]);
        let none = BTreeMap::new();
        let seen = [
            ("https://a.example/mcp", &some),
            ("http://127.0.0.1:1/mcp", &some),
            ("http://a.example/mcp", &none),
            ("http://127.a.example/mcp", &some),
            ("file:///etc/passwd", &none),
            ("nonsense", &none),
        ]
        .map(|(url, headers)| checked(url, headers).is_ok());
        assert_eq!(seen, [true, true, true, false, false, false]);
    }
}
