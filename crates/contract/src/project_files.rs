//! Project files that programs outside the sandbox run automatically: when a directory is entered or opened, at a
//! commit, at an install, after a push. Tools and commands may write them; Helve tells the user which program runs
//! them.
//!
//! Files that run only when somebody names them, such as `Makefile` or `conftest.py`, are not listed: they are ordinary
//! code. Protected settings of git, editors and agents (`.git/config`, `.vscode`, `.mcp.json`) are not listed either:
//! no tool may write them.

use std::path::Path;

/// A file or directory that a program runs automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectFile {
    /// The end of its path. A component may start with `*`.
    pub path: &'static str,
    /// The program that runs it, and when.
    pub run_by: &'static str,
}

const GITHUB: &str = "GitHub Actions after a push";
const CI: &str = "the CI service after a push";
const DEV_CONTAINER: &str = "editors that open the dev container";
const DIRENV: &str = "direnv in the user's shell when the folder is entered";
const MISE: &str = "mise in the user's shell when the folder is entered";
const LEFTHOOK: &str = "git hooks of lefthook";
const NPM: &str = "npm, pnpm and yarn at install and by name";
const PACKAGE_MANAGER: &str = "the package manager at its next start";
const CARGO: &str = "cargo and rust-analyzer at the next build";
const ESLINT: &str = "editors with ESLint when a file is opened";
const PRETTIER: &str = "editors with Prettier when a file is opened";
const VIM: &str = "Vim and Neovim with `exrc` when the folder is opened";

/// All rows. A row with several components matches the end of a path, and everything beneath a matching directory.
pub const PROJECT_FILES: &[ProjectFile] = &[
    row(".envrc", DIRENV),
    row("mise.toml", MISE),
    row(".mise.toml", MISE),
    row(".husky", "git hooks of husky"),
    row(".githooks", "git where core.hooksPath names the folder"),
    row("lefthook.yml", LEFTHOOK),
    row("lefthook.yaml", LEFTHOOK),
    row(".lefthook.yml", LEFTHOOK),
    row(".lefthook", LEFTHOOK),
    row(".pre-commit-config.yaml", "git hooks of pre-commit"),
    row("package.json", NPM),
    row(".npmrc", PACKAGE_MANAGER),
    row(".yarnrc", PACKAGE_MANAGER),
    row(".yarnrc.yml", PACKAGE_MANAGER),
    row(".pnpmfile.cjs", PACKAGE_MANAGER),
    row(".cargo/config.toml", CARGO),
    row(".cargo/config", CARGO),
    row("build.rs", CARGO),
    row(".github/workflows", GITHUB),
    row(".github/actions", GITHUB),
    row(".forgejo/workflows", CI),
    row(".gitea/workflows", CI),
    row(".gitlab-ci.yml", "GitLab CI after a push"),
    row(".circleci", CI),
    row(".buildkite", CI),
    row(".woodpecker", CI),
    row(".woodpecker.yml", CI),
    row(".drone.yml", CI),
    row(".travis.yml", CI),
    row(".cirrus.yml", CI),
    row("Jenkinsfile", CI),
    row("azure-pipelines.yml", CI),
    row("bitbucket-pipelines.yml", CI),
    row(".gitpod.yml", DEV_CONTAINER),
    row(".devcontainer", DEV_CONTAINER),
    row(".devcontainer.json", DEV_CONTAINER),
    row("*.code-workspace", "VS Code when the workspace is opened"),
    row(".zed", "Zed when the folder is opened"),
    row(".fleet", "Fleet when the folder is opened"),
    row(".eslintrc.js", ESLINT),
    row(".eslintrc.cjs", ESLINT),
    row("eslint.config.js", ESLINT),
    row("eslint.config.mjs", ESLINT),
    row("eslint.config.cjs", ESLINT),
    row("eslint.config.ts", ESLINT),
    row(".prettierrc.js", PRETTIER),
    row(".prettierrc.cjs", PRETTIER),
    row("prettier.config.js", PRETTIER),
    row("prettier.config.mjs", PRETTIER),
    row("prettier.config.cjs", PRETTIER),
    row(".exrc", VIM),
    row(".nvimrc", VIM),
    row(".nvim.lua", VIM),
    row(".vimrc", VIM),
    row(".dir-locals.el", "Emacs when a file of the folder is opened"),
    row(".gdbinit", "gdb when it is started in the folder"),
    row(".lldbinit", "lldb when it is started in the folder"),
];

/// Directories with installed packages, whose files do not belong to the project.
const INSTALLED: [&str; 3] = ["node_modules", "site-packages", ".git"];

const fn row(path: &'static str, run_by: &'static str) -> ProjectFile {
    ProjectFile { path, run_by }
}

impl ProjectFile {
    /// The row for a path beneath a root: of the file or of a parent directory.
    #[must_use]
    pub fn find(path: &Path) -> Option<&'static Self> {
        let parts: Vec<&str> = path.components().map(|part| part.as_os_str().to_str().unwrap_or_default()).collect();
        if parts.iter().any(|part| INSTALLED.contains(part)) {
            return None;
        }
        (1..=parts.len()).find_map(|end| PROJECT_FILES.iter().find(|row| row.ends(&parts[..end])))
    }

    fn ends(&self, parts: &[&str]) -> bool {
        let is_same = |wanted: &str, part: &str| match wanted.strip_prefix('*') {
            Some(end) => part.ends_with(end),
            None => wanted.eq_ignore_ascii_case(part),
        };
        let mut left = parts.iter().rev();
        self.path.rsplit('/').all(|wanted| left.next().is_some_and(|part| is_same(wanted, part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_the_end_of_a_path_and_for_all_that_lies_inside() {
        for (path, row) in [
            (".envrc", ".envrc"),
            ("deep/.envrc", ".envrc"),
            (".husky/pre-commit", ".husky"),
            ("a/.husky/_/h", ".husky"),
            (".github/workflows/ci.yml", ".github/workflows"),
            ("a/package.json", "package.json"),
            ("x.code-workspace", "*.code-workspace"),
            ("a/.cargo/config.toml", ".cargo/config.toml"),
        ] {
            assert_eq!(ProjectFile::find(Path::new(path)).map(|it| it.path), Some(row), "{path}");
        }
        for path in ["", "src/main.rs", ".github/x", "envrc", "workflows/x", "node_modules/a/package.json", "Makefile"]
        {
            assert_eq!(ProjectFile::find(Path::new(path)), None, "{path}");
        }
    }
}
