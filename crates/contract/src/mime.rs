//! MIME types of files, from their first bytes or their names.

/// The MIME type of a file, from its first bytes. For UTF-8 text it comes from the file name.
#[must_use]
pub fn sniff_mime(name: &str, bytes: &[u8]) -> &'static str {
    let begins = |with: &[u8]| bytes.starts_with(with);
    let at = |from: usize, what: &[u8]| bytes.get(from..).is_some_and(|it| it.starts_with(what));
    match () {
        () if begins(b"\x89PNG\r\n\x1a\n") => "image/png",
        () if begins(b"\xff\xd8\xff") => "image/jpeg",
        () if begins(b"GIF87a") || begins(b"GIF89a") => "image/gif",
        () if begins(b"RIFF") && at(8, b"WEBP") => "image/webp",
        () if begins(b"RIFF") && at(8, b"WAVE") => "audio/wav",
        () if begins(b"OggS") => "audio/ogg",
        () if begins(b"fLaC") => "audio/flac",
        () if begins(b"ID3") || begins(b"\xff\xfb") || begins(b"\xff\xf3") => "audio/mpeg",
        () if at(4, b"ftypM4A") => "audio/mp4",
        () if at(4, b"ftyp") => "video/mp4",
        () if begins(b"\x1a\x45\xdf\xa3") => "video/webm",
        () if begins(b"%PDF-") => "application/pdf",
        () if begins(b"PK\x03\x04") => "application/zip",
        () if begins(b"\x1f\x8b") => "application/gzip",
        () if std::str::from_utf8(bytes).is_ok() => by_name(name),
        () => "application/octet-stream",
    }
}

fn by_name(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, it)| it.to_ascii_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "html" | "htm" => "text/html",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        _ => "text/plain",
    }
}
