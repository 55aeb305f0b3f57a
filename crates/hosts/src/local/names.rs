//! File names as text, with invisible characters escaped.

use std::{fmt::Write as _, path::Path};

use helve_contract::InvisibleScan;

/// Escapes control characters, invisible characters and bytes that are not UTF-8 (`\x1b`, `\u{202e}`).
pub(crate) fn escape_invisible(name: &[u8]) -> String {
    let mut scan = InvisibleScan::default();
    let mut is_hidden = |it: char| scan.next(it).is_some() || it.is_control();
    if let Ok(text) = std::str::from_utf8(name)
        && !text.chars().any(&mut is_hidden)
    {
        return text.to_owned();
    }
    scan = InvisibleScan::default();
    let mut is_hidden = |it: char| scan.next(it).is_some() || it.is_control();
    let mut shown = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        for it in chunk.valid().chars() {
            // Writing to a string cannot fail.
            _ = match is_hidden(it) {
                true if it.is_control() => write!(shown, "\\x{:02x}", it as u32),
                true => write!(shown, "{}", it.escape_unicode()),
                false => shown.write_char(it),
            };
        }
        for byte in chunk.invalid() {
            _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Whether any component of a path starts with a dot.
pub(crate) fn has_hidden_component(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().as_encoded_bytes().first() == Some(&b'.'))
}

/// The prefix and suffix of temporary file names.
const TEMP_AFFIXES: (&str, &str) = (".helve-", ".tmp");

/// A new random name for a temporary file.
pub(super) fn temp_name() -> Result<String, rustix::io::Errno> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| rustix::io::Errno::IO)?;
    Ok(format!("{}{:016x}{}", TEMP_AFFIXES.0, u64::from_ne_bytes(random), TEMP_AFFIXES.1))
}

/// Whether [`temp_name`] created a name.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    name.strip_prefix(TEMP_AFFIXES.0.as_bytes())
        .and_then(|rest| rest.strip_suffix(TEMP_AFFIXES.1.as_bytes()))
        .is_some_and(|middle| middle.len() == 16 && middle.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelt_out() {
        assert_eq!(escape_invisible("café.rs".as_bytes()), "café.rs");
        assert_eq!(escape_invisible(b"a\nb"), "a\\x0ab");
        assert_eq!(escape_invisible(b"\x1b[2Jx"), "\\x1b[2Jx");
        assert_eq!(escape_invisible("a\u{202e}txt.exe".as_bytes()), "a\\u{202e}txt.exe");
        assert_eq!(escape_invisible(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(escape_invisible("🏳️‍🌈 a\u{ad}b".as_bytes()), "🏳️‍🌈 a\\u{ad}b");
    }

    #[test]
    fn knows_its_own_temporary_files() {
        assert!(is_temporary(temp_name().unwrap().as_bytes()));
        for name in [".helve-x.tmp", ".helve-0123456789abcdef", "helve-0123456789abcdef.tmp", ".helve.toml"] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
