//! Merges two commits in the object store only: no work tree changes, and a conflict leaves nothing.

use helve_contract::{Error, Result};

use super::program::{Git, GitOutput};

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The merge commit.
    Commit(String),
    /// The files that changed on both sides.
    Conflict(Vec<String>),
}

/// Merges two commits. If one contains the other, it is the result.
pub async fn merge_commits(git: &Git<'_>, ours: &str, theirs: &str, message: &str) -> Result<MergeOutcome> {
    if git.is_ancestor(theirs, ours).await? {
        return Ok(MergeOutcome::Commit(ours.to_owned()));
    }
    if git.is_ancestor(ours, theirs).await? {
        return Ok(MergeOutcome::Commit(theirs.to_owned()));
    }
    let GitOutput { code, out, err } =
        git.run(&["merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs]).await?;
    let mut lines = out.lines();
    let tree = lines.next().unwrap_or_default().to_owned();
    match code {
        0 => git
            .run_checked(&["commit-tree", &tree, "-p", ours, "-p", theirs, "-m", message])
            .await
            .map(MergeOutcome::Commit),
        1 => Ok(MergeOutcome::Conflict(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())),
        _ => Err(Error::failed(format!("git merge-tree failed: {}", err.trim()))),
    }
}
