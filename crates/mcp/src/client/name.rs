//! What a server's tool is called here.

use sha2::{Digest, Sha256};

/// The longest name that providers take.
const LONGEST: usize = 64;

/// What is wrong with a server's name, if something is.
pub(crate) fn fault(server: &str) -> Option<&'static str> {
    let fits = (1..=48).contains(&server.len())
        && server.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-');
    if !fits {
        return Some("a server's name has 1 to 48 letters, digits, `_` and `-`");
    }
    let clean = cleaned(server);
    if clean.starts_with('_') || clean.ends_with('_') || clean.contains("__") {
        return Some(
            "a server's name may not have two signs in a row, nor one at its end: they part the names of tools",
        );
    }
    None
}

/// `mcp__server__tool`, in letters that every provider takes. A name that is cut carries a hash of the whole.
pub(crate) fn exposed(server: &str, tool: &str) -> String {
    let name = format!("mcp__{}__{}", cleaned(server), cleaned(tool));
    if name.len() <= LONGEST {
        return name;
    }
    let mark = hex(&Sha256::digest(format!("{server}\0{tool}")));
    format!("{}_{}", &name[..LONGEST - 9], &mark[..8])
}

/// Letters, digits and underscores.
pub(crate) fn cleaned(name: &str) -> String {
    name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect()
}

/// Bytes in two digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|it| char::from_digit(it.into(), 16)).collect()
}

/// Whether a pattern of `allow` or `deny` means a tool: by its name here, by the server's own, or by its server.
pub(crate) fn means(pattern: &str, server: &str, tool: &str) -> bool {
    let whole = format!("mcp__{}", cleaned(server));
    pattern == whole || star(pattern, &exposed(server, tool)) || star(pattern, tool)
}

/// `*` stands for any letters.
fn star(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider() {
        assert_eq!(exposed("my-files", "read.text file"), "mcp__my_files__read_text_file");
        let long = exposed("s", &"x".repeat(80));
        assert_eq!((long.len(), &long[..12]), (64, "mcp__s__xxxx"));
        assert_ne!(long, exposed("s", &"x".repeat(81)));
        assert_eq!(exposed("s", "größe🦀"), "mcp__s__gr__e_");
    }

    #[test]
    fn a_server_cannot_pretend_to_be_two() {
        let seen = ["my-files", "a__b", "a-_b", "a_", "", "emoji🦀"].map(|it| fault(it).is_some());
        assert_eq!(seen, [false, true, true, true, true, true]);
    }

    #[test]
    fn a_pattern_means_a_tool_a_group_or_a_server() {
        let seen = ["mcp__s__*", "mcp__s", "mcp__*", "mcp__s__read", "read*", "mcp__t__*", "mcp__s__rea", "write"]
            .map(|it| means(it, "s", "read"));
        assert_eq!(seen, [true, true, true, true, true, false, false, false]);
    }
}
