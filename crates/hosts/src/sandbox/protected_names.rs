//! Which names are protected, and where.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use helve_contract::is_same_name;

/// The protected names of a sandbox, compared with names on disk in any spelling.
#[derive(Clone, Debug, Default)]
pub(super) struct ProtectedNames {
    /// One-part names, protected in every directory.
    anywhere: Vec<String>,
    /// One-part names, protected in the root.
    at_root: Vec<String>,
    /// Paths of several parts, beneath the root.
    pub(super) places: Vec<PathBuf>,
    /// Names inside of `.git`, in every repository.
    pub(super) in_any_repository: Vec<String>,
    /// Names inside of `.git`, in the repository at the root.
    pub(super) in_root_repository: Vec<String>,
    /// Names that matter in the user's home alone.
    pub(super) at_home: Vec<PathBuf>,
    /// The user's home.
    pub(super) home: PathBuf,
}

impl ProtectedNames {
    pub(super) fn new(at_root: &[String], anywhere: &[String], at_home: &[String], home: PathBuf) -> Self {
        let mut names = Self { at_home: at_home.iter().map(PathBuf::from).collect(), home, ..Self::default() };
        for name in anywhere {
            match name.strip_prefix(".git/") {
                Some(inside) => names.in_any_repository.push(inside.to_owned()),
                None if name.contains('/') => names.places.push(name.into()),
                None => names.anywhere.push(name.to_owned()),
            }
        }
        for name in at_root {
            match name.strip_prefix(".git/") {
                Some(inside) => names.in_root_repository.push(inside.to_owned()),
                None if name.contains('/') => names.places.push(name.into()),
                None => names.at_root.push(name.to_owned()),
            }
        }
        names
    }

    /// Whether deeper directories need no check.
    pub(super) fn only_at_root(&self) -> bool {
        self.anywhere.is_empty() && self.in_any_repository.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.only_at_root() && self.at_root.is_empty() && self.places.is_empty() && self.in_root_repository.is_empty()
    }

    /// Whether an entry of a directory is protected by its name.
    pub(super) fn is_protected(&self, name: &OsStr, is_root: bool) -> bool {
        let name = name.to_string_lossy();
        let is = |list: &[String]| list.iter().any(|it| is_same(it, &name));
        is(&self.anywhere) || is_root && is(&self.at_root)
    }

    /// Whether anything of git is protected, and so all git directories are.
    pub(super) fn has_git(&self) -> bool {
        !self.in_any_repository.is_empty() || !self.in_root_repository.is_empty()
    }

    /// Whether an entry of a directory makes it a repository.
    pub(super) fn is_repository(&self, name: &OsStr) -> bool {
        self.has_git() && is_same(".git", &name.to_string_lossy())
    }

    /// The names inside of the `.git` of a directory.
    pub(super) fn in_repository(&self, is_root: bool) -> impl Iterator<Item = &String> {
        let at_root = self.in_root_repository.iter().filter(move |it| is_root && !self.in_any_repository.contains(it));
        self.in_any_repository.iter().chain(at_root)
    }

    /// Identifies these names, to validate a saved index.
    pub(super) fn text(&self) -> String {
        format!("{:?}", (&self.anywhere, &self.at_root, &self.in_any_repository, &self.in_root_repository))
    }
}

/// Whether a name on disk is a protected one, in any spelling.
fn is_same(protected: &str, name: &str) -> bool {
    // A fast path: almost all names are plain ASCII, and every entry is checked.
    if name.is_ascii() && !name.contains(['~', ':']) {
        let short = name.trim_end_matches(['.', ' ']);
        return protected.eq_ignore_ascii_case(if short.is_empty() { name } else { short });
    }
    is_same_name(protected, name)
}

/// Whether a path is a place, or lies in it.
pub(super) fn is_within(path: &Path, place: Option<&Path>) -> bool {
    place.is_some_and(|place| path.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_path_rules_do() {
        let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let rules = ProtectedNames::new(
            &names(&["dist", ".git/config", "a/b"]),
            &names(&[".mcp.json", ".git/hooks"]),
            &names(&[".bashrc"]),
            "/home/me".into(),
        );
        for name in [
            ".mcp.json",
            ".MCP.Json",
            ".mcp.json. .",
            ".mcp.j\u{17f}on",
            ".mcp\u{200b}.json",
            ".ｍcp.json",
            "MCP~1.JSO",
            ".mcp.json::$DATA",
        ] {
            assert!(rules.is_protected(OsStr::new(name), false), "{name}");
        }
        for name in ["mcp.json", ".mcp.json5", "dist", ".bashrc", "b"] {
            assert!(!rules.is_protected(OsStr::new(name), false), "{name}");
        }
        assert!(rules.is_protected(OsStr::new("Dist"), true));
        for name in [".GIT", ".g\u{200c}it", "git~1", ".git::$INDEX_ALLOCATION", ".ｇit", ".git\u{ad}"] {
            assert!(rules.is_repository(OsStr::new(name)), "{name}");
        }
        assert_eq!(rules.in_repository(true).collect::<Vec<_>>(), ["hooks", "config"]);
        assert_eq!(rules.in_repository(false).collect::<Vec<_>>(), ["hooks"]);
        assert!(!rules.only_at_root());
    }
}
