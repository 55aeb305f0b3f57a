//! A minimal HTTP/1.1 client for the engine's API: one request per connection, plain or chunked bodies, and the
//! upgrade to a raw stream. A client library would add a connection pool, which upgraded streams cannot use.

use std::{io, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpStream, UnixStream},
    time::timeout,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The maximum size of a body that is read into memory.
const MAX_BODY_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EngineAddress {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// A TCP address as `host:port`.
    Tcp(String),
}

impl EngineAddress {
    /// Reads `unix:///path`, `tcp://host:port` or `http://host:port`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return path.starts_with('/').then(|| Self::Unix(path.into()));
        }
        let rest = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"))?.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':')?;
        let plain = !host.is_empty() && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok();
        plain.then(|| Self::Tcp(rest.to_owned()))
    }

    async fn open(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp(at) => {
                let stream = TcpStream::connect(at).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

/// A connection of either kind.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> ByteStream for T {}

pub(super) struct DockerResponse {
    pub(super) status: u16,
    length: Option<u64>,
    chunked: bool,
    /// The connection, with bytes that were read but not used yet.
    pub(super) stream: BufReader<Box<dyn ByteStream>>,
}

/// Sends a request and reads the response head. `upgrade` requests the connection as a raw stream.
pub(super) async fn send(
    address: &EngineAddress,
    method: &str,
    path: &str,
    body: Option<&[u8]>,
    upgrade: bool,
) -> io::Result<DockerResponse> {
    let mut stream = timeout(CONNECT_TIMEOUT, address.open()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: docker\r\n");
    head += if upgrade { "Connection: Upgrade\r\nUpgrade: tcp\r\n" } else { "Connection: close\r\n" };
    if let Some(body) = body {
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    } else if method == "POST" {
        head += "Content-Length: 0\r\n";
    }
    head += "\r\n";
    let mut message = head.into_bytes();
    message.extend(body.unwrap_or_default());
    stream.write_all(&message).await?;
    stream.flush().await?;
    DockerResponse::read(BufReader::new(stream)).await
}

impl DockerResponse {
    async fn read(mut stream: BufReader<Box<dyn ByteStream>>) -> io::Result<Self> {
        let mut left = MAX_HEAD_BYTES;
        let first = read_line(&mut stream, &mut left).await?;
        let mut words = first.split(' ');
        let head = (words.next(), words.next().and_then(|it| it.parse().ok()));
        let (Some("HTTP/1.1" | "HTTP/1.0"), Some(status)) = head else { return Err(malformed_response()) };
        let (mut length, mut chunked) = (None, false);
        loop {
            let text = read_line(&mut stream, &mut left).await?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').ok_or_else(malformed_response)?;
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse().map_err(|_| malformed_response())?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.trim().eq_ignore_ascii_case("chunked");
            }
        }
        Ok(Self { status, length, chunked, stream })
    }

    /// Reads the whole body. A body above the limit is an error.
    pub(super) async fn body(mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if !self.chunked {
            let most = self.length.unwrap_or(MAX_BODY_BYTES + 1).min(MAX_BODY_BYTES + 1);
            (&mut self.stream).take(most).read_to_end(&mut body).await?;
            return if body.len() as u64 > MAX_BODY_BYTES { Err(malformed_response()) } else { Ok(body) };
        }
        loop {
            let mut left = 64;
            let size = read_line(&mut self.stream, &mut left).await?;
            let size = size.split(';').next().and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
            let size = size.filter(|it| it + body.len() as u64 <= MAX_BODY_BYTES).ok_or_else(malformed_response)?;
            if size == 0 {
                return Ok(body);
            }
            (&mut self.stream).take(size).read_to_end(&mut body).await?;
            if !read_line(&mut self.stream, &mut left).await?.is_empty() {
                return Err(malformed_response());
            }
        }
    }
}

/// Reads one line of a head, without its line ending.
async fn read_line(stream: &mut (impl AsyncRead + Unpin), left: &mut usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        *left = left.checked_sub(1).ok_or_else(malformed_response)?;
        match byte {
            b'\n' => break,
            byte => bytes.push(byte),
        }
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| malformed_response())
}

fn malformed_response() -> io::Error {
    io::Error::other("the answer is not HTTP as the engine speaks it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_address() {
        assert_eq!(EngineAddress::parse("unix:///run/d.sock"), Some(EngineAddress::Unix("/run/d.sock".into())));
        assert_eq!(EngineAddress::parse("tcp://127.0.0.1:2375"), Some(EngineAddress::Tcp("127.0.0.1:2375".into())));
        for text in ["", "docker.sock", "unix://x", "tcp://host", "tcp://a@b:1", "https://x:1", "tcp://h:99999"] {
            assert_eq!(EngineAddress::parse(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn reads_bodies_of_both_kinds() {
        let read = async |text: &str| {
            let stream: Box<dyn ByteStream> =
                Box::new(tokio::io::join(io::Cursor::new(text.as_bytes().to_vec()), tokio::io::sink()));
            let answer = DockerResponse::read(BufReader::new(stream)).await?;
            Ok::<_, io::Error>((answer.status, String::from_utf8(answer.body().await?).unwrap()))
        };
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokand more";
        assert_eq!(read(whole).await.unwrap(), (200, "ok".into()));
        let chunks = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(read(chunks).await.unwrap(), (404, "abcde".into()));
        for text in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"] {
            assert!(read(text).await.is_err(), "{text}");
        }
    }
}
