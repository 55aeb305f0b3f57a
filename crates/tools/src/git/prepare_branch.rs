//! `prepare_branch`: creates the branch of a task with the work of its dependencies.

use helve_contract::{Call, Effects, Error, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    join::{MergeOutcome, merge_commits},
    program::{Git, check_branch_name},
};
use crate::artifacts::{CallArtifacts, DagNodeKind, TaskStatus, check_task_id};

/// Makes the branch `forge/<taskId>/<attemptId>` from the base, with the branches of all dependencies merged in. A conflict makes nothing and names the files. Returns branch, baseRef and mergedDeps.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct PrepareBranch {
    /// Such as "task-001"
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// From 1
    #[serde(rename = "attemptId")]
    #[schemars(range(min = 1))]
    pub attempt_id: u32,
}

impl Tool for PrepareBranch {
    const NAME: &'static str = "prepare_branch";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let task = check_task_id(&self.task_id)?;
        if self.attempt_id == 0 {
            return Err(Error::failed("Invalid attemptId `0`; it is a number from 1"));
        }
        let branch = format!("forge/{task}/{}", self.attempt_id);
        let git = Git::open(call).await?;
        let base = base(call, &git).await?;
        let start = git.resolve_commit(&base).await?;
        let start =
            start.ok_or_else(|| Error::failed(format!("the base `{base}` does not exist; commit something to it")))?;
        let wanted = dependencies(call, task).await?;

        // The merges happen in the object store only: no work tree changes, and a conflict leaves nothing.
        let mut tip = start;
        let mut merged = Vec::new();
        for name in wanted {
            let Some(theirs) = git.branch_tip(&name).await? else {
                return Err(Error::failed(format!("the branch `{name}` that `{task}` depends on does not exist")));
            };
            let message = format!("Merge branch '{name}' into {branch}");
            tip = match merge_commits(&git, &tip, &theirs, &message).await? {
                MergeOutcome::Commit(tip) => tip,
                MergeOutcome::Conflict(files) => {
                    let files = files.join(", ");
                    return Err(Error::failed(format!(
                        "merging `{name}` into `{branch}` conflicts in {files}; nothing was made"
                    )));
                }
            };
            merged.push(name);
        }
        if let Some(there) = git.branch_tip(&branch).await? {
            // The branch may exist from an earlier process; with work on it, it is kept.
            if !git.is_ancestor(&tip, &there).await? && !same_tree(&git, &tip, &there).await? {
                return Err(Error::failed(format!(
                    "the branch `{branch}` exists and holds something else; take the next attempt"
                )));
            }
        } else {
            git.run_checked(&["update-ref", "--create-reflog", &format!("refs/heads/{branch}"), &tip, ""]).await?;
        }
        let mut told = json!({ "branch": branch, "baseRef": base });
        if !merged.is_empty() {
            told["mergedDeps"] = merged.into();
        }
        Ok(told)
    }
}

/// The base of branches: the run's setting or the checked-out branch.
async fn base(call: &Call, git: &Git<'_>) -> Result<String> {
    if let Some(errand) = &call.session.task
        && !errand.base.is_empty()
    {
        return Ok(check_branch_name(&errand.base)?.to_owned());
    }
    Ok(git.current_branch().await?.unwrap_or_else(|| "HEAD".to_owned()))
}

/// The branches of the dependencies: of each the merged attempt, in the order of the plan.
async fn dependencies(call: &Call, task: &str) -> Result<Vec<String>> {
    if call.session.task.is_none() {
        return Ok(Vec::new());
    }
    let room = CallArtifacts::for_call(call)?;
    let dag = room.dag().await?;
    let node = dag.node(task).ok_or_else(|| Error::failed(format!("there is no task `{task}` in this run")))?;
    if node.kind == DagNodeKind::Refinery {
        // It merges them itself, and may have conflicts to decide.
        return Ok(Vec::new());
    }
    let status = room.status(&dag).await?;
    let mut branches = Vec::new();
    for id in &node.dependencies {
        let state = status.node(id)?;
        if !matches!(state.status, TaskStatus::MergeReady | TaskStatus::Merged) {
            return Err(Error::failed(format!(
                "`{task}` depends on `{id}`, which is {}; it must be merged first",
                state.status
            )));
        }
        branches.push(format!("forge/{id}/{}", state.current_attempt));
    }
    Ok(branches)
}

async fn same_tree(git: &Git<'_>, one: &str, other: &str) -> Result<bool> {
    let trees = git.run_checked(&["rev-parse", &format!("{one}^{{tree}}"), &format!("{other}^{{tree}}")]).await?;
    let mut trees = trees.lines();
    Ok(trees.next() == trees.next())
}
