//! Tool names and patterns: which spellings mean the same tool.
//!
//! Some clients rename `-` to `_` in tool names, and people write rules in either spelling. A pattern that restricts
//! covers every spelling. A pattern that grants covers only `_` written for `-`.

/// The purpose of a pattern over tool names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternPurpose {
    /// It restricts (deny, ask, disable): case and all characters except letters and digits are ignored.
    Restrict,
    /// It grants (allow, only): `_` in the pattern also matches `-` in the name.
    Grant,
    /// It covers only the exact spelling, in any case.
    Exact,
}

/// Whether a pattern covers a name. `*` matches any characters; `mcp__server` alone matches every tool of that server.
#[must_use]
pub fn name_matches(pattern: &str, name: &str, purpose: PatternPurpose) -> bool {
    let (pattern, name) = (prepared(pattern, purpose), prepared(name, purpose));
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let same = |rule: u8, own: u8| rule == own || (purpose == PatternPurpose::Grant && rule == b'_' && own == b'-');
    let is_server = pattern.starts_with(b"mcp__")
        && name.get(pattern.len()..).is_some_and(|rest| rest.starts_with(b"__"))
        && pattern.iter().zip(name).all(|(rule, own)| same(*rule, *own));
    is_server || covers(pattern, name, &same)
}

/// The form of a name that restricting patterns compare: lower case, `_` for every other character.
#[must_use]
pub fn fold_name(name: &str) -> String {
    name.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '_' }).collect()
}

/// A name with `_` for `-`, as sent by clients that do not accept `-`.
#[must_use]
pub fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

fn prepared(text: &str, purpose: PatternPurpose) -> String {
    match purpose {
        PatternPurpose::Restrict => text.split('*').map(fold_name).collect::<Vec<_>>().join("*"),
        PatternPurpose::Grant | PatternPurpose::Exact => text.to_ascii_lowercase(),
    }
}

/// Matches `*` against any bytes. Greedy with one backtrack position, so that the time is bounded.
fn covers(pattern: &[u8], name: &[u8], same: &impl Fn(u8, u8) -> bool) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                back = Some((at + 1, from));
                at += 1;
            }
            Some(rule) if same(*rule, name[from]) => {
                at += 1;
                from += 1;
            }
            _ => match back {
                Some((star, start)) => {
                    back = Some((star, start + 1));
                    (at, from) = (star, start + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|it| *it == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        let seen = [
            ("mem*", "memory_get"),
            ("*", "x"),
            ("*", ""),
            ("a*c*e", "abcde"),
            ("*ab", "aab"),
            ("a*c", "abcd"),
            ("Read", "read"),
            ("read", "reader"),
        ]
        .map(|(pattern, name)| name_matches(pattern, name, PatternPurpose::Exact));
        assert_eq!(seen, [true, true, true, true, true, false, true, false]);
    }

    #[test]
    fn what_takes_away_covers_every_spelling() {
        let patterns = [
            "mcp__my-files__get-sum",
            "mcp__my_files__get_sum",
            "MCP__My.Files__get*",
            "mcp__my-files",
            "mcp__my_files__*",
            "mcp__my",
            "mcp__my-files__get",
        ];
        for name in ["mcp__my-files__get-sum", "mcp__my_files__get_sum"] {
            let seen = patterns.map(|it| name_matches(it, name, PatternPurpose::Restrict));
            assert_eq!(seen, [true, true, true, true, true, false, false], "{name}");
        }
    }

    #[test]
    fn what_grants_takes_an_underscore_for_a_hyphen_and_not_the_reverse() {
        let seen = [
            ("mcp__my-files__get-sum", "mcp__my-files__get-sum"),
            ("mcp__my_files__get_sum", "mcp__my-files__get-sum"),
            ("mcp__my_files", "mcp__my-files__get-sum"),
            ("mcp__my_files__*", "mcp__my-files__get-sum"),
            ("mcp__my-files__get-sum", "mcp__my_files__get_sum"),
            ("mcp__my-files", "mcp__my_files__get_sum"),
        ]
        .map(|(pattern, name)| name_matches(pattern, name, PatternPurpose::Grant));
        assert_eq!(seen, [true, true, true, true, false, false]);
    }
}
