//! Local names of servers' tools.
//!
//! A tool is offered as `mcp__SERVER__TOOL`, with the hyphens of both names. Similar names (`get-sum` and `get_sum`)
//! stay callable: all but one get a suffix.

use std::collections::{BTreeSet, HashMap};

use helve_contract::{PatternPurpose, fold_name, name_matches};
use sha2::{Digest, Sha256};

/// The maximum name length of providers.
const MAX_LENGTH: usize = 64;
/// Hexadecimal digits of a suffix.
const SUFFIX: usize = 8;

/// Why a server's name is invalid, if it is.
pub(crate) fn server_name_error(server: &str) -> Option<&'static str> {
    let fits = (1..=48).contains(&server.len())
        && server.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-');
    if !fits {
        return Some("a server's name has 1 to 48 letters, digits, `_` and `-`");
    }
    let folded = fold_name(server);
    if folded.starts_with('_') || folded.ends_with('_') || folded.contains("__") {
        return Some(
            "a server's name may not have two signs in a row, nor one at its end: they part the names of tools",
        );
    }
    None
}

/// `mcp__SERVER__TOOL` in full, in characters that every provider takes.
pub(crate) fn plain(server: &str, tool: &str) -> String {
    format!("mcp__{}__{}", to_identifier(server), to_identifier(tool))
}

/// The names under which tools are offered, one for each pair of server and tool.
///
/// The name does not depend on the order of the pairs. `servers` are all that are configured, also those without tools.
pub(crate) fn assigned<'a>(servers: &[&'a str], tools: &[(&'a str, &'a str)]) -> Vec<String> {
    let server_parts = told_apart(servers.iter().copied().chain(tools.iter().map(|(server, _)| *server)));
    let mut by_server: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for (server, tool) in tools {
        by_server.entry(server).or_default().insert(tool);
    }
    let tool_parts: HashMap<&str, HashMap<&str, String>> =
        by_server.into_iter().map(|(server, tools)| (server, told_apart(tools.into_iter()))).collect();
    tools
        .iter()
        .map(|(server, tool)| format!("mcp__{}__{}", server_parts[server], tool_parts[server][tool]))
        .zip(tools)
        .map(|(name, (server, tool))| shortened(name, server, tool))
        .collect()
}

/// A name of at most 64 characters. A truncated one contains a hash of the whole.
fn shortened(name: String, server: &str, tool: &str) -> String {
    if name.len() <= MAX_LENGTH {
        return name;
    }
    let hash = hex(&Sha256::digest(format!("{server}\0{tool}")));
    format!("{}_{}", &name[..MAX_LENGTH - SUFFIX - 1], &hash[..SUFFIX])
}

/// Maps names to characters that every provider accepts. Of names that could be confused, the one nearest to its
/// folded spelling stays; the others get a suffix.
fn told_apart<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<&'a str, String> {
    let mut alike: HashMap<String, Vec<&str>> = HashMap::new();
    for name in names.collect::<BTreeSet<_>>() {
        alike.entry(fold_name(name)).or_default().push(name);
    }
    let mut parts = HashMap::new();
    for (_, mut names) in alike {
        names.sort_by_key(|name| (to_identifier(name) != **name, name.contains('-'), *name));
        for (at, name) in names.into_iter().enumerate() {
            let part = match at {
                0 => to_identifier(name),
                _ => format!("{}_{}", to_identifier(name), &hex(&Sha256::digest(name))[..SUFFIX]),
            };
            parts.insert(name, part);
        }
    }
    parts
}

/// The name under which earlier versions recorded a tool.
pub(crate) fn recorded_before(server: &str, tool: &str) -> String {
    let name = format!("mcp__{}__{}", to_identifier(server), to_identifier(tool)).replace('-', "_");
    shortened(name, server, tool)
}

/// The tool that a user means: by its exact name, or by a spelling that matches only one.
///
/// Each has the name it is offered under and its plain one.
pub(crate) fn meant(name: &str, tools: &[(String, String)]) -> Result<Option<usize>, String> {
    let places = |fits: &dyn Fn(&(String, String)) -> bool| -> Vec<usize> {
        tools.iter().enumerate().filter(|(_, tool)| fits(tool)).map(|(at, _)| at).collect()
    };
    let folded = fold_name(name);
    let mut found = places(&|(offered, _)| offered == name);
    if found.is_empty() {
        found = places(&|(_, plain)| plain == name);
    }
    if found.is_empty() {
        found = places(&|(offered, plain)| fold_name(offered) == folded || fold_name(plain) == folded);
    }
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => {
            let names: Vec<&str> = several.iter().map(|at| tools[*at].0.as_str()).collect();
            Err(format!("`{name}` can mean {}; name one of them", names.join(" or ")))
        }
    }
}

/// Letters, digits, `_` and `-`.
pub(crate) fn to_identifier(name: &str) -> String {
    name.chars().map(|it| if it.is_ascii_alphanumeric() || it == '-' { it } else { '_' }).collect()
}

/// Bytes in two digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|it| char::from_digit(it.into(), 16)).collect()
}

/// Whether a pattern of `allow` or `deny` matches a tool: by its local name, the server's name for it, or its server.
pub(crate) fn matches_pattern(pattern: &str, server: &str, tool: &str, purpose: PatternPurpose) -> bool {
    let names = [plain(server, tool), recorded_before(server, tool), tool.to_owned()];
    names.iter().any(|name| name_matches(pattern, name, purpose))
}

/// Whether a tool of this name may belong to a server.
///
/// ```
/// assert!(helve_mcp::client::is_tool_of("my-files", "mcp__my_files__read"));
/// assert!(!helve_mcp::client::is_tool_of("my", "mcp__my_files__read"));
/// ```
#[must_use]
pub fn is_tool_of(server: &str, tool: &str) -> bool {
    let (server, tool) = (fold_name(server), fold_name(tool));
    let Some(rest) = tool.strip_prefix("mcp__").and_then(|it| it.strip_prefix(&server)) else { return false };
    let suffixed = rest.strip_prefix('_').and_then(|it| it.get(SUFFIX..)).is_some_and(|it| it.starts_with("__"));
    rest.starts_with("__") || suffixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(server: &str, tool: &str) -> String {
        assigned(&[server], &[(server, tool)]).remove(0)
    }

    #[test]
    fn names_keep_their_hyphens_and_fit_every_provider() {
        assert_eq!(one("my-files", "get-sum"), "mcp__my-files__get-sum");
        assert_eq!(one("my-files", "read.text file"), "mcp__my-files__read_text_file");
        let long = one("s", &"x".repeat(80));
        assert_eq!((long.len(), &long[..12]), (64, "mcp__s__xxxx"));
        assert_ne!(long, one("s", &"x".repeat(81)));
        assert_eq!(one("s", "größe🦀"), "mcp__s__gr__e_");
    }

    #[test]
    fn names_that_differ_in_signs_only_are_all_callable() {
        let tools = [("s", "get-sum"), ("s", "get_sum"), ("s", "get.sum"), ("s", "Get_Sum"), ("s", "other")];
        let names = assigned(&[], &tools);
        assert_eq!((names[3].as_str(), names[4].as_str()), ("mcp__s__Get_Sum", "mcp__s__other"));
        let folded: BTreeSet<String> = names.iter().map(|it| fold_name(it)).collect();
        assert_eq!(folded.len(), tools.len(), "{names:?}");
        assert!(names[0].starts_with("mcp__s__get-sum_"), "{names:?}");

        let mut turned = tools;
        turned.reverse();
        let mut again = assigned(&[], &turned);
        again.reverse();
        assert_eq!(again, names, "the order does not matter");
    }

    #[test]
    fn servers_that_differ_in_signs_only_are_told_apart() {
        let names = assigned(&["my-files", "my_files"], &[("my-files", "read"), ("my_files", "read")]);
        assert_eq!(names[1], "mcp__my_files__read");
        assert!(names[0].starts_with("mcp__my-files_") && names[0].ends_with("__read"), "{names:?}");
        assert!(is_tool_of("my-files", &names[0]) && is_tool_of("my_files", &names[1]));
        // A server without tools yet does not change the names of others later.
        assert_eq!(assigned(&["my-files", "my_files"], &[("my-files", "read")])[0], names[0]);
    }

    #[test]
    fn a_server_cannot_pretend_to_be_two() {
        let seen =
            ["my-files", "a__b", "a-_b", "a--b", "a_", "-a", "", "emoji🦀"].map(|it| server_name_error(it).is_some());
        assert_eq!(seen, [false, true, true, true, true, true, true, true]);
    }

    #[test]
    fn a_pattern_means_a_tool_a_group_or_a_server() {
        let patterns = ["mcp__s__*", "mcp__s", "mcp__*", "mcp__s__read", "read*", "mcp__t__*", "mcp__s__rea", "write"];
        for purpose in [PatternPurpose::Restrict, PatternPurpose::Grant] {
            let seen = patterns.map(|it| matches_pattern(it, "s", "read", purpose));
            assert_eq!(seen, [true, true, true, true, true, false, false, false]);
        }
    }

    #[test]
    fn a_pattern_that_denies_cannot_be_evaded_by_spelling() {
        let long = "x-".repeat(40);
        let patterns = [
            "mcp__my-files__get-sum",
            "mcp__my_files__get_sum",
            "get_sum",
            "get-sum",
            "mcp__my_files",
            "mcp__my-files__g*",
        ];
        let seen = patterns.map(|it| matches_pattern(it, "my-files", "get-sum", PatternPurpose::Restrict));
        assert_eq!(seen, [true; 6]);
        assert!(matches_pattern(&format!("mcp__my_files__{long}"), "my-files", &long, PatternPurpose::Restrict));
    }

    #[test]
    fn a_person_may_spell_a_name_loosely_where_one_tool_is_meant() {
        let tools: Vec<(String, String)> = [("mcp__s__a-b_0011", "mcp__s__a-b"), ("mcp__s__a_b", "mcp__s__a_b")]
            .map(|(offered, plain)| (offered.to_owned(), plain.to_owned()))
            .into();
        let seen = ["mcp__s__a_b", "mcp__s__a-b", "mcp__s__a_b_0011", "mcp__s__c"].map(|it| meant(it, &tools));
        assert_eq!(seen, [Ok(Some(1)), Ok(Some(0)), Ok(Some(0)), Ok(None)]);
        assert_eq!(meant("MCP__S__A_B", &tools).unwrap_err().matches("mcp__s__a").count(), 2);
    }
}
