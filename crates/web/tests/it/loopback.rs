//! Servers on this machine that say what the real ones say, and remember what they were asked.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// What a server was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(it, _)| it == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// An HTTP server that gives these answers, one a request, the last one again and again.
pub(crate) struct Http {
    pub(crate) base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// Status, further headers and body.
pub(crate) type Canned = (u16, &'static str, String);

impl Http {
    pub(crate) async fn saying(answers: Vec<Canned>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tokio::spawn(async move {
            for turn in 0.. {
                let Ok((mut tcp, _)) = listener.accept().await else { return };
                let Some(request) = read(&mut tcp).await else { continue };
                seen.lock().unwrap().push(request);
                let (status, headers, body) = &answers[turn.min(answers.len() - 1)];
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
                _ = tcp.write_all(head.as_bytes()).await;
                _ = tcp.write_all(body.as_bytes()).await;
                _ = tcp.shutdown().await;
            }
        });
        Self { base, asked }
    }

    pub(crate) async fn json(body: &str) -> Self {
        Self::saying(vec![(200, "content-type: application/json\r\n", body.to_owned())]).await
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read(tcp: &mut TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(tcp);
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    let mut asked = Asked { line: line.trim_end().to_owned(), ..Asked::default() };
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        asked.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = asked.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    asked.body = String::from_utf8_lossy(&body).into_owned();
    Some(asked)
}

/// The certificate of `localhost`, which is its own authority, and its key.
pub(crate) const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/localhost.pem");

/// What a mail server does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mailer {
    /// TLS after STARTTLS.
    Starttls,
    /// TLS at once.
    Implicit,
    /// No TLS at all, and none offered.
    Plain,
    /// Offers TLS, and says more than it should before it begins.
    Pushy,
    /// Wants nothing to do with the recipient.
    Refusing,
}

/// A mail server that takes one message after the other and remembers what was said to it.
pub(crate) struct Smtp {
    pub(crate) port: u16,
    said: Arc<Mutex<Vec<String>>>,
}

impl Smtp {
    pub(crate) async fn new(kind: Mailer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let heard = heard.clone();
                tokio::spawn(async move {
                    _ = tokio::time::timeout(Duration::from_secs(30), serve(kind, tcp, &heard)).await;
                });
            }
        });
        Self { port, said }
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

async fn serve(kind: Mailer, mut tcp: TcpStream, heard: &Mutex<Vec<String>>) -> Option<()> {
    if kind == Mailer::Implicit {
        let mut tls = acceptor().accept(tcp).await.ok()?;
        return talk(kind, &mut tls, heard, true).await;
    }
    talk(kind, &mut tcp, heard, false).await?;
    let mut tls = acceptor().accept(tcp).await.ok()?;
    heard.lock().unwrap().push("(TLS)".to_owned());
    talk(kind, &mut tls, heard, true).await
}

/// Speaks until the end, or until TLS is to begin (`Some`).
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    kind: Mailer,
    stream: &mut S,
    heard: &Mutex<Vec<String>>,
    secure: bool,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    if !secure || kind == Mailer::Implicit {
        stream.write_all(b"220 mail.example ready\r\n").await.ok()?;
    }
    let mut in_data = false;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        heard.lock().unwrap().push(line.clone());
        let offers = matches!(kind, Mailer::Starttls | Mailer::Pushy) && !secure;
        let answer: &[u8] = match line.split([' ', ':']).next().unwrap_or_default() {
            "." if in_data => {
                in_data = false;
                b"250 queued\r\n"
            }
            _ if in_data => continue,
            "EHLO" if offers => b"250-mail.example\r\n250-SIZE 1000000\r\n250 STARTTLS\r\n",
            "EHLO" => b"250-mail.example\r\n250 AUTH PLAIN LOGIN\r\n",
            "STARTTLS" if kind == Mailer::Pushy => b"220 go\r\n250 injected\r\n",
            "STARTTLS" => {
                stream.write_all(b"220 go\r\n").await.ok()?;
                return Some(());
            }
            "AUTH" => b"235 welcome\r\n",
            "RCPT" if kind == Mailer::Refusing => b"550 5.1.1 nobody of that name\r\n",
            "MAIL" | "RCPT" => b"250 ok\r\n",
            "DATA" => {
                in_data = true;
                b"354 go on\r\n"
            }
            "QUIT" => {
                _ = stream.write_all(b"221 bye\r\n").await;
                return None;
            }
            _ => b"500 what?\r\n",
        };
        stream.write_all(answer).await.ok()?;
    }
}

pub(crate) fn acceptor() -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_file_iter(CERTIFICATE).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(CERTIFICATE).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}
