//! Change requests: nothing new starts until each is decided. The plan only grows.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use helve_contract::{
    Error, Result,
    events::{ArtifactKind, ArtifactWritten, CrEmitted, CrRejected, CrUndecided, PauseReason, RunPaused, RunResumed},
    ports::ExpectedVersion,
};
use helve_tools::artifacts::{
    CallArtifacts, ChangeRequest, ChangeRequestStatus, DagEdge, DagNode, FrontMatterDocument, Overlay, TaskFrontMatter,
    TaskStatus,
};
use serde::Deserialize;
use serde_json::Value;

use super::{CaptainLog, executor::Executor, prompts};
use crate::{Agent, AgentEvent, SessionSpec};

/// How often the captain is asked before a person must decide.
const MAX_CAPTAIN_ATTEMPTS: usize = 2;

/// What this executor knows of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestState {
    /// It was told of.
    Open,
    /// The captain could not decide.
    Undecided,
}

/// What the captain adds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanAddition {
    #[serde(default)]
    reject: Option<String>,
    #[serde(default)]
    added_nodes: Vec<DagNode>,
    #[serde(default)]
    added_edges: Vec<DagEdge>,
    #[serde(default)]
    tasks: BTreeMap<String, String>,
}

impl Executor {
    /// Decides the requests that it can. Returns those that wait for a user.
    pub(super) async fn process_change_requests(&self, room: &CallArtifacts<'_>) -> Result<Vec<String>> {
        let mut waiting = Vec::new();
        for request in ChangeRequest::load_all(room).await? {
            let (id, front) = (request.front.id.clone(), &request.front);
            if front.status == ChangeRequestStatus::Pending && self.mark_seen(&id) {
                self.emit(CrEmitted {
                    cr_id: id.clone(),
                    title: front.title.clone(),
                    emitted_by: front.emitted_by.clone(),
                });
                let path = room.display_path(&ChangeRequest::path(&id));
                self.emit(ArtifactWritten { path, kind: ArtifactKind::ChangeRequest });
            }
            match front.status {
                ChangeRequestStatus::Rejected | ChangeRequestStatus::Applied => {}
                ChangeRequestStatus::Pending if self.settings.ask_about_changes => waiting.push(id),
                ChangeRequestStatus::Pending | ChangeRequestStatus::Approved if self.is_undecided(&id) => {
                    waiting.push(id);
                }
                // An earlier executor wrote the overlay but could not record it.
                ChangeRequestStatus::Approved if room.read_bytes(&overlay_path(&id)).await?.is_some() => {
                    ChangeRequest::transition(room, &id, ChangeRequestStatus::Applied).await?;
                }
                ChangeRequestStatus::Pending | ChangeRequestStatus::Approved => {
                    self.emit(RunPaused { reason: PauseReason::ChangeRequest, cr_id: Some(id.clone()) });
                    match self.ask_captain(room, &request).await {
                        Ok(overlay_id) => self.emit(RunResumed { cr_id: Some(id.clone()), overlay_id }),
                        Err(error) => {
                            self.emit(CrUndecided { cr_id: id.clone(), error: error.to_string() });
                            self.mark_undecided(&id);
                            waiting.push(id);
                        }
                    }
                }
            }
        }
        Ok(waiting)
    }

    /// Whether a request is seen for the first time.
    fn mark_seen(&self, id: &str) -> bool {
        let mut seen = self.request_states.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get(id) {
            Some(_) => false,
            None => seen.insert(id.to_owned(), RequestState::Open).is_none(),
        }
    }

    fn is_undecided(&self, id: &str) -> bool {
        self.request_states.lock().unwrap_or_else(PoisonError::into_inner).get(id) == Some(&RequestState::Undecided)
    }

    /// The captain could not decide, and is not asked again.
    fn mark_undecided(&self, id: &str) {
        self.request_states
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_owned(), RequestState::Undecided);
    }

    /// Asks the captain, who adds to the plan or says no. What it added, if anything.
    async fn ask_captain(
        &self,
        room: &CallArtifacts<'_>,
        request: &FrontMatterDocument<ChangeRequest>,
    ) -> Result<Option<String>> {
        let id = &request.front.id;
        let dag = serde_json::to_string_pretty(&room.dag().await?).map_err(|error| Error::Internal(error.into()))?;
        let mut words = prompts::replan_prompt(&request.to_markdown()?, &dag);
        let mut last = Error::failed("the captain was not asked");
        let captain = self.captain_agent(id)?;
        for _ in 0..MAX_CAPTAIN_ATTEMPTS {
            let outcome = captain.send_text(&words).await?;
            let applied = match parse_addition(&outcome.text) {
                Ok(addition) => self.apply_addition(room, id, addition).await,
                Err(error) => Err(error),
            };
            match applied {
                Ok(overlay) => return Ok(overlay),
                Err(error) => {
                    words = format!(
                        "That could not be applied: {error}\nAnswer with the mended JSON object and nothing else."
                    );
                    last = error;
                }
            }
        }
        Err(last)
    }

    fn captain_agent(&self, request: &str) -> Result<Agent> {
        let need = SessionSpec {
            id: format!("{}-captain-{request}", self.run.id),
            label: Some(format!("{}-captain-{request}", self.run.label)),
            dialect: Some("forge".into()),
            agent: Some("captain".into()),
            tools: Some(vec!["read".into(), "read_spec".into(), "read_task".into(), "read_walkthrough".into()]),
            workspace: Some(self.forge_dir.repo().to_owned()),
            unattended: true,
            task: Some(self.errand()),
            event_file: self.forge_dir.event_file(&self.run).ok(),
            ..SessionSpec::default()
        };
        let (engine, session) = self.session_factory.create_session(&need)?;
        let mut agent = Agent::new(engine, session, self.session_factory.model(None)?);
        agent.budget = self.settings.budget;
        if let Ok(diary) = CaptainLog::open(&self.forge_dir, &self.run) {
            agent.listener = Arc::new(move |event: &AgentEvent| diary.record(event));
        }
        Ok(agent)
    }

    /// Extends the plan: documents first, the overlay last, so that every task in the graph has a document. Returns
    /// the overlay's id, or none if the request was rejected.
    async fn apply_addition(
        &self,
        room: &CallArtifacts<'_>,
        id: &str,
        addition: PlanAddition,
    ) -> Result<Option<String>> {
        if let Some(why) = addition.reject {
            self.emit(CrRejected { cr_id: id.to_owned(), reason: why });
            return ChangeRequest::transition(room, id, ChangeRequestStatus::Rejected).await.map(|()| None);
        }
        let overlay = Overlay {
            cr_id: id.to_owned(),
            applied_at: self.call().now(),
            added_nodes: addition.added_nodes,
            added_edges: addition.added_edges,
        };
        if let Err(issues) = room.dag().await?.with_overlays(std::slice::from_ref(&overlay)) {
            let texts: Vec<_> = issues.iter().map(ToString::to_string).collect();
            return Err(Error::failed(texts.join("; ")));
        }
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let begun = |id: &str| status.nodes.get(id).is_some_and(|it| it.status != TaskStatus::Pending);
        if let Some(edge) = overlay.added_edges.iter().find(|edge| begun(&edge.to)) {
            return Err(Error::failed(format!(
                "`{}` has begun, and cannot wait for `{}` any more",
                edge.to, edge.from
            )));
        }
        for node in &overlay.added_nodes {
            let document = addition.tasks.get(&node.id);
            let document =
                document.ok_or_else(|| Error::failed(format!("`tasks` lacks the document of `{}`", node.id)))?;
            let task = TaskFrontMatter::parse(document)?.front;
            if task.id != node.id {
                return Err(Error::failed(format!("the document of `{}` says id `{}`", node.id, task.id)));
            }
            // No graph has it yet: a document that is there was left by an executor that is gone.
            let path = room.write(&format!("tasks/{}.md", node.id), document.as_bytes(), ExpectedVersion::Any).await?;
            self.emit(ArtifactWritten { path, kind: ArtifactKind::Task });
        }
        ChangeRequest::transition(room, id, ChangeRequestStatus::Approved).await?;
        let path = room.write_record(&overlay_path(id), &overlay, ExpectedVersion::Any).await?;
        self.emit(ArtifactWritten { path, kind: ArtifactKind::Dag });
        ChangeRequest::transition(room, id, ChangeRequestStatus::Applied).await.map(|()| Some(id.to_owned()))
    }
}

/// Where what a request added to the plan is kept.
fn overlay_path(id: &str) -> String {
    format!("change-requests/{id}/dag-overlay.json")
}

/// The JSON object in the captain's words.
fn parse_addition(text: &str) -> Result<PlanAddition> {
    let (start, end) = (text.find('{'), text.rfind('}'));
    let (Some(start), Some(end)) = (start, end.map(|it| it + 1)) else {
        return Err(Error::failed("there is no JSON object in the answer"));
    };
    let value: Value = serde_json::from_str(text.get(start..end).unwrap_or_default())
        .map_err(|error| Error::failed(format!("the JSON does not parse: {error}")))?;
    serde_json::from_value(value).map_err(|error| Error::failed(error.to_string()))
}
