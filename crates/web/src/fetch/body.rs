//! Classifies a body. The header is trusted unless the first bytes contradict it.

/// What can be made of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Html,
    /// Shown as it is: plain text, JSON, XML, scripts.
    Plain,
    Pdf,
    Image,
    /// Nothing that has text.
    Binary,
}

/// The kind of a body and its type without parameters.
pub(super) fn classify(header: Option<&str>, bytes: &[u8]) -> (BodyKind, String) {
    let said = header.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let said = if said.contains('/') && said.len() < 100 { said } else { String::new() };
    let unsure =
        matches!(said.as_str(), "" | "application/octet-stream" | "binary/octet-stream" | "unknown/unknown" | "*/*");
    if let Some((body, mime)) = sniff(bytes) {
        let same = !unsure && said.starts_with(mime.split('/').next().unwrap_or_default());
        return (body, if same { said } else { mime.into() });
    }
    let body = match said.as_str() {
        _ if looks_binary(bytes) => BodyKind::Binary,
        "text/html" | "application/xhtml+xml" => BodyKind::Html,
        _ if unsure && looks_html(bytes) => return (BodyKind::Html, "text/html".into()),
        _ if unsure => return (BodyKind::Plain, "text/plain".into()),
        _ => BodyKind::Plain,
    };
    (body, if said.is_empty() { "application/octet-stream".into() } else { said })
}

/// What the first bytes give away.
fn sniff(bytes: &[u8]) -> Option<(BodyKind, &'static str)> {
    let starts = |sign: &[u8]| bytes.starts_with(sign);
    Some(match bytes {
        _ if bytes.iter().take(1024).skip_while(|it| it.is_ascii_whitespace()).copied().take(5).eq(*b"%PDF-") => {
            (BodyKind::Pdf, "application/pdf")
        }
        _ if starts(b"\x89PNG\r\n\x1a\n") => (BodyKind::Image, "image/png"),
        _ if starts(b"\xff\xd8\xff") => (BodyKind::Image, "image/jpeg"),
        _ if starts(b"GIF87a") || starts(b"GIF89a") => (BodyKind::Image, "image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => (BodyKind::Image, "image/webp"),
        _ if starts(b"PK\x03\x04") => (BodyKind::Binary, "application/zip"),
        _ if starts(b"\x1f\x8b") => (BodyKind::Binary, "application/gzip"),
        _ if starts(b"\x7fELF") => (BodyKind::Binary, "application/x-executable"),
        _ => return None,
    })
}

/// Text has no zero bytes, unless two make a character.
fn looks_binary(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let wide = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    !wide && head.contains(&0)
}

fn looks_html(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).to_ascii_lowercase();
    let head = head.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
    let begins =
        ["<!doctype html", "<html", "<head", "<body", "<title", "<h1", "<div", "<p>", "<a ", "<table", "<meta"];
    begins.iter().any(|it| head.starts_with(it)) || (head.starts_with("<!--") && head.contains("<html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_believed_unless_it_cannot_be() {
        for (header, bytes, expected) in [
            (Some("text/html; charset=utf-8"), &b"<p>x"[..], (BodyKind::Html, "text/html")),
            (Some("Application/JSON"), b"{}", (BodyKind::Plain, "application/json")),
            (Some("text/plain"), b"<html>", (BodyKind::Plain, "text/plain")),
            (None, b"  <!DOCTYPE html><p>", (BodyKind::Html, "text/html")),
            (None, b"hello", (BodyKind::Plain, "text/plain")),
            (None, b"", (BodyKind::Plain, "text/plain")),
            (Some("text/html"), b"%PDF-1.7", (BodyKind::Pdf, "application/pdf")),
            (Some("application/octet-stream"), b"\x89PNG\r\n\x1a\n", (BodyKind::Image, "image/png")),
            (Some("image/jpeg"), b"GIF89a", (BodyKind::Image, "image/jpeg")),
            (Some("image/svg+xml"), b"<svg/>", (BodyKind::Plain, "image/svg+xml")),
            (Some("text/html"), b"a\0b", (BodyKind::Binary, "text/html")),
            (Some("text/plain"), b"\xff\xfea\0", (BodyKind::Plain, "text/plain")),
            (Some("nonsense"), b"\0\x01", (BodyKind::Binary, "application/octet-stream")),
        ] {
            let (body, mime) = classify(header, bytes);
            assert_eq!((body, mime.as_str()), expected, "{header:?}");
        }
    }
}
