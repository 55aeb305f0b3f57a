//! The rule for names of users and tenants, for options, settings and webhooks.

/// The maximum length, in characters.
const MAX_CHARS: usize = 64;

/// The form of a user name, for messages.
pub const USER_NAME_FORM: &str =
    "a user name: 1 to 64 letters, digits or `.`, `_`, `@`, `+`, `:`, `-`, beginning with a letter, a digit or `+`";

/// The form of a tenant name, for messages.
pub const TENANT_NAME_FORM: &str =
    "a tenant name: 1 to 64 letters, digits or `.`, `_`, `@`, `+`, `:`, `-`, beginning with a letter, a digit or `+`";

/// Whether a name is valid for a user or a tenant. It is a key in the store and may be part of a file name. So it has
/// no separators, spaces, control characters or consecutive dots.
#[must_use]
pub fn is_user_name(name: &str) -> bool {
    let is_inner = |it: char| it.is_alphanumeric() || "._@+:-".contains(it);
    let starts_well = name.starts_with(|it: char| it.is_alphanumeric() || it == '+');
    starts_well && name.chars().count() <= MAX_CHARS && name.chars().all(is_inner) && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::is_user_name;

    #[test]
    fn names_of_users_are_plain() {
        for good in ["ann", "user", "Zoë", "ann.b@example.org", "+15550100", "signal:+15550100", "u-1_2", "x"] {
            assert!(is_user_name(good), "{good}");
        }
        let long = "a".repeat(65);
        for bad in
            ["", " ", "../x", "a/b", "a\\b", "a..b", ".a", "-a", "a b", "a\n", "a\0b", "\u{202e}a", "a\u{200b}", &long]
        {
            assert!(!is_user_name(bad), "{bad:?}");
        }
    }
}
