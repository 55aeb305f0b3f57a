//! The allowlist of a channel's addresses: a model must not send to arbitrary recipients.

/// The operator's list: addresses, or patterns with `*`.
#[derive(Clone, Debug)]
pub(super) struct AddressAllowlist(Vec<String>);

impl AddressAllowlist {
    pub(super) fn new(patterns: Vec<String>) -> Self {
        Self(patterns.iter().map(|it| it.trim().to_lowercase()).collect())
    }

    /// Whether the address is on the list.
    pub(super) fn permits(&self, address: &str) -> bool {
        let address = address.to_lowercase();
        self.0.iter().any(|pattern| glob_match(pattern.as_bytes(), address.as_bytes()))
    }

    /// The list, for a message.
    pub(super) fn describe(&self) -> String {
        if self.0.is_empty() { "nobody".to_owned() } else { self.0.join(", ") }
    }
}

/// `*` matches any characters except separators: `*@example.org` is one domain and one address.
fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    if pattern == b"*" {
        return true;
    }
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) if !matches!(text[from], b'@' | b',' | b';' | b'<' | b'>' | b' ') => {
                    p = at + 1;
                    t = from + 1;
                    star = Some((at, from + 1));
                }
                _ => return false,
            },
        }
    }
    pattern[p..].iter().all(|it| *it == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_on_the_list() {
        let allow = AddressAllowlist::new(vec!["+15551234567".into(), "*@Example.org".into(), "group:abc".into()]);
        let seen = [
            "+15551234567",
            "+155512345678",
            "ann@example.org",
            "evil@evil.net,ann@example.org",
            "a@b@example.org",
            "ann@example.org.evil.net",
            "GROUP:abc",
        ]
        .map(|it| allow.permits(it));
        assert_eq!(seen, [true, false, true, false, false, false, true]);
        assert!(AddressAllowlist::new(vec!["*".into()]).permits("anybody@anywhere"));
        assert!(!AddressAllowlist::new(Vec::new()).permits("ann@example.org"));
    }
}
