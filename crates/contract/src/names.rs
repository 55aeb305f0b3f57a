//! Names of tools and patterns over them: which spellings mean the same tool.
//!
//! Some clients rename `-` to `_` in tool names, and people write rules in either spelling. A pattern that takes
//! something away covers every spelling; a pattern that grants something covers `_` written for `-`, and no more.

/// What a pattern over tool names is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternPurpose {
    /// It takes something away (deny, ask, disable): letter case and every sign beside letters and digits are ignored.
    Restrict,
    /// It grants something (allow, only): `_` in the pattern also stands for `-` in the name.
    Grant,
    /// It covers its own spelling only, in any letter case.
    Exact,
}

/// Whether a pattern covers a name. `*` stands for any letters; `mcp__server` alone stands for every tool of a server.
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

/// A name in the spelling that is compared when something is taken away: lower case, `_` for every other sign.
#[must_use]
pub fn fold_name(name: &str) -> String {
    name.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '_' }).collect()
}

/// A name with `_` for `-`, as clients that do not take `-` send it.
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

/// `*` for any bytes. Greedy with one step back, so that no pattern takes long.
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
