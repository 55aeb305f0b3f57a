//! `fix_conflict`: an agent resolves merge conflicts.

use helve_contract::{
    Access, Call, Effects, Error, FileErrorKind, Port, PortSet, Result, Tool,
    ports::{AgentOrder, AgentStatus, Span},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::program::{Git, check_branch_name};

/// Starts an agent that resolves the conflicts of an open merge in these files, checks that no conflict markers are left, and commits the merge. Returns success and agentId.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct FixConflict {
    /// Files with conflict markers
    #[serde(rename = "conflictFiles")]
    pub conflict_files: Vec<String>,
    /// What was merged
    #[serde(rename = "sourceBranch")]
    pub source_branch: String,
    /// Into what
    #[serde(rename = "targetBranch")]
    pub target_branch: String,
}

/// The largest file that is looked through for markers.
const MAX_FILE_BYTES: u64 = 32 << 20;

impl Tool for FixConflict {
    const NAME: &'static str = "fix_conflict";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::SPAWNS);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3600);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let (source, target) = (check_branch_name(&self.source_branch)?, check_branch_name(&self.target_branch)?);
        let git = Git::open(call).await?;
        let open = git.conflicted_files().await?;
        if let Some(strange) = self.conflict_files.iter().find(|file| !open.contains(file)) {
            let open = if open.is_empty() {
                "no merge is open".into()
            } else {
                format!("conflicts are in {}", open.join(", "))
            };
            return Err(Error::failed(format!("`{strange}` has no conflict; {open}")));
        }
        if self.conflict_files.is_empty() {
            return Err(Error::invalid_argument("conflictFiles", "must name at least one file"));
        }
        let order = AgentOrder {
            kind: Some("type1".into()),
            title: format!("resolve conflicts of {source}"),
            prompt: prompt(&self.conflict_files, source, target),
            extra: json!({ "conflict": { "files": self.conflict_files, "source": source, "target": target } }),
            ..AgentOrder::default()
        };
        let report = call.agents().start(call, order).await?;
        if report.status != AgentStatus::Done {
            return Ok(
                json!({ "success": false, "agentId": report.id, "error": format!("the agent ended as {:?}", report.status) }),
            );
        }
        let left = files_with_markers(call, &self.conflict_files).await?;
        if !left.is_empty() {
            return Ok(json!({ "success": false, "agentId": report.id, "conflicts": left }));
        }
        for file in &self.conflict_files {
            git.run_checked(&["add", "--all", "--", file]).await?;
        }
        if git.is_merging().await? && git.conflicted_files().await?.is_empty() {
            git.run_checked(&["commit", "--no-edit", "--quiet", "--no-verify"]).await?;
        }
        Ok(json!({ "success": true, "agentId": report.id }))
    }
}

fn prompt(files: &[String], source: &str, target: &str) -> String {
    format!(
        "Merging the branch {source} into {target} left conflicts in these files:\n{}\n\nEach conflict stands between the lines <<<<<<<, ======= and >>>>>>>. Read each file, keep what both sides meant, and take the markers out. Change nothing else, and do not commit.",
        files.iter().map(|file| format!("- {file}")).collect::<Vec<_>>().join("\n")
    )
}

/// The files that still have conflict markers at the beginning of a line.
async fn files_with_markers(call: &Call, files: &[String]) -> Result<Vec<String>> {
    let top = call.session.workspace.primary_root(Access::Read)?;
    let mut left = Vec::new();
    for file in files {
        let path = top.in_same_root(file, Access::Read)?;
        match call.host().read(&path, Span::first(MAX_FILE_BYTES)).await {
            Ok(chunk) => {
                let text = String::from_utf8_lossy(&chunk.bytes);
                let marker = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
                if text.lines().any(marker) {
                    left.push(file.clone());
                }
            }
            // The agent may have decided that the file goes.
            Err(Error::File { fault: FileErrorKind::Missing { .. }, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}
