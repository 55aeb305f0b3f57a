//! An agent's work tree: a separate clone that borrows the repository's objects.
//!
//! A clone instead of `git worktree`: an agent with write access to a shared `.git` could move every branch. The
//! executor fetches only the agent's own branch.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use helve_contract::{Error, Result};
use helve_tools::git::Git;

/// A work tree.
pub(super) struct AgentClone {
    /// Its directory.
    pub(super) dir: PathBuf,
    branch: String,
}

impl AgentClone {
    /// Makes a work tree with this branch checked out, and the branches of the run at hand.
    pub(super) async fn create(git: &Git<'_>, dir: PathBuf, branch: &str) -> Result<Self> {
        remove_dir_if_exists(&dir).map_err(|error| Error::Internal(error.into()))?;
        let place = dir.display().to_string();
        let mut clone = vec!["clone", "--quiet", "--shared", "--no-tags", "--branch", branch];
        // The agent commits in the same name, and cannot change this later.
        let identity = git.identity().await?;
        clone.extend(identity.iter().flat_map(|it| ["--config", it.as_str()]));
        clone.extend(["--", ".", place.as_str()]);
        git.run_checked(&clone).await?;
        git.run_checked(&[
            "-C",
            &place,
            "fetch",
            "--quiet",
            "--no-tags",
            "origin",
            "+refs/heads/*:refs/heads/*",
            "--update-head-ok",
        ])
        .await?;
        Ok(Self { dir, branch: branch.to_owned() })
    }

    /// The work tree that a process left behind which is gone; none if it is not whole.
    pub(super) async fn reopen(git: &Git<'_>, dir: PathBuf, branch: &str) -> Result<Option<Self>> {
        if !dir.join(".git").is_dir() {
            return Ok(None);
        }
        let place = dir.display().to_string();
        let head = git.run(&["-C", &place, "symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        Ok((head.out.trim() == branch).then(|| Self { dir, branch: branch.to_owned() }))
    }

    /// Commits what the agent left uncommitted, and takes its branch over into the repository. Answers its last commit.
    pub(super) async fn commit_and_fetch(&self, git: &Git<'_>, message: &str) -> Result<String> {
        let place = self.dir.display().to_string();
        let on = git.run(&["-C", &place, "symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        if on.out.trim() != self.branch {
            return Err(Error::failed(format!(
                "the agent left the branch `{}` for `{}`, so its work cannot be taken over",
                self.branch,
                on.out.trim()
            )));
        }
        let open = git.run(&["-C", &place, "rev-parse", "--verify", "--quiet", "MERGE_HEAD"]).await?;
        let undecided = git.run_checked(&["-C", &place, "ls-files", "--unmerged"]).await?;
        if !undecided.is_empty() {
            return Err(Error::failed("the agent left a merge with conflicts"));
        }
        git.run_checked(&["-C", &place, "add", "--all"]).await?;
        let staged = git.run(&["-C", &place, "diff", "--cached", "--quiet"]).await?;
        if staged.code != 0 || open.code == 0 {
            git.run_checked(&["-C", &place, "commit", "--quiet", "--no-verify", "-m", message]).await?;
        }
        let branch = &self.branch;
        git.run_checked(&[
            "fetch",
            "--quiet",
            "--no-tags",
            &place,
            &format!("+refs/heads/{branch}:refs/heads/{branch}"),
        ])
        .await?;
        let commit = git.branch_tip(branch).await?;
        commit.ok_or_else(|| Error::failed(format!("the branch `{branch}` is gone")))
    }

    /// Removes the directory.
    pub(super) fn remove(&self) {
        _ = remove_dir_if_exists(&self.dir);
    }
}

/// Removes a directory, if it is there.
pub(super) fn remove_dir_if_exists(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
