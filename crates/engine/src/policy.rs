//! Protected paths: files that make programs run commands, or that define what the agent may do.

use helve_contract::{Access, PathGlob, PathRule};

/// Names that tools may not write, at the top of a root and in every directory beneath it, including their content.
///
/// `.npmrc`, `.gitignore`, `package.json` and similar files are not listed: projects change them often, and what they
/// run is in the sandbox. Listed are files that a person's shell, editor or agent obeys outside the sandbox.
pub const PROTECTED_PATHS: &[&str] = &[
    // Git runs programs that its settings and hooks name.
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/info/attributes",
    ".gitmodules",
    ".gitconfig",
    ".config/git",
    // Shells read these at startup.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".inputrc",
    ".config/fish",
    // Keys and login permissions.
    ".ssh",
    ".gnupg",
    ".aws/credentials",
    ".aws/config",
    ".netrc",
    ".docker/config.json",
    ".kube/config",
    // Programs and editors run what these settings name.
    ".ripgreprc",
    ".vscode",
    ".idea",
    // Permissions of agents, including Helve.
    ".mcp.json",
    ".claude",
    ".claude.json",
    ".cursor",
    ".codex",
    ".gemini",
    ".helve",
    "helve.toml",
    "helve.yaml",
    // Submodules use `.git/modules`, worktrees `.git/worktrees`.
    ".git/commondir",
    ".git/gitdir",
    ".git/modules/**/config",
    ".git/modules/**/hooks",
    ".git/worktrees/**/config.worktree",
    ".git/worktrees/**/commondir",
    ".git/worktrees/**/gitdir",
];

/// The number of names at the end of [`PROTECTED_PATHS`] that are patterns or exist only in worktrees, so a mount
/// cannot mask them.
const UNMASKABLE_COUNT: usize = 7;

const PROTECTED_REASON: &str =
    "is protected: it can make programs run commands or change what the agent may do; ask the user to change it";

/// The rules that keep tools from writing what is protected, wherever in a root it lies.
pub fn protected_path_rules() -> impl Iterator<Item = PathRule> {
    PROTECTED_PATHS
        .iter()
        .map(|name| PathRule::new(PathGlob::new(&format!("**/{name}")), Access::Write, PROTECTED_REASON))
}

/// The paths beneath a root that a sandbox masks, so that commands cannot write or create them either.
pub fn maskable_paths() -> &'static [&'static str] {
    PROTECTED_PATHS.split_last_chunk::<UNMASKABLE_COUNT>().map_or(PROTECTED_PATHS, |(places, _)| places)
}

/// Whether a protected path matters only in a home directory, because programs read it nowhere else.
pub fn is_home_only(place: &str) -> bool {
    const HOME_ONLY: [&str; 10] =
        [".gitconfig", ".config", ".profile", ".inputrc", ".ssh", ".gnupg", ".aws", ".netrc", ".docker", ".kube"];
    let first = place.split('/').next().unwrap_or(place);
    HOME_ONLY.contains(&first) || first.starts_with(".bash") || first.starts_with(".z")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use helve_contract::PathRules;

    use super::*;

    fn refused(path: &str, access: Access) -> bool {
        PathRules::new(protected_path_rules()).denial_reason(Path::new(path), access).is_some()
    }

    #[test]
    fn what_runs_commands_cannot_be_written() {
        for path in [
            ".git/config",
            ".GIT/Config",
            "deep/down/.git/hooks/pre-commit",
            ".git/modules/a/b/config",
            ".git/modules/a/hooks/x",
            ".gitmodules",
            ".bashrc",
            "home/me/.ssh/authorized_keys",
            ".vscode/tasks.json",
            ".idea/workspace.xml",
            ".mcp.json",
            ".cursor/MCP.json",
            ".ripgreprc",
            "helve.toml",
            ".helve/state.db",
            ".claude/settings.json",
            ".g\u{200c}it/config",
            "GIT~1/hooks/x",
            ".git\u{200b}/hooks/x",
            ".git\u{ad}/config",
            ".ｇit/config",
            ".git::$INDEX_ALLOCATION/config",
            "a/.GIT ./ho\u{2060}oks/x",
            "BASHRC~1",
            ".v\u{fe0f}scode/tasks.json",
        ] {
            assert!(refused(path, Access::Write), "{path}");
            assert!(!refused(path, Access::Read), "{path}");
        }
    }

    #[test]
    fn what_projects_change_can_be_written() {
        for path in [
            ".gitignore",
            ".github/workflows/ci.yml",
            ".npmrc",
            ".git-blame-ignore-revs",
            "src/config",
            "hooks/x",
            "bashrc",
        ] {
            assert!(!refused(path, Access::Write), "{path}");
        }
    }

    #[test]
    fn places_are_plain_names() {
        let places = maskable_paths();
        assert!(places.iter().all(|place| !place.contains('*')));
        assert_eq!(places.last(), Some(&"helve.yaml"));
    }
}
