//! Two histories in one commit, made in git's store of objects alone: no work tree is touched, a conflict leaves nothing.

use helve_contract::{Error, Result};

use super::program::{Git, Said};

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// The commit that has both.
    Commit(String),
    /// The files that changed on both sides.
    Conflict(Vec<String>),
}

/// Joins two commits. Where one has the other already, it is the answer.
pub async fn join(git: &Git<'_>, ours: &str, theirs: &str, message: &str) -> Result<Joined> {
    if git.is_ancestor(theirs, ours).await? {
        return Ok(Joined::Commit(ours.to_owned()));
    }
    if git.is_ancestor(ours, theirs).await? {
        return Ok(Joined::Commit(theirs.to_owned()));
    }
    let Said { code, out, err } =
        git.run(&["merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs]).await?;
    let mut lines = out.lines();
    let tree = lines.next().unwrap_or_default().to_owned();
    match code {
        0 => git.must(&["commit-tree", &tree, "-p", ours, "-p", theirs, "-m", message]).await.map(Joined::Commit),
        1 => Ok(Joined::Conflict(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())),
        _ => Err(Error::failed(format!("git merge-tree failed: {}", err.trim()))),
    }
}
