//! Workload: branches, merged one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use serde_json::json;

use super::{StepOutcome, Workload, classify};
use crate::{BatchProcess, Rng, TestEnv, Violation};

/// Branches that each add a file, and which of them were acknowledged as merged.
#[derive(Debug, Default)]
pub struct MergeWorkload {
    round: u64,
    /// Those of this round that were not tried yet.
    left: Vec<String>,
    merged: BTreeSet<String>,
    tips: BTreeMap<String, String>,
}

/// Branches of a round.
const BRANCHES_PER_ROUND: u64 = 12;

/// Git, by hand and in the project.
fn git(work: &Path) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=A", "-c", "user.email=a@b"]).current_dir(work).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn git_output(work: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = git(work).args(args).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Makes the project a repository with one commit, if it is none yet.
pub(super) fn init_repository(desk: &TestEnv) -> anyhow::Result<()> {
    let work = desk.path("work");
    if work.join(".git").is_dir() {
        return Ok(());
    }
    git_output(&work, &["init", "--quiet", "--template=", "--initial-branch=main"])?;
    git_output(&work, &["commit", "--quiet", "--allow-empty", "-m", "begin"])?;
    git_output(&work, &["branch", "base"])?;
    Ok(())
}

/// Names and tips of the branches that are to be merged.
fn branch_tips(work: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let all = git_output(work, &["for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/part-*"])?;
    Ok(all.lines().filter_map(|it| it.split_once(' ')).map(|(name, tip)| (name.into(), tip.into())).collect())
}

impl Workload for MergeWorkload {
    fn name(&self) -> &'static str {
        "merges"
    }

    fn dialect(&self) -> &'static str {
        "forge"
    }

    fn prepare(&mut self, desk: &TestEnv) -> anyhow::Result<()> {
        let work = desk.path("work");
        init_repository(desk)?;
        // A git lock means that a process may be active: users check and remove it.
        for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock", "ORIG_HEAD.lock", "MERGE_HEAD.lock"] {
            _ = fs::remove_file(work.join(".git").join(lock));
        }
        git_output(&work, &["reset", "--quiet", "--hard"])?;
        self.round += 1;
        self.left = (0..BRANCHES_PER_ROUND).map(|at| format!("part-{}-{at}", self.round)).collect();
        let stream = self.left.iter().fold(String::new(), |mut all, name| {
            let body = format!("{name}\n").repeat(300);
            let head = format!("commit refs/heads/{name}\ncommitter A <a@b> 1700000000 +0000\ndata 5\npart\n");
            _ = write!(all, "{head}from refs/heads/base\nM 100644 inline {name}.txt\ndata {}\n{body}\n", body.len());
            all
        });
        let mut child = git(&work).args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input")?.write_all(stream.as_bytes())?;
        if !child.wait()?.success() {
            bail!("no branches could be made");
        }
        self.tips = branch_tips(&work)?;
        Ok(())
    }

    fn step(&mut self, hand: &mut BatchProcess, _: &mut Rng) -> anyhow::Result<StepOutcome> {
        let Some(name) = self.left.pop() else { return Ok(StepOutcome::Finished) };
        let args = json!({ "sourceBranches": [name], "targetBranch": "main" });
        let outcome = classify(hand.call("merge_branches", args)?.as_ref());
        if outcome == StepOutcome::Acknowledged {
            self.merged.insert(name);
        }
        Ok(outcome)
    }

    fn verify(&mut self, desk: &TestEnv) -> anyhow::Result<Vec<Violation>> {
        let work = desk.path("work");
        let mut wrong = Vec::new();
        let there = branch_tips(&work)?;
        if there != self.tips {
            wrong.push(Violation::Lost(format!("branches were {:?}, and are {there:?}", self.tips)));
        }
        let merged =
            git_output(&work, &["for-each-ref", "--merged=main", "--format=%(refname:short)", "refs/heads/part-*"])?;
        let merged: BTreeSet<String> = merged.lines().map(str::to_owned).collect();
        wrong.extend(self.merged.difference(&merged).map(|name| Violation::Lost(format!("the merge of {name}"))));
        let files = git_output(&work, &["ls-tree", "--name-only", "main"])?;
        let files: BTreeSet<&str> = files.lines().filter_map(|it| it.strip_suffix(".txt")).collect();
        let torn = merged.iter().filter(|name| !files.contains(name.as_str()));
        wrong.extend(torn.map(|name| Violation::Partial(format!("{name} is merged without its file"))));
        if let Err(error) = git_output(&work, &["fsck", "--no-dangling", "--no-progress"]) {
            wrong.push(Violation::Partial(error.to_string()));
        }
        self.merged = merged;
        Ok(wrong)
    }
}
