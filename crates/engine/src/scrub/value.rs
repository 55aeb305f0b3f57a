//! Whether a value after a name such as `password` is a secret, or code, a placeholder, a number.

/// Longer values are content, not secrets.
const MAX_SECRET_LEN: usize = 512;

/// A value behind a name such as `password`.
pub(super) struct Assignment<'a> {
    /// The whole name.
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) quoted: bool,
    /// `name=value`, as in an environment or an address; code mostly has blanks there.
    pub(super) no_spaces: bool,
    pub(super) starts_line: bool,
    /// What stands behind a value without quotes: a bracket means a call.
    pub(super) next_char: Option<char>,
}

impl Assignment<'_> {
    pub(super) fn is_secret(&self) -> bool {
        if self.value.len() > MAX_SECRET_LEN || is_placeholder(self.value) || is_id(self.value) || is_path(self.value) {
            return false;
        }
        if self.quoted { is_secret_literal(self.name, self.value) } else { self.is_bare_secret() }
    }

    fn is_bare_secret(&self) -> bool {
        if matches!(self.next_char, Some('(' | '[' | '{' | '<'))
            || self.value.starts_with(['=', ':', '>', '&', '.', '/', '@'])
        {
            return false;
        }
        let value = self.value.trim_end_matches(['.', ':', '!', '?']);
        let weak = is_weak_name(self.name);
        let digits = value.bytes().filter(u8::is_ascii_digit).count();
        if value.len() < 6 || (digits == value.len() && (weak || !self.no_spaces)) {
            return false;
        }
        let shouted = self.no_spaces && self.starts_line && !self.name.bytes().any(|it| it.is_ascii_lowercase());
        if shouted && !weak {
            return !is_member_access(value);
        }
        if is_member_access(value) || (is_identifier(value) && repeats_name(value)) {
            return false;
        }
        if self.no_spaces { digits > 0 } else { value.len() >= 8 && looks_random(value) }
    }
}

/// Whether a text under a key of some data is a secret.
pub(super) fn is_secret_under(key: &str, text: &str) -> bool {
    const WORDS: [&str; 13] = [
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "apikey",
        "privatekey",
        "accesskey",
        "accountkey",
        "authkey",
        "secretkey",
        "clientsecret",
    ];
    if key.len() > 64 || text.len() > MAX_SECRET_LEN {
        return false;
    }
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).flat_map(char::to_lowercase).collect();
    WORDS.iter().any(|word| plain.ends_with(word))
        && !(is_placeholder(text) || is_id(text) || is_path(text))
        && is_secret_literal(key, text)
}

/// A text in quotes that nobody writes but as a secret.
fn is_secret_literal(name: &str, text: &str) -> bool {
    let digits = text.bytes().any(|it| it.is_ascii_digit());
    let signs = text.bytes().any(|it| b"!@#$%^&*+=~|?".contains(&it));
    let blank = text.chars().any(|it| it.is_whitespace() || it.is_control());
    let (long, telling) =
        if is_weak_name(name) { (12, digits && has_letters_and_digits(text)) } else { (6, digits || signs) };
    text.len() >= long && telling && !blank && !text.contains(['(', ')', '{', '}', '<', '>', '[', ']'])
}

/// `token` alone is a word of every parser; `access_token` is not.
fn is_weak_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).flat_map(char::to_lowercase).collect();
    plain.ends_with("token")
        && !["access", "auth", "refresh", "api", "bearer", "secret", "bot", "github"]
            .iter()
            .any(|it| plain.contains(it))
}

/// Letters and digits together.
pub(super) fn has_letters_and_digits(text: &str) -> bool {
    text.bytes().any(|it| it.is_ascii_digit()) && text.bytes().any(|it| it.is_ascii_alphabetic())
}

/// Not a word and not a name: upper and lower case with digits, or several signs and digits.
fn looks_random(text: &str) -> bool {
    let count = |what: fn(&u8) -> bool| text.bytes().filter(what).count();
    let digits = count(u8::is_ascii_digit);
    let cases = count(u8::is_ascii_uppercase) > 0 && count(u8::is_ascii_lowercase) > 0;
    let signs = text.bytes().any(|it| b"!@#$%^&*+=~?/-".contains(&it));
    let many = digits > 1 || (text.len() >= 20 && !is_identifier(text));
    digits > 0 && ((cases && many) || (signs && digits > 1) || digits * 3 >= text.len())
}

/// A placeholder, a variable, or what was redacted before.
pub(super) fn is_placeholder(text: &str) -> bool {
    const WORDS: [&str; 14] = [
        "redacted",
        "example",
        "your",
        "xxx",
        "***",
        "...",
        "…",
        "changeme",
        "placeholder",
        "environ",
        "getenv",
        "process.env",
        "dummy",
        "secrets.",
    ];
    let lower = text.to_ascii_lowercase();
    text.starts_with(['$', '<', '{', '%', '*', '[']) || WORDS.iter().any(|word| lower.contains(word))
}

/// An id of ours or of others: a UUID, with a word before it perhaps.
fn is_id(text: &str) -> bool {
    const OWN_ID_PREFIXES: [&str; 8] = ["evt_", "note-", "note_", "task-", "task_", "run-", "run_", "call_"];
    if OWN_ID_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
        return true;
    }
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|it| it.is_ascii_hexdigit());
    parts.iter().map(|it| it.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(hex)
}

fn is_path(text: &str) -> bool {
    text.starts_with("./")
        || text.starts_with("~/")
        || (text.starts_with('/') && text.matches('/').count() > 1)
        || text.contains("://")
}

/// `self.token1`, `config.password`.
fn is_member_access(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_identifier)
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// `password=password1`: the name of a variable, not a secret.
fn repeats_name(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "key", "pwd", "sha", "base64", "utf8"]
        .iter()
        .any(|word| lower.contains(word))
}
