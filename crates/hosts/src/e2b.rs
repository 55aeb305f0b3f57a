//! A sandbox of the E2B service or a compatible one: created for a session and ended with it.
//!
//! The server side of [`RemoteClient`] runs inside. This program is uploaded (or the template contains it), started
//! as a process of the sandbox, and reached through that process's input and output. Files and programs then have the
//! same guarantees as local ones; the file API of the service does not give them.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{Error, Result, Workspace};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, header, redirect::Policy};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::AbortHandle,
};

use crate::RemoteClient;

const DEFAULT_API_URL: &str = "https://api.e2b.app";
/// The port of the sandbox's daemon.
const DAEMON_PORT: u16 = 49983;
/// How long a sandbox outlives a disconnected session. A live session renews it three times in this period.
const SANDBOX_TTL: Duration = Duration::from_secs(300);
/// The timeout of one request, including the upload of the program.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum input per request.
const MAX_INPUT_BYTES: usize = 512 << 10;
/// The maximum size of a process event.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Creates the roots and executes the server side.
const BOOTSTRAP_SCRIPT: &str = r#"program=$1; level=$2; shift 2
mkdir -p -- "$@" || exit 1
case $program in /*) chmod u+x "$program" || exit 1 ;; esac
exec "$program" host-serve --set sandbox.level="$level" 2>/dev/null"#;

/// The operator's settings for sandboxes. Nothing in it comes from the model or the project.
#[derive(Clone)]
pub struct E2bConfig {
    /// The URL of the API. Default: the E2B service.
    pub url: Option<String>,
    /// The URL of the sandbox daemons, if sandboxes do not have their own addresses.
    pub sandbox_url: Option<String>,
    /// The API key.
    pub key: String,
    /// The template. Default: `base`.
    pub template: Option<String>,
    /// The user that programs run as in the sandbox. Default: `user`.
    pub user: Option<String>,
    /// The directory for the uploaded program. Default: `/home/USER/.helve`.
    pub home: Option<PathBuf>,
    /// The `helve` program in the template. Default: this program is uploaded.
    pub program: Option<String>,
    /// The file to upload instead of this program, for sandboxes with another architecture.
    pub upload: Option<PathBuf>,
    /// Whether the sandbox has a network.
    pub network: bool,
}

/// Does not print the key.
impl std::fmt::Debug for E2bConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("E2b").field("url", &self.url).field("template", &self.template).finish_non_exhaustive()
    }
}

impl E2bConfig {
    /// Creates settings with this key and default values.
    pub fn with_key(key: impl Into<String>) -> Self {
        Self {
            url: None,
            sandbox_url: None,
            key: key.into(),
            template: None,
            user: None,
            home: None,
            program: None,
            upload: None,
            network: false,
        }
    }

    /// Creates a sandbox for a session. It ends when the host and its last program are dropped.
    pub async fn open(&self, workspace: &Workspace) -> Result<RemoteClient> {
        let url = self.url.as_deref().unwrap_or(DEFAULT_API_URL).trim_end_matches('/').to_owned();
        require_https(&url)?;
        let client = client(&url)?;
        let sandbox = self.create(&client, &url).await?;
        let program = match &self.program {
            Some(program) => program.clone(),
            None => self.upload(&sandbox).await?,
        };
        let (pid, events) = self.start(&sandbox, &program, workspace).await?;
        let (near, from) = tokio::io::duplex(1 << 16);
        let (to, far) = tokio::io::duplex(1 << 16);
        let output = tokio::spawn(forward_output(events, near)).abort_handle();
        let input = tokio::spawn(forward_input(sandbox.clone(), pid, far)).abort_handle();
        let renewal = tokio::spawn(renew_lease(sandbox.clone())).abort_handle();
        let carrier = E2bTransport { _sandbox: sandbox, tasks: [output, input, renewal] };
        RemoteClient::connect_over("e2b", workspace, from, to, carrier).await.map_err(|error| {
            Error::failed(format!(
                "{error}; the far end did not start in the sandbox. Where its template is another kind of machine, name a \
                 helve that runs there"
            ))
        })
    }

    /// Checks that the service accepts the key. Creates no sandbox.
    pub async fn probe(&self) -> Result<Vec<String>> {
        let url = self.url.as_deref().unwrap_or(DEFAULT_API_URL).trim_end_matches('/').to_owned();
        require_https(&url)?;
        let request =
            client(&url)?.get(format!("{url}/sandboxes")).header("X-API-Key", &self.key).timeout(REQUEST_TIMEOUT);
        let running = send_json("list its sandboxes", request).await?;
        let running = running.as_array().map_or(0, Vec::len);
        Ok(vec![format!("{url} accepts the key; {running} sandboxes run for it")])
    }

    async fn create(&self, client: &Client, url: &str) -> Result<std::sync::Arc<E2bSandbox>> {
        let wanted = json!({
            "templateID": self.template.as_deref().unwrap_or("base"),
            "timeout": SANDBOX_TTL.as_secs(),
            "secure": true,
            "allow_internet_access": self.network,
            "metadata": { "helve": "session" },
        });
        let request = client.post(format!("{url}/sandboxes")).header("X-API-Key", &self.key).timeout(REQUEST_TIMEOUT);
        let made: Value = send_json("make a sandbox", request.json_body(&wanted)).await?;
        let id = made["sandboxID"].as_str().filter(|id| is_safe_segment(id));
        let id = id.ok_or_else(|| Error::failed("the service made a sandbox without a name"))?.to_owned();
        let domain = made["domain"].as_str().filter(|it| is_safe_segment(it)).unwrap_or("e2b.app");
        // The service gives each sandbox a host name; other deployments select it by a header.
        let daemon = match &self.sandbox_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if self.url.is_none() => format!("https://{DAEMON_PORT}-{id}.{domain}"),
            None => url.to_owned(),
        };
        let sandbox = E2bSandbox {
            client: client.clone(),
            url: url.to_owned(),
            daemon,
            key: self.key.clone(),
            token: made["envdAccessToken"].as_str().map(str::to_owned),
            user: self.user.clone().unwrap_or_else(|| "user".to_owned()),
            id,
        };
        require_https(&sandbox.daemon)?;
        Ok(std::sync::Arc::new(sandbox))
    }

    /// Uploads this program into the sandbox.
    async fn upload(&self, sandbox: &E2bSandbox) -> Result<String> {
        let own = self.upload.clone().unwrap_or_else(|| "/proc/self/exe".into());
        let bytes =
            tokio::fs::read(&own).await.map_err(|error| Error::failed(format!("{}: {error}", own.display())))?;
        let home = self.home.clone().unwrap_or_else(|| format!("/home/{}/.helve", sandbox.user).into());
        let path = home.join("helve").display().to_string();
        let boundary = "helve-7d1f0c2a94b84e6f";
        let mut body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"helve\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend(bytes);
        body.extend(format!("\r\n--{boundary}--\r\n").bytes());
        let request = sandbox
            .call(
                Method::POST,
                &format!("/files?path={}&username={}", percent_encode(&path), percent_encode(&sandbox.user)),
            )
            .header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}"))
            .timeout(REQUEST_TIMEOUT)
            .body(body);
        send_checked("take the program", request).await?;
        Ok(path)
    }

    /// Starts the server side and waits for its pid.
    async fn start(&self, sandbox: &E2bSandbox, program: &str, workspace: &Workspace) -> Result<(u64, E2bEvents)> {
        let roots = workspace.roots().iter().map(|root| root.dir.display().to_string());
        let fixed = ["-c", BOOTSTRAP_SCRIPT, "helve", program, "external"].map(str::to_owned);
        let wanted = json!({
            "process": { "cmd": "/bin/sh", "args": fixed.into_iter().chain(roots).collect::<Vec<_>>(), "envs": {} },
            "stdin": true,
        });
        let request = sandbox
            .call(Method::POST, "/process.Process/Start")
            .header(header::CONTENT_TYPE, "application/connect+json")
            .header("Keepalive-Ping-Interval", "50")
            .body(envelope(&wanted));
        let mut events = E2bEvents { response: send_checked("start a process", request).await?, had: Vec::new() };
        match events.next().await? {
            Some(event) if event["start"]["pid"].is_u64() => {
                Ok((event["start"]["pid"].as_u64().unwrap_or_default(), events))
            }
            _ => Err(Error::failed("the sandbox did not say that the process began")),
        }
    }
}

/// Refuses plain HTTP: it would expose the key and all content.
fn require_https(url: &str) -> Result<()> {
    let parsed = reqwest::Url::parse(url).map_err(|error| Error::failed(format!("`{url}` is no address: {error}")))?;
    let host = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
    match parsed.scheme() {
        "https" => Ok(()),
        "http" if here => Ok(()),
        _ => Err(Error::failed(format!("{url}: the key is sent only over https, or to this machine itself"))),
    }
}

fn client(url: &str) -> Result<Client> {
    // An error means that a provider is already installed, which is sufficient.
    _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder().redirect(Policy::none()).connect_timeout(Duration::from_secs(15));
    if url.starts_with("http://") {
        // The test server uses no TLS, and this machine may have no certificates.
        builder = builder.tls_certs_only([]).no_proxy();
    }
    builder.build().map_err(|error| Error::failed(format!("the client of the service cannot be made: {error}")))
}

/// Whether text is safe as a URL segment.
fn is_safe_segment(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.'))
}

/// Percent-encodes text for a query.
fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    text.bytes().map(|it| if plain(it) { char::from(it).to_string() } else { format!("%{it:02X}") }).collect()
}

/// A sandbox that ends when it is dropped.
struct E2bSandbox {
    client: Client,
    url: String,
    daemon: String,
    key: String,
    token: Option<String>,
    user: String,
    id: String,
}

impl E2bSandbox {
    /// A request to the sandbox's daemon.
    fn call(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.daemon))
            .header("E2b-Sandbox-Id", &self.id)
            .header("E2b-Sandbox-Port", DAEMON_PORT)
            .header("Connect-Protocol-Version", "1")
            .header(header::AUTHORIZATION, format!("Basic {}", BASE64.encode(format!("{}:", self.user))));
        match &self.token {
            Some(token) => request.header("X-Access-Token", token),
            None => request,
        }
    }
}

impl Drop for E2bSandbox {
    fn drop(&mut self) {
        // A client belongs to the runtime that created it, so the cleanup creates another one.
        let (url, key) = (format!("{}/sandboxes/{}", self.url, self.id), std::mem::take(&mut self.key));
        crate::parting::block_on_cleanup(async move {
            if let Ok(client) = client(&url) {
                _ = client.delete(url).header("X-API-Key", key).send().await;
            }
        });
    }
}

/// The transport of the connection. Dropping it ends the sandbox.
struct E2bTransport {
    _sandbox: std::sync::Arc<E2bSandbox>,
    tasks: [AbortHandle; 3],
}

impl Drop for E2bTransport {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

trait JsonBody {
    fn json_body(self, value: &Value) -> Self;
}

impl JsonBody for RequestBuilder {
    fn json_body(self, value: &Value) -> Self {
        self.header(header::CONTENT_TYPE, "application/json").body(value.to_string())
    }
}

/// Sends a request and returns an error with the service's message unless it succeeds.
async fn send_checked(what: &str, request: RequestBuilder) -> Result<Response> {
    let response = request.send().await.map_err(|error| {
        let error = error.without_url();
        Error::failed(format!("the sandbox service cannot be reached: {error}"))
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.bytes().await.unwrap_or_default();
    let told: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let why = told["message"].as_str().unwrap_or(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "the key is not accepted",
        _ => "no reason given",
    });
    Err(Error::failed(format!("the sandbox service did not {what} ({}): {why}", status.as_u16())))
}

/// Like `send_checked`, and parses the response as JSON.
async fn send_json(what: &str, request: RequestBuilder) -> Result<Value> {
    let body = send_checked(what, request).await?.bytes().await;
    let body =
        body.map_err(|error| Error::failed(format!("the sandbox service broke off: {}", error.without_url())))?;
    serde_json::from_slice(&body).map_err(|_| Error::failed("the sandbox service answered something else than JSON"))
}

/// Encodes a stream message: a flag, a length and JSON.
fn envelope(value: &Value) -> Vec<u8> {
    let body = value.to_string();
    let mut message = vec![0];
    message.extend((body.len() as u32).to_be_bytes());
    message.extend(body.bytes());
    message
}

struct E2bEvents {
    response: Response,
    had: Vec<u8>,
}

impl E2bEvents {
    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Result<Option<Value>> {
        let broken = || Error::failed("the sandbox sent something else than events");
        loop {
            if let [flag, a, b, c, d, rest @ ..] = &self.had[..] {
                let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
                if length > MAX_EVENT_BYTES {
                    return Err(broken());
                }
                if rest.len() >= length {
                    let (last, body) = (flag & 2 != 0, serde_json::from_slice::<Value>(&rest[..length]));
                    self.had.drain(..5 + length);
                    if last {
                        return Ok(None);
                    }
                    return Ok(Some(body.map_err(|_| broken())?["event"].take()));
                }
            }
            match self.response.chunk().await {
                Ok(Some(piece)) => self.had.extend(piece),
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Forwards the output of the server side.
async fn forward_output(mut events: E2bEvents, mut to: DuplexStream) {
    while let Ok(Some(event)) = events.next().await {
        if let Some(text) = event["data"]["stdout"].as_str() {
            let Ok(bytes) = BASE64.decode(text) else { return };
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        if event["end"].is_object() {
            return;
        }
    }
}

/// Forwards input to the server side in order, in the largest available chunks.
async fn forward_input(sandbox: std::sync::Arc<E2bSandbox>, pid: u64, mut from: DuplexStream) {
    let mut bytes = Vec::with_capacity(MAX_INPUT_BYTES);
    loop {
        bytes.clear();
        let mut piece = (&mut from).take(MAX_INPUT_BYTES as u64);
        match piece.read_buf(&mut bytes).await {
            Ok(count) if count > 0 => {}
            _ => break,
        }
        let wanted = json!({ "process": { "pid": pid }, "input": { "stdin": BASE64.encode(&bytes) } });
        let request =
            sandbox.call(Method::POST, "/process.Process/SendInput").timeout(REQUEST_TIMEOUT).json_body(&wanted);
        if send_checked("take input", request).await.is_err() {
            break;
        }
    }
    // The server side exits when its input closes; the signal makes sure.
    let wanted = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGTERM" });
    let request = sandbox.call(Method::POST, "/process.Process/SendSignal").timeout(REQUEST_TIMEOUT).json_body(&wanted);
    _ = send_checked("send a signal", request).await;
}

/// Renews the sandbox's lifetime while the session is alive.
async fn renew_lease(sandbox: std::sync::Arc<E2bSandbox>) {
    loop {
        tokio::time::sleep(SANDBOX_TTL / 3).await;
        let request = sandbox.client.post(format!("{}/sandboxes/{}/timeout", sandbox.url, sandbox.id));
        let request = request.header("X-API-Key", &sandbox.key).timeout(REQUEST_TIMEOUT);
        _ = send_checked("go on", request.json_body(&json!({ "timeout": SANDBOX_TTL.as_secs() }))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_goes_over_no_open_line() {
        for url in ["http://api.example.com", "ftp://127.0.0.1", "api.e2b.app", "http://127.0.0.1.example.com"] {
            assert!(require_https(url).is_err(), "{url}");
        }
        for url in ["https://api.e2b.app", "http://127.0.0.1:3000", "http://[::1]:3000", "http://localhost:3000"] {
            assert!(require_https(url).is_ok(), "{url}");
        }
        assert!(!format!("{:?}", E2bConfig::with_key("e2b_secret")).contains("secret"));
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert!(is_safe_segment("i7x0-2b.e2b_app"));
        for text in ["", "a/b", "a@b", "a:1", "a b", "a?b", "ä"] {
            assert!(!is_safe_segment(text), "{text}");
        }
    }
}
