//! The calls of the Docker Engine API that a session needs, as typed methods.

use std::io;

use helve_contract::{Error, Result};
use serde_json::{Value, json};
use tokio::io::BufReader;

use super::http::{self, ByteStream, EngineAddress};

/// A connection to an engine.
#[derive(Clone)]
pub(super) struct DockerClient {
    address: EngineAddress,
    display_address: String,
}

/// The state of a program in a container, as the engine reports it.
pub(super) struct ExecStatus {
    pub(super) running: bool,
    pub(super) code: Option<i32>,
}

impl DockerClient {
    pub(super) fn connect(endpoint: &str) -> Result<Self> {
        let address = EngineAddress::parse(endpoint).ok_or_else(|| {
            Error::failed(format!("`{endpoint}` is no address of an engine; write unix:///PATH or tcp://HOST:PORT"))
        })?;
        Ok(Self { address, display_address: endpoint.to_owned() })
    }

    /// Creates a container; returns `None` if its image is missing.
    pub(super) async fn create(&self, wanted: &Value) -> Result<Option<String>> {
        let (status, answer) = self.call("POST", "/containers/create", Some(wanted)).await?;
        match (status, answer["Id"].as_str()) {
            (201, Some(id)) => Ok(Some(id.to_owned())),
            (404, _) => Ok(None),
            _ => Err(api_error("make a container", status, &answer)),
        }
    }

    pub(super) async fn version(&self) -> Result<String> {
        match self.call("GET", "/version", None).await? {
            (200, answer) => Ok(answer["Version"].as_str().unwrap_or("of an unknown version").to_owned()),
            (status, answer) => Err(api_error("say its version", status, &answer)),
        }
    }

    pub(super) async fn has_image(&self, image: &str) -> Result<bool> {
        // The engine accepts these three characters unescaped in a path.
        let name = percent_encode(image).replace("%2F", "/").replace("%3A", ":").replace("%40", "@");
        match self.call("GET", &format!("/images/{name}/json"), None).await? {
            (200, _) => Ok(true),
            (404, _) => Ok(false),
            (status, answer) => Err(api_error("look for the image", status, &answer)),
        }
    }

    pub(super) async fn pull(&self, image: &str) -> Result<()> {
        // A name may contain a port and a path; the part after the last slash may contain a tag.
        let name = image.rsplit('/').next().unwrap_or(image);
        let tag = if name.contains([':', '@']) { "" } else { "&tag=latest" };
        let path = format!("/images/create?fromImage={}{tag}", percent_encode(image));
        let (status, answer) = self.call("POST", &path, None).await?;
        // The body has one line for each step; the last line contains the error.
        if status == 200 && answer["error"].is_null() {
            return Ok(());
        }
        Err(api_error(&format!("pull the image {image}"), status, &answer))
    }

    pub(super) async fn start(&self, id: &str) -> Result<()> {
        match self.call("POST", &format!("/containers/{id}/start"), None).await? {
            (204 | 304, _) => Ok(()),
            (status, answer) => Err(api_error("start the container", status, &answer)),
        }
    }

    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        match self.call("DELETE", &format!("/containers/{id}?force=true&v=true"), None).await? {
            // The container is already removed or being removed.
            (204 | 404 | 409, _) => Ok(()),
            (status, answer) => Err(api_error("remove the container", status, &answer)),
        }
    }

    /// Prepares a program in a container.
    pub(super) async fn create_exec(&self, container: &str, program: &Value) -> Result<String> {
        let (status, answer) = self.call("POST", &format!("/containers/{container}/exec"), Some(program)).await?;
        match (status, answer["Id"].as_str()) {
            (201, Some(id)) => Ok(id.to_owned()),
            (404 | 409, _) => Err(Error::failed("the container of this session has ended; start a new session")),
            _ => Err(api_error("start a program", status, &answer)),
        }
    }

    /// Starts a prepared program and returns the stream that is connected to it.
    pub(super) async fn start_attached(&self, id: &str, terminal: bool) -> Result<BufReader<Box<dyn ByteStream>>> {
        let body = json!({ "Detach": false, "Tty": terminal }).to_string();
        let path = format!("/exec/{id}/start");
        let answer = http::send(&self.address, "POST", &path, Some(body.as_bytes()), true)
            .await
            .map_err(|error| self.connection_error(&error))?;
        match answer.status {
            101 | 200 => Ok(answer.stream),
            status => {
                let body = answer.body().await.unwrap_or_default();
                Err(api_error("start a program", status, &parse_last_json_line(&body)))
            }
        }
    }

    /// Starts a prepared program without a stream.
    pub(super) async fn start_detached(&self, id: &str) -> Result<()> {
        let body = json!({ "Detach": true, "Tty": false });
        match self.call("POST", &format!("/exec/{id}/start"), Some(&body)).await? {
            (200 | 204, _) => Ok(()),
            (status, answer) => Err(api_error("send a signal", status, &answer)),
        }
    }

    pub(super) async fn inspect(&self, id: &str) -> Result<ExecStatus> {
        match self.call("GET", &format!("/exec/{id}/json"), None).await? {
            (200, answer) => Ok(ExecStatus {
                running: answer["Running"].as_bool().unwrap_or(false),
                code: answer["ExitCode"].as_i64().and_then(|it| i32::try_from(it).ok()),
            }),
            (status, answer) => Err(api_error("look at a program", status, &answer)),
        }
    }

    pub(super) async fn resize(&self, id: &str, rows: u16, columns: u16) -> Result<()> {
        self.call("POST", &format!("/exec/{id}/resize?h={rows}&w={columns}"), None).await.map(drop)
    }

    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let body = body.map(Value::to_string);
        let answered = async {
            let answer = http::send(&self.address, method, path, body.as_ref().map(String::as_bytes), false).await?;
            let status = answer.status;
            // These responses have no body, whatever the headers say.
            let body = if matches!(status, 204 | 304) { Vec::new() } else { answer.body().await? };
            Ok((status, parse_last_json_line(&body)))
        };
        answered.await.map_err(|error: io::Error| self.connection_error(&error))
    }

    fn connection_error(&self, error: &io::Error) -> Error {
        Error::failed(format!("the container engine at {} cannot be reached: {error}", self.display_address))
    }
}

/// Parses the last line of a body as JSON; returns null if the body is empty.
fn parse_last_json_line(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .or_else(|error| {
            let last = body.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().ok_or(error)?;
            serde_json::from_slice(last)
        })
        .unwrap_or(Value::Null)
}

fn api_error(what: &str, status: u16, answer: &Value) -> Error {
    let why = answer["message"].as_str().or_else(|| answer["error"].as_str()).unwrap_or("no reason given");
    Error::failed(format!("the container engine did not {what} ({status}): {why}"))
}

/// Percent-encodes text for a query.
fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}
