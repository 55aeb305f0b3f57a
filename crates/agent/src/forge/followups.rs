//! Follow-ups of walkthroughs that speak of something broken: an agent of type 1 takes up each of them at once, on a branch
//! of its own beside the plan. What it did waits on that branch for a person; the run merges nothing that was not planned.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use helve_contract::{
    CancellationToken, Error, Result,
    events::{ArtifactKind, ArtifactWritten, FollowupEnded, FollowupSpawned},
    ids,
};
use helve_tools::artifacts::{AgentType, Outcome, Room, Walkthrough};
use serde::{Deserialize, Serialize};

use super::{
    desk::Desk,
    executor::Executor,
    prompts, review,
    working::{Worked, Worker},
};
use crate::Handle;

/// The most follow-ups of one walkthrough that are taken up.
const MOST: usize = 5;
const PLACE: &str = "followups.json";

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
    status: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Progress {
    Pending,
    Completed,
    Failed,
}

type All = BTreeMap<String, FollowUp>;

impl Executor {
    /// Keeps what a walkthrough asks for, as far as it is urgent.
    pub(super) async fn follow_up(
        &self,
        room: &Room<'_>,
        told: &Walkthrough,
        attempt: u32,
        commit: &str,
    ) -> Result<()> {
        let urgent: Vec<&String> = told.followups.iter().filter(|it| review::is_urgent(it)).take(MOST).collect();
        if urgent.is_empty() {
            return Ok(());
        }
        room.revise(
            PLACE,
            || Ok(All::new()),
            |all: &mut All| {
                for (at, text) in urgent.iter().enumerate() {
                    let id = format!("followup-{}.{attempt}.{}", told.task_id, at + 1);
                    all.entry(id).or_insert_with(|| FollowUp {
                        task_id: told.task_id.clone(),
                        text: text.chars().take(4000).collect(),
                        base: commit.to_owned(),
                        status: Progress::Pending,
                    });
                }
                Ok(())
            },
        )
        .await
    }

    /// The follow-ups that are still to be done, and that nobody works on.
    pub(super) async fn to_follow(
        &self,
        room: &Room<'_>,
        working: &BTreeSet<String>,
    ) -> Result<Vec<(String, FollowUp)>> {
        let all: All = room.record(PLACE).await?.unwrap_or_default();
        let open = all.into_iter().filter(|(id, it)| it.status == Progress::Pending && !working.contains(id));
        Ok(open.collect())
    }

    /// The branches that wait for a person.
    pub(super) async fn followed(&self, room: &Room<'_>) -> Result<Vec<String>> {
        let all: All = room.record(PLACE).await?.unwrap_or_default();
        let done = all.into_iter().filter(|(_, it)| it.status == Progress::Completed);
        Ok(done.map(|(id, _)| branch(&id)).collect())
    }

    /// Works on a follow-up, to its end.
    pub(super) fn work_aside(&self, id: String, what: FollowUp, cancel: CancellationToken) -> Worker<'_> {
        async move {
            let done = self.aside(&id, &what, &cancel).await;
            // What an executor that stops leaves undone, the next one does.
            if !cancel.is_cancelled() || done.is_ok() {
                let status = if done.is_ok() { Progress::Completed } else { Progress::Failed };
                let error = done.err().map(|it| it.to_string());
                let kept = self.set_aside(&id, status).await;
                let error = error.or_else(|| kept.err().map(|it| it.to_string()));
                let (task_id, branch) = (what.task_id.clone(), branch(&id));
                self.tell(FollowupEnded { task_id, followup_id: id.clone(), branch, error });
            }
            (id, Worked::Aside)
        }
        .boxed()
    }

    async fn set_aside(&self, id: &str, to: Progress) -> Result<()> {
        let call = self.call();
        let room = Room::of(&call)?;
        let change = |all: &mut All| {
            if let Some(it) = all.get_mut(id) {
                it.status = to;
            }
            Ok(())
        };
        room.revise(PLACE, || Ok(All::new()), change).await
    }

    async fn aside(&self, id: &str, what: &FollowUp, cancel: &CancellationToken) -> Result<()> {
        let call = self.call();
        let room = Room::of(&call)?;
        let git = self.git(&call).await?;
        let branch = branch(id);
        // An executor that is gone may have made it; nobody has worked on it to an end.
        git.must(&["update-ref", &format!("refs/heads/{branch}"), &what.base]).await?;
        let desk = Desk::make(&git, self.home.desk(&self.run, id, 1), &branch).await?;
        let mut errand = self.errand();
        (errand.task, errand.branch) = (Some(id.to_owned()), Some(branch.clone()));
        let (agent_id, label) = (ids::new_id(), format!("{}-{id}-1", self.run.label));
        let (mut agent, supervisor) = self.agent(AgentType::Throwaway, (&agent_id, &label), &desk, errand).await?;
        agent.handle = Handle::under(cancel);
        self.tell(FollowupSpawned {
            task_id: what.task_id.clone(),
            followup_id: id.to_owned(),
            followup: what.text.clone(),
            agent_id: agent_id.clone(),
            agent_label: Some(label),
            agent_type: AgentType::Throwaway,
            branch: branch.clone(),
        });
        let words = prompts::follow_up(&what.task_id, &what.text, &branch);
        let worked = self.watched((id, 1), &mut agent, &supervisor, words).await;
        supervisor.end(&agent.session.id).await;
        let taken = async {
            let heard = worked?.map_err(|_| Error::failed("the agent was not heard of for too long"))?;
            let place = Walkthrough::place(id, 1);
            let told = room.bytes(&place).await?;
            let told = told.ok_or_else(|| Error::failed("the agent ended without a walkthrough"))?;
            if Walkthrough::parse(&String::from_utf8_lossy(&told))?.front.status == Outcome::Failed {
                return Err(Error::failed("the agent says that it failed; its walkthrough tells why"));
            }
            heard.calls.must_have_done_something()?;
            let message = format!("forge({id}): take over the work\n\nTask: {id}\nAttempt: 1\nAgent: {agent_id}");
            desk.take_over(&git, &message).await?;
            self.tell(ArtifactWritten { path: room.shown(&place), kind: ArtifactKind::Walkthrough });
            Ok(())
        }
        .await;
        desk.leave();
        taken
    }
}

/// The branch of a follow-up.
fn branch(id: &str) -> String {
    format!("forge/{id}/1")
}
