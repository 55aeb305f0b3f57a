//! Change requests: nothing new begins until each is decided. The plan only ever grows.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use helve_contract::{
    Error, Result,
    events::{ArtifactKind, ArtifactWritten, CrEmitted, CrRejected, CrUndecided, PauseReason, RunPaused, RunResumed},
    ports::ExpectedVersion,
};
use helve_tools::artifacts::{ChangeRequest, Document, Edge, Node, Overlay, RequestStatus, Room, Status, Task};
use serde::Deserialize;
use serde_json::Value;

use super::{Diary, executor::Executor, prompts};
use crate::{Agent, Event, Need};

/// How often the captain is asked before a person must decide.
const TRIES: usize = 2;

/// What this executor knows of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was told of.
    Open,
    /// The captain could not decide.
    Undecided,
}

/// What the captain adds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Addition {
    #[serde(default)]
    reject: Option<String>,
    #[serde(default)]
    added_nodes: Vec<Node>,
    #[serde(default)]
    added_edges: Vec<Edge>,
    #[serde(default)]
    tasks: BTreeMap<String, String>,
}

impl Executor {
    /// Decides what can be decided. The requests that wait for a person come back.
    pub(super) async fn changes(&self, room: &Room<'_>) -> Result<Vec<String>> {
        let mut waiting = Vec::new();
        for request in ChangeRequest::all(room).await? {
            let (id, front) = (request.front.id.clone(), &request.front);
            if front.status == RequestStatus::Pending && self.first_seen(&id) {
                self.tell(CrEmitted {
                    cr_id: id.clone(),
                    title: front.title.clone(),
                    emitted_by: front.emitted_by.clone(),
                });
                let path = room.shown(&ChangeRequest::place(&id));
                self.tell(ArtifactWritten { path, kind: ArtifactKind::ChangeRequest });
            }
            match front.status {
                RequestStatus::Rejected | RequestStatus::Applied => {}
                RequestStatus::Pending if self.settings.ask_about_changes => waiting.push(id),
                RequestStatus::Pending | RequestStatus::Approved if self.is_undecided(&id) => waiting.push(id),
                // An executor that is gone wrote the overlay, and could not say so.
                RequestStatus::Approved if room.bytes(&overlay_place(&id)).await?.is_some() => {
                    ChangeRequest::go(room, &id, RequestStatus::Applied).await?;
                }
                RequestStatus::Pending | RequestStatus::Approved => {
                    self.tell(RunPaused { reason: PauseReason::ChangeRequest, cr_id: Some(id.clone()) });
                    match self.replan(room, &request).await {
                        Ok(overlay_id) => self.tell(RunResumed { cr_id: Some(id.clone()), overlay_id }),
                        Err(error) => {
                            self.tell(CrUndecided { cr_id: id.clone(), error: error.to_string() });
                            self.leave_undecided(&id);
                            waiting.push(id);
                        }
                    }
                }
            }
        }
        Ok(waiting)
    }

    /// Whether a request is seen for the first time.
    fn first_seen(&self, id: &str) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get(id) {
            Some(_) => false,
            None => seen.insert(id.to_owned(), Seen::Open).is_none(),
        }
    }

    fn is_undecided(&self, id: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(id) == Some(&Seen::Undecided)
    }

    /// The captain could not decide, and is not asked again.
    fn leave_undecided(&self, id: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), Seen::Undecided);
    }

    /// Asks the captain, who adds to the plan or says no. What it added, if anything.
    async fn replan(&self, room: &Room<'_>, request: &Document<ChangeRequest>) -> Result<Option<String>> {
        let id = &request.front.id;
        let dag = serde_json::to_string_pretty(&room.dag().await?).map_err(|error| Error::Internal(error.into()))?;
        let mut words = prompts::replan(&request.text()?, &dag);
        let mut last = Error::failed("the captain was not asked");
        let captain = self.captain(id)?;
        for _ in 0..TRIES {
            let outcome = captain.say(&words).await?;
            let applied = match addition(&outcome.text) {
                Ok(addition) => self.apply(room, id, addition).await,
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

    fn captain(&self, request: &str) -> Result<Agent> {
        let need = Need {
            id: format!("{}-captain-{request}", self.run.id),
            label: Some(format!("{}-captain-{request}", self.run.label)),
            dialect: Some("forge".into()),
            agent: Some("captain".into()),
            tools: Some(vec!["read".into(), "read_spec".into(), "read_task".into(), "read_walkthrough".into()]),
            workspace: Some(self.home.repo().to_owned()),
            alone: true,
            errand: Some(self.errand()),
            record: self.home.events(&self.run).ok(),
            ..Need::default()
        };
        let (engine, session) = self.workshop.equip(&need)?;
        let mut agent = Agent::new(engine, session, self.workshop.model(None)?);
        agent.budget = self.settings.budget;
        if let Ok(diary) = Diary::open(&self.home, &self.run) {
            agent.watcher = Arc::new(move |event: &Event| diary.hear(event));
        }
        Ok(agent)
    }

    /// Adds to the plan: the documents first, the overlay last, so that a task never stands in the graph without one.
    /// The overlay's id; none if the request was turned down.
    async fn apply(&self, room: &Room<'_>, id: &str, addition: Addition) -> Result<Option<String>> {
        if let Some(why) = addition.reject {
            self.tell(CrRejected { cr_id: id.to_owned(), reason: why });
            return ChangeRequest::go(room, id, RequestStatus::Rejected).await.map(|()| None);
        }
        let overlay = Overlay {
            cr_id: id.to_owned(),
            applied_at: self.call().now(),
            added_nodes: addition.added_nodes,
            added_edges: addition.added_edges,
        };
        if let Err(issues) = room.dag().await?.overlaid(std::slice::from_ref(&overlay)) {
            let texts: Vec<_> = issues.iter().map(ToString::to_string).collect();
            return Err(Error::failed(texts.join("; ")));
        }
        let dag = room.dag().await?;
        let status = room.status(&dag).await?;
        let begun = |id: &str| status.nodes.get(id).is_some_and(|it| it.status != Status::Pending);
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
            let task = Task::parse(document)?.front;
            if task.id != node.id {
                return Err(Error::failed(format!("the document of `{}` says id `{}`", node.id, task.id)));
            }
            // No graph has it yet: a document that is there was left by an executor that is gone.
            let path = room.keep(&format!("tasks/{}.md", node.id), document.as_bytes(), ExpectedVersion::Any).await?;
            self.tell(ArtifactWritten { path, kind: ArtifactKind::Task });
        }
        ChangeRequest::go(room, id, RequestStatus::Approved).await?;
        let path = room.keep_record(&overlay_place(id), &overlay, ExpectedVersion::Any).await?;
        self.tell(ArtifactWritten { path, kind: ArtifactKind::Dag });
        ChangeRequest::go(room, id, RequestStatus::Applied).await.map(|()| Some(id.to_owned()))
    }
}

/// Where what a request added to the plan is kept.
fn overlay_place(id: &str) -> String {
    format!("change-requests/{id}/dag-overlay.json")
}

/// The JSON object in the captain's words.
fn addition(text: &str) -> Result<Addition> {
    let (start, end) = (text.find('{'), text.rfind('}'));
    let (Some(start), Some(end)) = (start, end.map(|it| it + 1)) else {
        return Err(Error::failed("there is no JSON object in the answer"));
    };
    let value: Value = serde_json::from_str(text.get(start..end).unwrap_or_default())
        .map_err(|error| Error::failed(format!("the JSON does not parse: {error}")))?;
    serde_json::from_value(value).map_err(|error| Error::failed(error.to_string()))
}
