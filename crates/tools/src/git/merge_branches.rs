//! `merge_branches`: merges branches in order until one conflicts.

use helve_contract::{Call, Effects, Error, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::program::{Git, check_branch_name};

/// Merges branches into a target branch, in order. At the first conflict it stops with success false and the files; the merge stays open, so that they can be fixed and committed. Merging again what is merged changes nothing.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MergeBranches {
    /// What to merge, in this order
    #[serde(rename = "sourceBranches")]
    pub source_branches: Vec<String>,
    /// Where to; made from the base if it does not exist
    #[serde(rename = "targetBranch")]
    pub target_branch: String,
    /// Undo the merge at a conflict instead of leaving it open
    #[serde(default)]
    pub abort: bool,
}

impl Tool for MergeBranches {
    const NAME: &'static str = "merge_branches";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let target = check_branch_name(&self.target_branch)?;
        for name in &self.source_branches {
            check_branch_name(name)?;
        }
        let git = Git::open(call).await?;
        for name in &self.source_branches {
            if git.branch_tip(name).await?.is_none() {
                return Err(Error::failed(format!("there is no branch `{name}`; nothing was merged")));
            }
        }
        if git.is_merging().await? {
            let files = git.conflicted_files().await?;
            if !files.is_empty() {
                return Err(Error::failed(format!(
                    "a merge is still open with conflicts in {}; fix them and commit, then merge the rest",
                    files.join(", ")
                )));
            }
            git.run_checked(&["commit", "--no-edit", "--quiet", "--no-verify"]).await?;
        }
        check_out(call, &git, target).await?;

        for name in &self.source_branches {
            let message = format!("Merge branch '{name}' into {target}");
            let theirs = format!("refs/heads/{name}");
            let said = git.run(&["merge", "--quiet", "--no-verify", "--no-stat", "-m", &message, &theirs]).await?;
            if said.code == 0 {
                continue;
            }
            let conflicts = git.conflicted_files().await?;
            if conflicts.is_empty() {
                // Not a conflict: a file in the way, unrelated histories.
                _ = git.run(&["merge", "--abort"]).await;
                let why = said.err.trim();
                let locked = why.contains("Unable to write index") || why.contains("index.lock");
                let hint = if locked { "; where no other git is at work here, remove .git/index.lock" } else { "" };
                return Err(Error::failed(format!("`{name}` could not be merged: {why}{hint}")));
            }
            if self.abort {
                git.run_checked(&["merge", "--abort"]).await?;
            }
            return Ok(json!({ "success": false, "conflicts": conflicts, "branch": name }));
        }
        Ok(json!({ "success": true }))
    }
}

/// Checks out the target branch. Never touches uncommitted work.
async fn check_out(call: &Call, git: &Git<'_>, target: &str) -> Result<()> {
    let head = git.current_branch().await?;
    if head.as_deref() == Some(target) {
        return Ok(());
    }
    let changed = git.uncommitted_files().await?;
    if !changed.is_empty() {
        return Err(Error::failed(format!(
            "`{target}` cannot be checked out, because {} changed and is not committed; commit first",
            changed.join(", ")
        )));
    }
    if git.branch_tip(target).await?.is_some() {
        git.run_checked(&["checkout", "--quiet", "--no-guess", target, "--"]).await?;
        return Ok(());
    }
    let base = call.session.task.as_ref().map(|errand| errand.base.as_str()).filter(|base| !base.is_empty());
    let base = base.unwrap_or("HEAD");
    if base != "HEAD" {
        check_branch_name(base)?;
    }
    git.run_checked(&["checkout", "--quiet", "--no-track", "-b", target, base, "--"]).await?;
    Ok(())
}
