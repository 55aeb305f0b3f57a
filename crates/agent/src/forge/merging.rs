//! Merges branches: into the run's branch first, into the base at the end.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
};

use helve_contract::{Error, Result, events::RefineryMerged, ids};
use helve_tools::{
    artifacts::{CallArtifacts, ChangeRequest, ChangeRequestStatus, Dag, DagNodeKind, FrontMatterDocument, TaskStatus},
    git::{Git, MergeOutcome, merge_commits},
};

use super::{
    executor::{Executor, integration_branch},
    working::dependency_branches,
};

impl Executor {
    /// The branch that the run's work comes together in, made from the base.
    pub(super) async fn create_integration_branch(&self) -> Result<()> {
        let call = self.call();
        let git = self.git(&call).await?;
        let name = integration_branch(&self.run.label);
        let is_first = self.forge_dir.claim_branch(&self.run).map_err(|error| Error::Internal(error.into()))?;
        let is_there = git.branch_tip(&name).await?.is_some();
        let is_old_run = !ids::is_id(&self.run.id);
        if is_there && (is_old_run || !is_first) {
            return Ok(());
        }
        if is_there {
            return Err(self.foreign_branch(&name));
        }
        let base = git.branch_tip(&self.base).await?;
        let base = base.ok_or_else(|| {
            Error::failed(format!("there is no branch `{}`; commit something to it first", self.base))
        })?;
        git.run_checked(&["update-ref", "--create-reflog", &format!("refs/heads/{name}"), &base, ""]).await?;
        Ok(())
    }

    /// The run begins, and its branch is there already: another run with the same label made it.
    fn foreign_branch(&self, name: &str) -> Error {
        // The next start must find it out again.
        self.forge_dir.release_branch(&self.run);
        let label = &self.run.label;
        Error::failed(format!(
            "the branch `{name}` is left from an earlier run with the label `{label}`, so this run does not use it; \
             rename it with `git branch -m {name} {name}-old`, or delete it, and start the run again"
        ))
    }

    /// Merges ready branches. A refinery's branch includes what it merged; a task without a refinery, or with
    /// dependents, is merged alone. Returns whether a conflict led to a change request.
    pub(super) async fn merge_ready(&self, room: &CallArtifacts<'_>, dag: &Dag) -> Result<bool> {
        let status = room.status(dag).await?;
        if status.nodes.values().all(|it| it.status != TaskStatus::MergeReady) {
            return Ok(false);
        }
        let mut asked = false;
        let (mut awaited, mut needed) = (HashSet::new(), HashSet::new());
        for node in &dag.nodes {
            let set = if node.kind == DagNodeKind::Refinery { &mut awaited } else { &mut needed };
            set.extend(node.dependencies.iter().map(String::as_str));
        }
        for node in dag.topological_order() {
            let state = status.node(&node.id)?;
            let id = node.id.as_str();
            let alone = node.kind == DagNodeKind::Refinery || !awaited.contains(id) || needed.contains(id);
            if state.status != TaskStatus::MergeReady || !alone {
                continue;
            }
            let branch = format!("forge/{id}/{}", state.current_attempt);
            let before = self.integration_head().await?;
            if let Err(files) = self.integrate(&branch).await? {
                asked |= self.request_change(room, &node.id, &branch, &files).await?;
                continue;
            }
            if node.kind == DagNodeKind::Refinery {
                for dependency in &node.dependencies {
                    self.set_status(dependency, TaskStatus::Merged).await?;
                }
                let conflicts = self.past_conflicts(&branch, &before).await?;
                let merged_branches = dependency_branches(node, &status)?;
                self.emit(RefineryMerged { task_id: node.id.clone(), merged_branches, conflicts });
            }
            self.set_status(&node.id, TaskStatus::Merged).await?;
        }
        Ok(asked)
    }

    /// Merges a branch into the run's. `Err` has the files that conflict.
    async fn integrate(&self, branch: &str) -> Result<Result<(), Vec<String>>> {
        let call = self.call();
        let git = self.git(&call).await?;
        let name = integration_branch(&self.run.label);
        let gone = |name: &str| Error::failed(format!("the branch `{name}` is gone"));
        let ours = git.branch_tip(&name).await?.ok_or_else(|| gone(&name))?;
        let theirs = git.branch_tip(branch).await?.ok_or_else(|| gone(branch))?;
        let message = format!("Merge branch '{branch}' into {name}");
        match merge_commits(&git, &ours, &theirs, &message).await? {
            MergeOutcome::Commit(tip) if tip == ours => Ok(Ok(())),
            MergeOutcome::Commit(tip) => {
                git.run_checked(&["update-ref", &format!("refs/heads/{name}"), &tip, &ours]).await?;
                Ok(Ok(()))
            }
            MergeOutcome::Conflict(files) => Ok(Err(files)),
        }
    }

    /// The last commit of the run's branch.
    async fn integration_head(&self) -> Result<String> {
        let call = self.call();
        let tip = self.git(&call).await?.branch_tip(&integration_branch(&self.run.label)).await?;
        tip.ok_or_else(|| Error::failed(format!("the branch `{}` is gone", integration_branch(&self.run.label))))
    }

    /// The files that did not fit together when a branch was made, by the merges in it since a commit.
    async fn past_conflicts(&self, branch: &str, since: &str) -> Result<Vec<String>> {
        let call = self.call();
        let git = self.git(&call).await?;
        let range = format!("{since}..refs/heads/{branch}");
        let merges = git.run_checked(&["rev-list", "--merges", "--parents", "--max-count=200", &range, "--"]).await?;
        let mut files = BTreeSet::new();
        for line in merges.lines() {
            let mut ids = line.split(' ').skip(1);
            if let (Some(ours), Some(theirs)) = (ids.next(), ids.next())
                && let MergeOutcome::Conflict(found) = merge_commits(&git, ours, theirs, "looked at again").await?
            {
                files.extend(found);
            }
        }
        Ok(files.into_iter().collect())
    }

    /// Requests a change of the plan because of a conflict, once. Returns whether it did.
    async fn request_change(
        &self,
        room: &CallArtifacts<'_>,
        task: &str,
        branch: &str,
        files: &[String],
    ) -> Result<bool> {
        let title = format!("{branch} conflicts with what is merged");
        if ChangeRequest::load_all(room).await?.iter().any(|it| it.front.title == title) {
            return Ok(false);
        }
        let reason = format!("{} changed on both sides", files.join(", "));
        let front = ChangeRequest {
            id: String::new(),
            title,
            emitted_by: self.session.name().to_owned(),
            emitted_at: self.call().now(),
            status: ChangeRequestStatus::Pending,
            reason: reason.clone(),
            affected_tasks: vec![task.to_owned()],
            suggested_changes: format!("Add a refinery that depends on {task} and merges it."),
        };
        let body = format!(
            "## Description\n\n{reason}\n\n## Impact Assessment\n\n{task} cannot be merged.\n\n## Proposed Resolution\n\nA refinery after {task}."
        );
        ChangeRequest::add(room, FrontMatterDocument { front, body }).await?;
        Ok(true)
    }

    /// The note that lies here while the base is moved on.
    fn landing_marker(&self) -> PathBuf {
        self.forge_dir.path().join("runs").join(&self.run.id).join("landing")
    }

    /// Whether the changes in the work tree come from an interrupted landing: a marker exists, and every file has its
    /// old or new content.
    async fn is_interrupted_landing(&self, git: &Git<'_>, note: &Path, base: &str, tip: &str) -> Result<bool> {
        if !note.exists() {
            return Ok(false);
        }
        let old = git.run_checked(&["diff", "--name-only", "--no-ext-diff", base, "--"]).await?;
        let new = git.run_checked(&["diff", "--name-only", "--no-ext-diff", tip, "--"]).await?;
        let old: HashSet<&str> = old.lines().collect();
        Ok(!new.lines().any(|file| old.contains(file)))
    }

    /// Removes stale git locks. Only one executor works at a time, so locks of its branches are stale; those of the
    /// work tree only if it was landing.
    pub(super) fn remove_stale_locks(&self) {
        let refs = self.forge_dir.repo().join(".git/refs/heads");
        for ours in ["forge", "forge-run"] {
            remove_locks(&refs.join(ours));
        }
        let Ok(noted) = fs::metadata(self.landing_marker()).and_then(|it| it.modified()) else { return };
        let git = self.forge_dir.repo().join(".git");
        let base = format!("refs/heads/{}.lock", self.base);
        for name in ["index.lock", "HEAD.lock", "ORIG_HEAD.lock", base.as_str()] {
            let lock = git.join(name);
            if fs::metadata(&lock).and_then(|it| it.modified()).is_ok_and(|time| time >= noted) {
                _ = fs::remove_file(lock);
            }
        }
    }

    /// Merges the run's branch into the base. Returns a message if that is not safe.
    pub(super) async fn merge_into_base(&self) -> Result<Option<String>> {
        let call = self.call();
        let git = self.git(&call).await?;
        let name = integration_branch(&self.run.label);
        let (Some(base), Some(tip)) = (git.branch_tip(&self.base).await?, git.branch_tip(&name).await?) else {
            return Ok(Some(format!("`{}` or `{name}` is gone; nothing was merged into the base", self.base)));
        };
        if git.is_ancestor(&tip, &base).await? {
            return Ok(None);
        }
        let by_hand = |why: &str| Ok(Some(format!("{why}; the work is on `{name}`: merge it with `git merge {name}`")));
        let message = format!("Merge branch '{name}'");
        let tip = match merge_commits(&git, &base, &tip, &message).await? {
            MergeOutcome::Commit(tip) => tip,
            MergeOutcome::Conflict(files) => {
                return by_hand(&format!("`{}` has moved on and conflicts in {}", self.base, files.join(", ")));
            }
        };
        if git.current_branch().await?.as_deref() == Some(self.base.as_str()) {
            let changed = git.uncommitted_files().await?;
            let landing = self.landing_marker();
            if !changed.is_empty() && !self.is_interrupted_landing(&git, &landing, &base, &tip).await? {
                return by_hand(&format!("`{}` is checked out with changes in {}", self.base, changed.join(", ")));
            }
            // A killed process leaves the marker: the partial result is the executor's and can be redone.
            fs::write(&landing, "").map_err(|error| Error::Internal(error.into()))?;
            let merge: &[&str] = if changed.is_empty() {
                &["merge", "--quiet", "--ff-only", "--no-stat", &tip]
            } else {
                &["reset", "--quiet", "--hard", &tip, "--"]
            };
            let merged = git.run(merge).await?;
            _ = fs::remove_file(&landing);
            if merged.code != 0 {
                return by_hand(&format!("`{}` could not be moved on: {}", self.base, merged.err.trim()));
            }
        } else {
            git.run_checked(&["update-ref", &format!("refs/heads/{}", self.base), &tip, &base]).await?;
        }
        Ok(None)
    }
}

/// Removes the locks beneath a directory of branches.
fn remove_locks(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_locks(&path),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|it| it == "lock") => _ = fs::remove_file(path),
            _ => {}
        }
    }
}
