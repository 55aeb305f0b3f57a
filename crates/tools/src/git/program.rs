//! Runs `git` without hooks, helpers or prompts, and with names that cannot be options.

use std::time::Duration;

use helve_contract::{Call, Error, Result, Tool, ports::Streams};

use crate::shell::RunTool;

/// Features that are disabled whatever the repository says.
const HARDENING_CONFIG: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.editor=true",
    "core.quotePath=false",
    "core.sshCommand=false",
    "core.askPass=false",
    "credential.helper=",
    "commit.gpgSign=false",
    "merge.verifySignatures=false",
    "diff.external=",
    "submodule.recurse=false",
    "advice.detachedHead=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Ignores system and user settings, and never prompts.
const HARDENING_ENV: &[&str] = &[
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_TERMINAL_PROMPT=0",
    "GIT_MERGE_AUTOEDIT=no",
    "LC_ALL=C.UTF-8",
];

/// The timeout of one git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(300);

/// Git in the directory where commands of the session start.
pub struct Git<'a> {
    call: &'a Call,
    identity: Vec<String>,
}

/// What git said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl<'a> Git<'a> {
    /// Git in the session's repository. The error says what to do if there is none.
    pub async fn open(call: &'a Call) -> Result<Self> {
        let mut git = Self { call, identity: Vec::new() };
        let inside = git.run(&["rev-parse", "--is-inside-work-tree"]).await?;
        if inside.out.trim() != "true" {
            return Err(Error::failed(
                "there is no git repository here; make one with `git init`, and commit something",
            ));
        }
        let email = git.run(&["config", "--get", "user.email"]).await?;
        if email.out.trim().is_empty() {
            git.identity = ["user.name=Helve", "user.email=helve@localhost"].map(str::to_owned).into();
        }
        Ok(git)
    }

    /// Like `open`, for a repository whose identity is known.
    #[must_use]
    pub fn with_identity(call: &'a Call, identity: Vec<String>) -> Self {
        Self { call, identity }
    }

    /// Runs git. A non-zero exit code is not an error.
    pub async fn run(&self, args: &[&str]) -> Result<GitOutput> {
        let settings = HARDENING_CONFIG.iter().copied().chain(self.identity.iter().map(String::as_str));
        // Through `env`, because callers must not set such variables in a command's environment.
        let mut argv: Vec<String> =
            ["env"].iter().chain(HARDENING_ENV).chain(&["git"]).map(|it| (*it).to_owned()).collect();
        argv.extend(settings.flat_map(|it| ["-c".to_owned(), it.to_owned()]));
        argv.extend(args.iter().map(|it| (*it).to_owned()));
        let run = RunTool {
            argv,
            timeout: Some(GIT_TIMEOUT),
            description: Some(format!("git {}", args.join(" "))),
            offline: true,
            streams: Streams::Separate,
            ..RunTool::default()
        };
        let done = run.run(self.call).await?;
        if done.timed_out {
            return Err(Error::Timeout(GIT_TIMEOUT));
        }
        if done.cancelled {
            return Err(Error::Cancelled);
        }
        Ok(GitOutput { code: done.exit.unwrap_or(-1), out: done.stdout, err: done.stderr })
    }

    /// Runs git and returns its output without the final newline; a failure is an error with git's message.
    pub async fn run_checked(&self, args: &[&str]) -> Result<String> {
        let said = self.run(args).await?;
        if said.code == 0 {
            return Ok(said.out.trim_end_matches('\n').to_owned());
        }
        let words = if said.err.trim().is_empty() { said.out } else { said.err };
        Err(Error::failed(format!("git {} failed: {}", args.first().unwrap_or(&""), words.trim())))
    }

    /// The committer identity, as settings.
    pub async fn identity(&self) -> Result<Vec<String>> {
        if !self.identity.is_empty() {
            return Ok(self.identity.clone());
        }
        let mut settings = Vec::new();
        for key in ["user.name", "user.email"] {
            let value = self.run(&["config", "--get", key]).await?;
            settings.push(format!("{key}={}", value.out.trim()));
        }
        Ok(settings)
    }

    /// The commit that a branch, tag or commit name means; none if there is no such thing.
    pub async fn resolve_commit(&self, name: &str) -> Result<Option<String>> {
        let said =
            self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")]).await?;
        Ok((said.code == 0).then(|| said.out.trim().to_owned()))
    }

    /// The commit of a local branch.
    pub async fn branch_tip(&self, name: &str) -> Result<Option<String>> {
        self.resolve_commit(&format!("refs/heads/{name}")).await
    }

    /// Whether one commit is in the history of another.
    pub async fn is_ancestor(&self, old: &str, new: &str) -> Result<bool> {
        match self.run(&["merge-base", "--is-ancestor", old, new]).await?.code {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(Error::failed(format!("git cannot compare {old} and {new}"))),
        }
    }

    /// The branch that is checked out; none where a commit is.
    pub async fn current_branch(&self) -> Result<Option<String>> {
        let said = self.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        Ok((said.code == 0).then(|| said.out.trim().to_owned()))
    }

    /// Files that a merge could not decide, sorted.
    pub async fn conflicted_files(&self) -> Result<Vec<String>> {
        let listed = self.run_checked(&["ls-files", "--unmerged", "--full-name"]).await?;
        let mut paths: Vec<_> =
            listed.lines().filter_map(|line| Some(unquote_c_style(line.split_once('\t')?.1))).collect();
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// Whether a merge is in progress.
    pub async fn is_merging(&self) -> Result<bool> {
        Ok(self.run(&["rev-parse", "--verify", "--quiet", "MERGE_HEAD"]).await?.code == 0)
    }

    /// Files with changes that are not committed, as `git status` names them.
    pub async fn uncommitted_files(&self) -> Result<Vec<String>> {
        let listed =
            self.run_checked(&["status", "--porcelain=v1", "--untracked-files=no", "--ignore-submodules"]).await?;
        Ok(listed.lines().filter_map(|line| Some(unquote_c_style(line.get(3..)?))).collect())
    }
}

/// Checks the name of a branch: git itself would take it, and nothing can take it for an option or a range.
pub fn check_branch_name(name: &str) -> Result<&str> {
    let bad = name.is_empty()
        || name.len() > 240
        || name.starts_with(['-', '/', '.'])
        || name.ends_with(['/', '.'])
        || name == "@"
        || name == "HEAD"
        || name.contains("..")
        || name.contains("//")
        || name.contains("@{")
        || name.split('/').any(|part| part.starts_with('.') || part.strip_suffix(".lock").is_some())
        || name.chars().any(|it| it.is_control() || it.is_whitespace() || "~^:?*[\\\u{7f}".contains(it));
    if bad {
        return Err(Error::failed(format!("`{}` is not the name of a branch", name.escape_debug())));
    }
    Ok(name)
}

/// A path as git prints it, without its quotes.
fn unquote_c_style(text: &str) -> String {
    let Some(inner) = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')) else { return text.to_owned() };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(digit @ b'0'..=b'3') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let Some(next) = rest.next_if(|it| (b'0'..=b'7').contains(it)) {
                        value = value * 8 + u32::from(next - b'0');
                    }
                }
                bytes.push(value as u8);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_would_take_for_something_else() {
        for bad in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "HEAD",
            "@",
            "x.lock",
            "a/.b",
            "a//b",
            "/a",
            "a/",
            "a@{1}",
            "a\n",
        ] {
            assert!(check_branch_name(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "forge/task-001/1", "feature/ümlaut", "a.b", "release-1.0"] {
            check_branch_name(good).unwrap();
        }
    }

    #[test]
    fn reads_paths_as_git_writes_them() {
        assert_eq!(unquote_c_style(r#""a\tb\"c\303\244""#), "a\tb\"cä");
        assert_eq!(unquote_c_style("plain name.txt"), "plain name.txt");
    }
}
