//! Urgent follow-ups of walkthroughs: a type 1 agent works on each, on a separate branch outside the plan. The branch
//! waits for a review; the run merges nothing unplanned.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use helve_contract::{
    CancellationToken, Error, Result,
    events::{ArtifactKind, ArtifactWritten, FollowupEnded, FollowupSpawned},
    ids,
};
use helve_tools::artifacts::{AgentType, CallArtifacts, Walkthrough, WalkthroughStatus};
use serde::{Deserialize, Serialize};

use super::{
    desk::AgentClone,
    executor::Executor,
    prompts, review,
    working::{TaskFuture, TaskOutcome},
};
use crate::AgentHandle;

/// The most follow-ups of one walkthrough that are taken up.
const MAX_FOLLOWUPS: usize = 5;
const FOLLOWUPS_FILE: &str = "followups.json";

/// Something to do beside the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FollowUp {
    /// The task whose agent asked for it.
    task_id: String,
    /// What it asked for.
    text: String,
    /// The commit that it begins from.
    base: String,
    /// How far it is.
    status: FollowUpStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FollowUpStatus {
    Pending,
    Completed,
    Failed,
}

type FollowUps = BTreeMap<String, FollowUp>;

impl Executor {
    /// Keeps what a walkthrough asks for, as far as it is urgent.
    pub(super) async fn store_followups(
        &self,
        room: &CallArtifacts<'_>,
        told: &Walkthrough,
        attempt: u32,
        commit: &str,
    ) -> Result<()> {
        let urgent: Vec<&String> =
            told.followups.iter().filter(|it| review::is_urgent(it)).take(MAX_FOLLOWUPS).collect();
        if urgent.is_empty() {
            return Ok(());
        }
        room.update_record(
            FOLLOWUPS_FILE,
            || Ok(FollowUps::new()),
            |all: &mut FollowUps| {
                for (at, text) in urgent.iter().enumerate() {
                    let id = format!("followup-{}.{attempt}.{}", told.task_id, at + 1);
                    all.entry(id).or_insert_with(|| FollowUp {
                        task_id: told.task_id.clone(),
                        text: text.chars().take(4000).collect(),
                        base: commit.to_owned(),
                        status: FollowUpStatus::Pending,
                    });
                }
                Ok(())
            },
        )
        .await
    }

    /// The follow-ups that are still to be done, and that nobody works on.
    pub(super) async fn pending_followups(
        &self,
        room: &CallArtifacts<'_>,
        working: &BTreeSet<String>,
    ) -> Result<Vec<(String, FollowUp)>> {
        let all: FollowUps = room.read_record(FOLLOWUPS_FILE).await?.unwrap_or_default();
        let open = all.into_iter().filter(|(id, it)| it.status == FollowUpStatus::Pending && !working.contains(id));
        Ok(open.collect())
    }

    /// The branches that wait for a person.
    pub(super) async fn finished_branches(&self, room: &CallArtifacts<'_>) -> Result<Vec<String>> {
        let all: FollowUps = room.read_record(FOLLOWUPS_FILE).await?.unwrap_or_default();
        let done = all.into_iter().filter(|(_, it)| it.status == FollowUpStatus::Completed);
        Ok(done.map(|(id, _)| followup_branch(&id)).collect())
    }

    /// Works on a follow-up, to its end.
    pub(super) fn run_followup(&self, id: String, what: FollowUp, cancel: CancellationToken) -> TaskFuture<'_> {
        async move {
            let done = self.execute_followup(&id, &what, &cancel).await;
            // The next executor continues what a stopped one leaves.
            if !cancel.is_cancelled() || done.is_ok() {
                let status = if done.is_ok() { FollowUpStatus::Completed } else { FollowUpStatus::Failed };
                let error = done.err().map(|it| it.to_string());
                let kept = self.set_followup_status(&id, status).await;
                let error = error.or_else(|| kept.err().map(|it| it.to_string()));
                let (task_id, branch) = (what.task_id.clone(), followup_branch(&id));
                self.emit(FollowupEnded { task_id, followup_id: id.clone(), branch, error });
            }
            (id, TaskOutcome::FollowUp)
        }
        .boxed()
    }

    async fn set_followup_status(&self, id: &str, to: FollowUpStatus) -> Result<()> {
        let call = self.call();
        let room = CallArtifacts::for_call(&call)?;
        let change = |all: &mut FollowUps| {
            if let Some(it) = all.get_mut(id) {
                it.status = to;
            }
            Ok(())
        };
        room.update_record(FOLLOWUPS_FILE, || Ok(FollowUps::new()), change).await
    }

    async fn execute_followup(&self, id: &str, what: &FollowUp, cancel: &CancellationToken) -> Result<()> {
        let call = self.call();
        let room = CallArtifacts::for_call(&call)?;
        let git = self.git(&call).await?;
        let branch = followup_branch(id);
        // An executor that is gone may have made it; nobody has worked on it to an end.
        git.run_checked(&["update-ref", &format!("refs/heads/{branch}"), &what.base]).await?;
        let desk = AgentClone::create(&git, self.forge_dir.clone_dir(&self.run, id, 1), &branch).await?;
        let mut errand = self.errand();
        (errand.task, errand.branch) = (Some(id.to_owned()), Some(branch.clone()));
        let (agent_id, label) = (ids::new_id(), format!("{}-{id}-1", self.run.label));
        let (mut agent, supervisor) =
            self.build_agent(AgentType::Throwaway, (&agent_id, &label), &desk, errand).await?;
        agent.handle = AgentHandle::child_of(cancel);
        self.emit(FollowupSpawned {
            task_id: what.task_id.clone(),
            followup_id: id.to_owned(),
            followup: what.text.clone(),
            agent_id: agent_id.clone(),
            agent_label: Some(label),
            agent_type: AgentType::Throwaway,
            branch: branch.clone(),
        });
        let words = prompts::followup_prompt(&what.task_id, &what.text, &branch);
        let worked = self.run_with_heartbeat((id, 1), &mut agent, &supervisor, words).await;
        supervisor.stop_all(&agent.session.id).await;
        let taken = async {
            let heard = worked?.map_err(|_| Error::failed("the agent was not heard of for too long"))?;
            let place = Walkthrough::path(id, 1);
            let told = room.read_bytes(&place).await?;
            let told = told.ok_or_else(|| Error::failed("the agent ended without a walkthrough"))?;
            if Walkthrough::parse(&String::from_utf8_lossy(&told))?.front.status == WalkthroughStatus::Failed {
                return Err(Error::failed("the agent says that it failed; its walkthrough tells why"));
            }
            heard.call_stats.require_work()?;
            let message = format!("forge({id}): take over the work\n\nTask: {id}\nAttempt: 1\nAgent: {agent_id}");
            desk.commit_and_fetch(&git, &message).await?;
            self.emit(ArtifactWritten { path: room.display_path(&place), kind: ArtifactKind::Walkthrough });
            Ok(())
        }
        .await;
        desk.remove();
        taken
    }
}

/// The branch of a follow-up.
fn followup_branch(id: &str) -> String {
    format!("forge/{id}/1")
}
