//! A minimal SMTP client that delivers one message.

use std::{net::IpAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{
    Error, Result,
    ports::{MailChannel, MailTls as Tls},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::tls::connector;
use crate::search::single_line;

/// How long a server may take for one answer, and for all of it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
const SESSION_TIMEOUT: Duration = Duration::from_secs(90);
/// The most of one line of an answer, and of lines.
const MAX_LINE_BYTES: u64 = 2_048;
const MAX_REPLY_LINES: usize = 100;

/// A server that takes mail, and how it is spoken to.
pub(super) struct SmtpServer {
    host: String,
    port: u16,
    tls: Tls,
    connector: Option<TlsConnector>,
    login: Option<(String, String)>,
}

impl SmtpServer {
    pub(super) fn new(settings: &MailChannel, login: Option<(String, String)>) -> Result<Self> {
        let (host, tls) = (settings.server.trim().to_owned(), settings.tls);
        if tls == Tls::None && login.is_some() && !is_loopback(&host) {
            return Err(Error::failed("a password is not sent in the clear; set tls to starttls or implicit"));
        }
        let port = settings.port.unwrap_or(match tls {
            Tls::Starttls => 587,
            Tls::Implicit => 465,
            Tls::None => 25,
        });
        let connector = if tls == Tls::None { None } else { Some(connector(settings.ca_file.as_deref())?) };
        Ok(Self { host, port, tls, connector, login })
    }

    /// Hands one message over.
    pub(super) async fn deliver(&self, from: &str, to: &str, message: &str) -> Result<()> {
        match timeout(SESSION_TIMEOUT, self.session(from, to, message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(self.failed(&why)),
            Err(_) => Err(self.failed(&SmtpError::Timeout)),
        }
    }

    fn failed(&self, why: &SmtpError) -> Error {
        let said = match why {
            SmtpError::Timeout => "did not answer in time".to_owned(),
            SmtpError::Io(error) => format!("could not be spoken to ({error})"),
            SmtpError::Insecure(what) => format!("{what}; nothing was sent in the clear"),
            SmtpError::Refused(step, reply) => {
                format!("refused {step}: {} {}", reply.code, single_line(&reply.text, 300))
            }
        };
        Error::failed(format!("nothing was sent: the mail server {} {said}", self.host))
    }

    /// The operator chose the server, so it may have a private address.
    async fn session(&self, from: &str, to: &str, message: &str) -> Result<(), SmtpError> {
        let tcp = timeout(REPLY_TIMEOUT, TcpStream::connect((self.host.as_str(), self.port)))
            .await
            .map_err(|_| SmtpError::Timeout)??;
        let here = tcp.local_addr()?.ip();
        match (self.tls, &self.connector) {
            (Tls::Implicit, Some(connector)) => {
                let mut line = SmtpConnection::new(self.start_tls(connector, tcp).await?);
                line.expect("the connection", 220).await?;
                self.run_session(&mut line, here, (from, to), message).await
            }
            (Tls::Starttls, Some(connector)) => {
                let mut line = SmtpConnection::new(tcp);
                line.expect("the connection", 220).await?;
                let offers = line.ehlo(here).await?;
                if !offers.iter().any(|it| it == "STARTTLS") {
                    return Err(SmtpError::Insecure("does not offer TLS"));
                }
                line.command("STARTTLS", "TLS", 220).await?;
                let mut line = SmtpConnection::new(self.start_tls(connector, line.into_stream()?).await?);
                self.run_session(&mut line, here, (from, to), message).await
            }
            _ => {
                let mut line = SmtpConnection::new(tcp);
                line.expect("the connection", 220).await?;
                self.run_session(&mut line, here, (from, to), message).await
            }
        }
    }

    async fn start_tls(
        &self,
        connector: &TlsConnector,
        tcp: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, SmtpError> {
        let name =
            ServerName::try_from(self.host.clone()).map_err(|_| SmtpError::Insecure("has a name that is none"))?;
        timeout(REPLY_TIMEOUT, connector.connect(name, tcp))
            .await
            .map_err(|_| SmtpError::Timeout)?
            .map_err(SmtpError::Io)
    }

    async fn run_session<S>(
        &self,
        line: &mut SmtpConnection<S>,
        here: IpAddr,
        (from, to): (&str, &str),
        message: &str,
    ) -> Result<(), SmtpError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let offers = line.ehlo(here).await?;
        if let Some((user, password)) = &self.login {
            let ways = offers.iter().find_map(|it| it.strip_prefix("AUTH ")).unwrap_or_default().to_owned();
            line.login(&ways, user, password).await?;
        }
        line.command(&format!("MAIL FROM:<{from}>"), "the sender", 250).await?;
        line.command(&format!("RCPT TO:<{to}>"), "the recipient", 250).await?;
        line.command("DATA", "the message", 354).await?;
        let mut body = String::with_capacity(message.len() + 8);
        for text in message.split_inclusive("\r\n") {
            if text.starts_with('.') {
                body.push('.');
            }
            body.push_str(text);
        }
        body.push_str(if body.ends_with("\r\n") { ".\r\n" } else { "\r\n.\r\n" });
        line.write(body.as_bytes()).await?;
        line.expect("the message", 250).await?;
        // The message is accepted, whatever this returns.
        _ = line.command("QUIT", "the end", 221).await;
        Ok(())
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// Why a message was not taken.
enum SmtpError {
    Timeout,
    Io(std::io::Error),
    Insecure(&'static str),
    Refused(&'static str, SmtpReply),
}

impl From<std::io::Error> for SmtpError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a server says.
struct SmtpReply {
    code: u16,
    text: String,
    lines: Vec<String>,
}

/// A session in lines.
struct SmtpConnection<S> {
    stream: BufReader<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> SmtpConnection<S> {
    fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// The inner stream, if nothing is unread: data before TLS must not count after it.
    fn into_stream(self) -> Result<S, SmtpError> {
        if self.stream.buffer().is_empty() {
            Ok(self.stream.into_inner())
        } else {
            Err(SmtpError::Insecure("said more than it should before TLS"))
        }
    }

    /// Says who we are and hears what there is.
    async fn ehlo(&mut self, here: IpAddr) -> Result<Vec<String>, SmtpError> {
        let name = match here {
            IpAddr::V4(it) => format!("[{it}]"),
            IpAddr::V6(it) => format!("[IPv6:{it}]"),
        };
        let reply = self.command(&format!("EHLO {name}"), "our greeting", 250).await?;
        Ok(reply.lines.iter().skip(1).map(|it| it.trim().to_ascii_uppercase()).collect())
    }

    async fn login(&mut self, ways: &str, user: &str, password: &str) -> Result<(), SmtpError> {
        if ways.split(' ').any(|it| it == "LOGIN") && !ways.split(' ').any(|it| it == "PLAIN") {
            self.command("AUTH LOGIN", "the login", 334).await?;
            self.command(&STANDARD.encode(user), "the login", 334).await?;
            self.command(&STANDARD.encode(password), "the login", 235).await?;
        } else {
            let both = STANDARD.encode(format!("\0{user}\0{password}"));
            self.command(&format!("AUTH PLAIN {both}"), "the login", 235).await?;
        }
        Ok(())
    }

    async fn command(&mut self, line: &str, step: &'static str, wanted: u16) -> Result<SmtpReply, SmtpError> {
        if line.contains(['\r', '\n', '\0']) {
            return Err(SmtpError::Insecure("was to be told two things at once"));
        }
        self.write(format!("{line}\r\n").as_bytes()).await?;
        self.expect(step, wanted).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), SmtpError> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes).await?;
        Ok(stream.flush().await?)
    }

    async fn expect(&mut self, step: &'static str, wanted: u16) -> Result<SmtpReply, SmtpError> {
        let reply = timeout(REPLY_TIMEOUT, self.reply()).await.map_err(|_| SmtpError::Timeout)??;
        if reply.code == wanted { Ok(reply) } else { Err(SmtpError::Refused(step, reply)) }
    }

    async fn reply(&mut self) -> Result<SmtpReply, SmtpError> {
        let broken = |why: &str| SmtpError::Io(std::io::Error::other(why.to_owned()));
        let mut lines = Vec::new();
        loop {
            let mut bytes = Vec::new();
            (&mut self.stream).take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes).await?;
            if bytes.last() != Some(&b'\n') {
                return Err(broken(if bytes.is_empty() { "it hung up" } else { "a line broke off" }));
            }
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            let code = text.get(..3).and_then(|it| it.parse().ok()).ok_or_else(|| broken("it does not speak SMTP"))?;
            let last = text.as_bytes().get(3) != Some(&b'-');
            lines.push(text.get(4..).unwrap_or_default().to_owned());
            if last {
                return Ok(SmtpReply { code, text: lines.join(" "), lines });
            }
            if lines.len() == MAX_REPLY_LINES {
                return Err(broken("it does not end"));
            }
        }
    }
}
