//! Change requests: proposed changes of the plan.

use helve_contract::{Error, Result, jiff::Timestamp, ports::ExpectedVersion};
use serde::{Deserialize, Serialize};

use super::{front::FrontMatterDocument, room::CallArtifacts};

/// How often a decision is tried again when the request changed meanwhile.
const MAX_RETRIES: usize = 10;

/// The front matter of a change request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRequest {
    /// `cr-` and a number.
    pub id: String,
    /// A one-line title.
    pub title: String,
    /// The agent that emitted it.
    pub emitted_by: String,
    /// When it was emitted.
    pub emitted_at: Timestamp,
    /// Its state.
    pub status: ChangeRequestStatus,
    /// The reason for the change.
    pub reason: String,
    /// The affected tasks.
    #[serde(default)]
    pub affected_tasks: Vec<String>,
    /// The suggested changes.
    #[serde(default)]
    pub suggested_changes: String,
}

/// The state of a change request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeRequestStatus {
    /// Waits for a decision.
    Pending,
    /// Accepted, not applied yet.
    Approved,
    /// Refused.
    Rejected,
    /// Applied: the overlay is in the graph.
    Applied,
}

impl ChangeRequestStatus {
    /// The states that may follow this one.
    #[must_use]
    pub const fn allowed_transitions(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Approved, Self::Rejected],
            Self::Approved => &[Self::Applied],
            Self::Rejected | Self::Applied => &[],
        }
    }
}

impl ChangeRequest {
    /// The path of a request.
    #[must_use]
    pub fn path(id: &str) -> String {
        format!("change-requests/{id}/change-request.md")
    }

    /// All requests of a run, in order.
    pub async fn load_all(room: &CallArtifacts<'_>) -> Result<Vec<FrontMatterDocument<Self>>> {
        let mut requests = Vec::new();
        for id in room.list_dirs("change-requests").await? {
            if room.read_bytes(&Self::path(&id)).await?.is_some() {
                requests.push(FrontMatterDocument::parse(&room.read_text(&Self::path(&id)).await?, "change request")?);
            }
        }
        Ok(requests)
    }

    /// Stores a new request under the next free number.
    pub async fn add(room: &CallArtifacts<'_>, mut request: FrontMatterDocument<Self>) -> Result<String> {
        let taken = room.list_dirs("change-requests").await?;
        let last = taken.iter().filter_map(|it| it.strip_prefix("cr-")?.parse::<u32>().ok()).max().unwrap_or(0);
        // Another process may take a number at the same moment; then try the next.
        for number in last + 1..last + 100 {
            request.front.id = format!("cr-{number:03}");
            let place = Self::path(&request.front.id);
            match room.write(&place, request.to_markdown()?.as_bytes(), ExpectedVersion::Absent).await {
                Ok(_) => return Ok(request.front.id),
                Err(Error::VersionConflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::failed("no number is free for the change request; try again"))
    }

    /// Changes the state of a request. The same state again changes nothing. If another process decides concurrently,
    /// its decision holds and this transition must be valid after it.
    pub async fn transition(room: &CallArtifacts<'_>, id: &str, to: ChangeRequestStatus) -> Result<()> {
        let place = Self::path(id);
        for _ in 0..MAX_RETRIES {
            let (text, version) = room.versioned_text(&place).await?;
            let mut document: FrontMatterDocument<Self> = FrontMatterDocument::parse(&text, "change request")?;
            let from = document.front.status;
            if from == to {
                return Ok(());
            }
            if !from.allowed_transitions().contains(&to) {
                return Err(Error::failed(format!("the change request {id} is {from:?} and cannot become {to:?}")));
            }
            document.front.status = to;
            match room.write(&place, document.to_markdown()?.as_bytes(), version).await {
                Err(Error::VersionConflict(_)) => {}
                kept => return kept.map(drop),
            }
        }
        Err(Error::VersionConflict(room.display_path(&place)))
    }
}
