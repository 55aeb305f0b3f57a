//! Branches come together: into the branch of the run first, into the base in the end.

use helve_contract::{Error, Result};
use helve_tools::{
    artifacts::{ChangeRequest, Dag, Document, NodeKind, RequestStatus, Room, Status},
    git::{Git, Joined, join},
};
use serde_json::json;

use super::executor::{Executor, integration};

impl Executor {
    /// The branch that the run's work comes together in, made from the base.
    pub(super) async fn make_integration(&self) -> Result<()> {
        let call = self.call();
        let git = Git::of(&call).await?;
        let name = integration(&self.run);
        if git.branch(&name).await?.is_some() {
            return Ok(());
        }
        let base = git.branch(&self.base).await?;
        let base = base.ok_or_else(|| {
            Error::failed(format!("there is no branch `{}`; commit something to it first", self.base))
        })?;
        git.must(&["update-ref", "--create-reflog", &format!("refs/heads/{name}"), &base, ""]).await?;
        Ok(())
    }

    /// Merges what is ready for it. A refinery's branch brings with it what it merged; a task that no refinery waits for,
    /// or that another task waits for, is merged alone.
    pub(super) async fn merge(&self, room: &Room<'_>, dag: &Dag) -> Result<()> {
        for node in dag.order() {
            let status = room.status(dag).await?;
            if status.of(&node.id)?.status != Status::MergeReady {
                continue;
            }
            let alone = node.kind == NodeKind::Refinery || {
                let mut after = dag.nodes.iter().filter(|it| it.dependencies.contains(&node.id)).peekable();
                after.peek().is_none() || after.any(|it| it.kind == NodeKind::Task)
            };
            if !alone {
                continue;
            }
            let branch = format!("forge/{}/{}", node.id, status.of(&node.id)?.current_attempt);
            if let Err(files) = self.integrate(&branch).await? {
                self.ask_for_help(room, &node.id, &branch, &files).await?;
                continue;
            }
            if node.kind == NodeKind::Refinery {
                for before in &node.dependencies {
                    self.mark(before, Status::Merged).await?;
                }
                let merged = self.sources(node, &status)?;
                self.tell("refinery.merged", json!({ "taskId": node.id, "mergedBranches": merged, "conflicts": [] }));
            }
            self.mark(&node.id, Status::Merged).await?;
        }
        Ok(())
    }

    /// Merges a branch into the run's. `Err` has the files that conflict.
    async fn integrate(&self, branch: &str) -> Result<Result<(), Vec<String>>> {
        let call = self.call();
        let git = Git::of(&call).await?;
        let name = integration(&self.run);
        let gone = |name: &str| Error::failed(format!("the branch `{name}` is gone"));
        let ours = git.branch(&name).await?.ok_or_else(|| gone(&name))?;
        let theirs = git.branch(branch).await?.ok_or_else(|| gone(branch))?;
        let message = format!("Merge branch '{branch}' into {name}");
        match join(&git, &ours, &theirs, &message).await? {
            Joined::Commit(tip) if tip == ours => Ok(Ok(())),
            Joined::Commit(tip) => {
                git.must(&["update-ref", &format!("refs/heads/{name}"), &tip, &ours]).await?;
                Ok(Ok(()))
            }
            Joined::Conflict(files) => Ok(Err(files)),
        }
    }

    /// Asks for a change of the plan, because a branch does not fit. Once is enough.
    async fn ask_for_help(&self, room: &Room<'_>, task: &str, branch: &str, files: &[String]) -> Result<()> {
        let title = format!("{branch} conflicts with what is merged");
        if ChangeRequest::all(room).await?.iter().any(|it| it.front.title == title) {
            return Ok(());
        }
        let reason = format!("{} changed on both sides", files.join(", "));
        let front = ChangeRequest {
            id: String::new(),
            title,
            emitted_by: self.session.id.clone(),
            emitted_at: self.call().now(),
            status: RequestStatus::Pending,
            reason: reason.clone(),
            affected_tasks: vec![task.to_owned()],
            suggested_changes: format!("Add a refinery that depends on {task} and merges it."),
        };
        let body = format!(
            "## Description\n\n{reason}\n\n## Impact Assessment\n\n{task} cannot be merged.\n\n## Proposed Resolution\n\nA refinery after {task}."
        );
        ChangeRequest::add(room, Document { front, body }).await?;
        Ok(())
    }

    /// Brings the run's branch into the base. What cannot be done without harm is said instead.
    pub(super) async fn land(&self) -> Result<Option<String>> {
        let call = self.call();
        let git = Git::of(&call).await?;
        let name = integration(&self.run);
        let (Some(base), Some(tip)) = (git.branch(&self.base).await?, git.branch(&name).await?) else {
            return Ok(Some(format!("`{}` or `{name}` is gone; nothing was merged into the base", self.base)));
        };
        if git.is_ancestor(&tip, &base).await? {
            return Ok(None);
        }
        let by_hand = |why: &str| Ok(Some(format!("{why}; the work is on `{name}`: merge it with `git merge {name}`")));
        let message = format!("Merge branch '{name}'");
        let tip = match join(&git, &base, &tip, &message).await? {
            Joined::Commit(tip) => tip,
            Joined::Conflict(files) => {
                return by_hand(&format!("`{}` has moved on and conflicts in {}", self.base, files.join(", ")));
            }
        };
        if git.head().await?.as_deref() == Some(self.base.as_str()) {
            let changed = git.changed().await?;
            if !changed.is_empty() {
                return by_hand(&format!("`{}` is checked out with changes in {}", self.base, changed.join(", ")));
            }
            git.must(&["merge", "--quiet", "--ff-only", "--no-stat", &tip]).await?;
        } else {
            git.must(&["update-ref", &format!("refs/heads/{}", self.base), &tip, &base]).await?;
        }
        Ok(None)
    }
}
