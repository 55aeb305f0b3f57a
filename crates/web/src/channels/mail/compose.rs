//! Composes mail messages. Text is encoded, so that it cannot become a header.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{
    jiff::{Timestamp, fmt::rfc2822::DateTimePrinter},
    ports::OutgoingFile,
};
use sha2::{Digest, Sha256};

use crate::search::single_line;

/// Somebody with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mailbox {
    pub(super) name: Option<String>,
    pub(super) address: String,
}

impl Mailbox {
    /// Reads `Name <a@b.org>` or `a@b.org`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_suffix('>').and_then(|it| it.rsplit_once('<')) {
            Some((name, address)) => {
                let name = single_line(name.trim().trim_matches('"'), 100);
                Some(Self { name: (!name.is_empty()).then_some(name), ..Self::parse_address(address)? })
            }
            None => Self::parse_address(text.trim()),
        }
    }

    /// Parses a bare address: one `@` and no characters with a meaning in SMTP.
    pub(super) fn parse_address(text: &str) -> Option<Self> {
        let (local, domain) = text.split_once('@')?;
        let is_local = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&it);
        let is_domain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.');
        let dots = |it: &str| !it.is_empty() && !it.starts_with('.') && !it.ends_with('.') && !it.contains("..");
        let fits = text.len() <= 254 && local.len() <= 64 && dots(local) && dots(domain);
        let plain = local.bytes().all(is_local) && domain.bytes().all(is_domain) && !domain.starts_with('-');
        (fits && plain).then(|| Self { name: None, address: text.to_owned() })
    }

    fn to_header(&self) -> String {
        match &self.name {
            Some(name) => format!("{} <{}>", encode_header_text(name, true), self.address),
            None => self.address.clone(),
        }
    }
}

/// A message with all that it needs.
pub(super) struct MailMessage<'a> {
    pub(super) from: &'a Mailbox,
    pub(super) to: &'a Mailbox,
    /// Without one, the first line of the text is it.
    pub(super) subject: Option<&'a str>,
    pub(super) text: &'a str,
    pub(super) file: Option<&'a OutgoingFile>,
    pub(super) now: Timestamp,
    /// Session and call, from which the id of the message is made.
    pub(super) id_seed: (&'a str, &'a str),
}

impl MailMessage<'_> {
    /// The whole message, lines ending in CR LF.
    pub(super) fn render(&self) -> String {
        let first = self.text.lines().find(|it| !it.trim().is_empty()).unwrap_or("Message");
        let subject = single_line(self.subject.unwrap_or(first), 78);
        let mark = self.message_id();
        let domain = self.from.address.split_once('@').map_or("localhost", |(_, domain)| domain);
        let mut out = String::new();
        let mut line = |text: &str| {
            out.push_str(text);
            out.push_str("\r\n");
        };
        line(&format!("From: {}", self.from.to_header()));
        line(&format!("To: {}", self.to.to_header()));
        line(&format!("Subject: {}", encode_header_text(&subject, false)));
        if let Ok(date) = DateTimePrinter::new().timestamp_to_string(&self.now) {
            line(&format!("Date: {date}"));
        }
        line(&format!("Message-ID: <{mark}@{domain}>"));
        line("Auto-Submitted: auto-generated");
        line("MIME-Version: 1.0");
        match self.file {
            None => {
                line(TEXT);
                line(BASE64);
                line("");
                line(&base64_lines(self.text.as_bytes()));
            }
            Some(file) => {
                line(&format!("Content-Type: multipart/mixed; boundary=\"={mark}\""));
                line("");
                line(&format!("--={mark}"));
                line(TEXT);
                line(BASE64);
                line("");
                line(&base64_lines(self.text.as_bytes()));
                line(&format!("--={mark}"));
                line(&format!("Content-Type: {}", safe_mime_type(&file.media.mime)));
                line(BASE64);
                line(&format!("Content-Disposition: attachment;\r\n filename*=UTF-8''{}", percent_encode(&file.name)));
                line("");
                line(&base64_lines(&file.media.bytes));
                line(&format!("--={mark}--"));
            }
        }
        out
    }

    fn message_id(&self) -> String {
        let told = format!("{}\n{}\n{}\n{}", self.id_seed.0, self.id_seed.1, self.now, self.to.address);
        let digest: [u8; 32] = Sha256::digest(told.as_bytes()).into();
        let half = digest.iter().take(16).fold(0, |sum: u128, byte| sum << 8 | u128::from(*byte));
        format!("{half:032x}")
    }
}

const TEXT: &str = "Content-Type: text/plain; charset=utf-8";
const BASE64: &str = "Content-Transfer-Encoding: base64";

/// Base64 in lines of 76.
fn base64_lines(bytes: &[u8]) -> String {
    let all = STANDARD.encode(bytes);
    let pieces: Vec<_> = all.as_bytes().chunks(76).map(String::from_utf8_lossy).collect();
    pieces.join("\r\n")
}

/// Encodes header text if needed. Names have more special characters.
fn encode_header_text(text: &str, name: bool) -> String {
    let safe = |it: char| it == ' ' || (it.is_ascii_graphic() && !(name && "()<>[]:;@\\,.\"".contains(it)));
    if text.chars().all(safe) && !text.contains("=?") {
        return text.to_owned();
    }
    let mut pieces = vec![String::new()];
    for it in text.chars() {
        if pieces.last().is_some_and(|piece| piece.len() + it.len_utf8() > 42) {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(it);
        }
    }
    let pieces: Vec<_> = pieces.iter().map(|it| format!("=?UTF-8?B?{}?=", STANDARD.encode(it))).collect();
    pieces.join("\r\n ")
}

/// A MIME type that cannot be anything else.
fn safe_mime_type(text: &str) -> &str {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"/+-.".contains(&it);
    if text.len() <= 100 && text.contains('/') && text.bytes().all(plain) { text } else { "application/octet-stream" }
}

/// The name of a file, with all but letters and digits encoded.
fn percent_encode(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes().take(200) {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use helve_contract::Media;

    use super::*;

    fn letter(text: &str, subject: Option<&str>, file: Option<&OutgoingFile>) -> String {
        let from = Mailbox::parse("Helve, the tool <bot@example.org>").unwrap();
        let to = Mailbox::parse_address("ann@example.org").unwrap();
        let now = "2026-11-16T00:00:00Z".parse().unwrap();
        MailMessage { from: &from, to: &to, subject, text, file, now, id_seed: ("s", "1") }.render()
    }

    #[test]
    fn a_letter_is_plain_mail() {
        let text = letter("Hello Ann\nthe build is green\n", None, None);
        let want = "From: =?UTF-8?B?SGVsdmUsIHRoZSB0b29s?= <bot@example.org>\r\n\
                    To: ann@example.org\r\n\
                    Subject: Hello Ann\r\n\
                    Date: Mon, 16 Nov 2026 00:00:00 -0000\r\n\
                    Message-ID: <ID@example.org>\r\n\
                    Auto-Submitted: auto-generated\r\n\
                    MIME-Version: 1.0\r\n\
                    Content-Type: text/plain; charset=utf-8\r\n\
                    Content-Transfer-Encoding: base64\r\n\
                    \r\n\
                    SGVsbG8gQW5uCnRoZSBidWlsZCBpcyBncmVlbgo=\r\n";
        let id = text.split("Message-ID: <").nth(1).unwrap().split('@').next().unwrap().to_owned();
        assert_eq!(text.replace(&id, "ID"), want);
    }

    #[test]
    fn no_word_becomes_a_header() {
        let file = OutgoingFile {
            name: "a\r\nBcc: x@y.z\"ä.png".into(),
            kind: "photo".into(),
            media: Media { mime: "image/png\r\nX: y".into(), bytes: vec![1, 2, 3] },
            caption: None,
        };
        let text =
            letter("Hi\r\nBcc: evil@evil.net\r\n.\r\nQUIT", Some("x\r\nBcc: evil@evil.net\r\n\r\nbody"), Some(&file));
        let headers = text.split("\r\n\r\n").next().unwrap();
        assert!(headers.contains("Subject: x Bcc: evil@evil.net body\r\n"), "{headers}");
        assert!(
            !text.lines().any(|it| it.starts_with("Bcc") || it.starts_with("X:") || it == "." || it == "QUIT"),
            "{text}"
        );
        assert!(text.contains("filename*=UTF-8''a%0D%0ABcc%3A%20x%40y.z%22%C3%A4.png\r\n"), "{text}");
        assert!(text.lines().all(|it| it.len() <= 200));
    }

    #[test]
    fn subjects_of_all_the_world() {
        let subject = "Grüße aus Köln — überall ist es schön, sagt der Bär, und läuft weiter";
        let text = letter("x", Some(subject), None);
        let line = text.split("Subject: ").nth(1).unwrap().split("\r\nDate").next().unwrap();
        let whole: String = line
            .split("\r\n ")
            .map(|it| it.strip_prefix("=?UTF-8?B?").unwrap().strip_suffix("?=").unwrap())
            .map(|it| String::from_utf8(STANDARD.decode(it).unwrap()).unwrap())
            .collect();
        assert_eq!(whole, subject);
    }

    #[test]
    fn addresses_are_one_address() {
        let seen = [
            "ann@example.org",
            "a.b+c@x-y.example.org",
            "ann@example.org\r\nRCPT TO:<evil@evil.net>",
            "ann@example.org>,<evil@evil.net",
            "a@b@c.org",
            "@example.org",
            "ann",
            "a b@example.org",
            "ann@.example.org",
        ]
        .map(|it| Mailbox::parse_address(it).is_some());
        assert_eq!(seen, [true, true, false, false, false, false, false, false, false]);
    }
}
