//! Authentication: the token, or the cookie that the page got for it.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use hyper::{
    HeaderMap,
    header::{COOKIE, HeaderValue},
};
use sha2::{Digest as _, Sha256};

use crate::{commands::http::write_private_file, state};

/// The token and its cookie.
pub(super) struct Auth {
    token: String,
    name: String,
    cookie: String,
}

impl Auth {
    /// Reads the token from this file; creates a new one if it is missing or others could read it.
    pub(super) fn open(file: &Path, port: u16) -> io::Result<Self> {
        let token = match read_token_file(file) {
            Some(token) => token,
            None => {
                let token = format!("{}{}", state::random_id()?, state::random_id()?);
                write_private_file(file, &token)?;
                token
            }
        };
        Ok(Self::from_token(token, port))
    }

    fn from_token(token: String, port: u16) -> Self {
        // A browser sends a cookie to every port of a host, so the cookie is not the token itself.
        let cookie = state::hex(&Sha256::digest(format!("page:{token}")));
        Self { token, name: format!("helve-{port}"), cookie }
    }

    /// The token.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Whether this credential is valid.
    pub(super) fn is_valid_token(&self, token: &str) -> bool {
        constant_time_eq(token, &self.token)
    }

    /// Whether the request comes from our page, by its cookie.
    pub(super) fn has_valid_cookie(&self, headers: &HeaderMap) -> bool {
        // Another port of the same host counts as the same site, but does not belong to Helve.
        let from = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !matches!(from, None | Some(b"same-origin" | b"none")) {
            return false;
        }
        let all = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(';'));
        let mut pairs = all.filter_map(|it| it.trim().split_once('='));
        pairs.any(|(name, value)| name == self.name && constant_time_eq(value, &self.cookie))
    }

    /// What a browser is told to keep.
    pub(super) fn cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000", self.name, self.cookie)
    }
}

/// The token in a file that its owner alone can read.
fn read_token_file(file: &Path) -> Option<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = fs::OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    let about = file.metadata().ok()?;
    let ours =
        about.is_file() && about.uid() == rustix::process::geteuid().as_raw() && about.mode().trailing_zeros() >= 6;
    let mut text = String::new();
    file.by_ref().take(1024).read_to_string(&mut text).ok()?;
    let token = text.trim();
    let fits = ours && token.len() >= 16 && token.chars().all(|it| it.is_ascii_alphanumeric());
    fits.then(|| token.to_owned())
}

/// Compares hashes, so that the time reveals nothing.
fn constant_time_eq(one: &str, other: &str) -> bool {
    let (one, other) = (Sha256::digest(one), Sha256::digest(other));
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_not_the_token_and_stays_at_home() {
        let pass = Auth::from_token("0123456789abcdef".into(), 7717);
        let cookie = pass.cookie();
        assert!(!cookie.contains("0123456789abcdef"), "{cookie}");
        let mut headers = HeaderMap::new();
        assert!(!pass.has_valid_cookie(&headers));
        let pair = cookie.split(';').next().unwrap();
        headers.insert(COOKIE, HeaderValue::from_str(&format!("a=b; {pair}")).unwrap());
        assert!(pass.has_valid_cookie(&headers));
        headers.insert("sec-fetch-site", HeaderValue::from_static("same-site"));
        assert!(!pass.has_valid_cookie(&headers));
    }

    #[test]
    fn a_token_that_others_could_read_is_not_used_again() {
        let folder = tempfile::tempdir().unwrap().keep();
        let file = folder.join("serve.token");
        let first = Auth::open(&file, 1).unwrap().token;
        assert_eq!(Auth::open(&file, 2).unwrap().token, first);
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert_ne!(Auth::open(&file, 3).unwrap().token, first);
        fs::remove_dir_all(folder).unwrap();
    }
}
