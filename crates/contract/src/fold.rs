//! Comparison of file names by rules. Spellings that some file system or program treats as the same name are equal.

use unicode_normalization::UnicodeNormalization as _;

use crate::invisible;

/// The normal form of a name for comparison.
///
/// It ignores case, compatibility forms of letters (`ｇ`) and invisible characters (HFS+ ignores some of them). It also
/// ignores trailing dots and spaces (Windows drops them) and NTFS stream names (`::$INDEX_ALLOCATION`).
pub(crate) fn fold(name: &str) -> String {
    if name.is_ascii() {
        return without_end(name).to_ascii_lowercase();
    }
    let visible: String = name.chars().filter(|it| !is_ignored(*it)).collect();
    // Through upper case, because some letters (`ſ`) share their upper case with another letter.
    let same: String = visible.nfkc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfkc().collect();
    let short = without_end(&same);
    // Keeps a name that consists of invisible characters only.
    if short.is_empty() { name.to_owned() } else { short.to_owned() }
}

/// Whether a protected name and a name on disk, both folded, are equal. The second may be the short name that NTFS
/// gives the first (`GIT~1`).
pub(crate) fn is_same(protected: &str, name: &str) -> bool {
    protected == name || is_short_form(protected, name)
}

/// Whether some file system or program treats two file names as the same, independent of this machine.
///
/// ```
/// use helve_contract::is_same_name;
///
/// assert!(is_same_name(".git", ".GIT"));
/// assert!(is_same_name(".git", ".g\u{200c}it"));
/// assert!(is_same_name(".git", "git~1"));
/// assert!(!is_same_name(".git", ".github"));
/// ```
#[must_use]
pub fn is_same_name(protected: &str, name: &str) -> bool {
    is_same(&fold(protected), &fold(name))
}

fn is_ignored(it: char) -> bool {
    invisible(it).is_some() || matches!(it, '\u{1bca0}'..='\u{1bca3}')
}

/// The name without the trailing characters that Windows ignores. A name of only such characters is unchanged.
fn without_end(name: &str) -> &str {
    let file = match name.split_once(':') {
        Some((file, stream)) if stream.contains('$') && !file.is_empty() => file,
        _ => name,
    };
    let short = file.trim_end_matches(['.', ' ']);
    if short.is_empty() { name } else { short }
}

/// Whether `name` is a short form that NTFS may create: up to six letters, `~`, a number, and up to three letters of
/// the extension. Short names have no such form.
pub(crate) fn is_short_form(long: &str, name: &str) -> bool {
    let Some((start, rest)) = name.split_once('~') else { return false };
    let (number, ending) = rest.split_once('.').unwrap_or((rest, ""));
    if number.is_empty() || !number.bytes().all(|it| it.is_ascii_digit()) || long.contains(['*', '?']) {
        return false;
    }
    let stem = long.trim_start_matches('.');
    let (base, extension) = stem.rsplit_once('.').unwrap_or((stem, ""));
    if stem == long && base.len() <= 8 && extension.len() <= 3 && !base.contains(['.', ' ']) {
        return false;
    }
    let base: String = base.chars().filter(|it| !matches!(it, '.' | ' ')).take(6).collect();
    let extension: String = extension.chars().take(3).collect();
    // If many names share a prefix, NTFS keeps two letters and four digits of a checksum.
    let is_sum = || start.len() == 6 && base.get(..2).is_some_and(|it| start.starts_with(it)) && is_hex(&start[2..]);
    ending == extension && (start == base || start.is_char_boundary(2) && is_sum())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|it| it.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_are_the_same() {
        for (name, spellings) in [
            (
                ".git",
                &[
                    ".GIT",
                    ".git.",
                    ".git . ",
                    ".g\u{200c}it",
                    ".git\u{200b}",
                    ".git\u{ad}",
                    "\u{feff}.git",
                    ".gi\u{206a}t",
                    ".ｇit",
                    "．ＧＩＴ",
                    "․git",
                    ".ɢit".replace('ɢ', "G").as_str(),
                    ".git::$INDEX_ALLOCATION",
                    ".git:$I30:$INDEX_ALLOCATION",
                    ".git\u{e0001}",
                    "GIT~1",
                    "git~12",
                    "ｇｉｔ~1",
                    ".git\u{3000}",
                ][..],
            ),
            (".mcp.json", &["MCP~1.JSO", ".mcp.json::$DATA", ".mcp\u{2060}.json", ".ᵐcp.json"][..]),
            (".gitmodules", &["GITMOD~1", "gi7eba~1", "GITMOD~4"][..]),
            (".bashrc", &["BASHRC~1", ".ba\u{17f}hrc"][..]),
            ("helve.toml", &["HELVE~1.TOM", "helve.toml "][..]),
        ] {
            for spelling in spellings {
                assert!(is_same_name(name, spelling), "{name} {spelling:?}");
            }
        }
    }

    #[test]
    fn other_names_stay_other_names() {
        for (name, other) in [
            (".git", ".github"),
            (".git", "git"),
            (".git", "git~"),
            (".git", "git~a"),
            (".git", "git~1.x"),
            (".git", "a:b"),
            ("hooks", "hooks~1"),
            ("config", "config~1"),
            (".mcp.json", "mcp~1"),
            (".git", "\u{200b}"),
            (".git", "..."),
            (".ssh", "ssh:key"),
        ] {
            assert!(!is_same_name(name, other), "{name} {other:?}");
        }
    }
}
