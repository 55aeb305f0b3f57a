//! A change request: the plan needs something that it has not.

use helve_contract::{Error, Result, jiff::Timestamp, ports::ExpectedVersion};
use serde::{Deserialize, Serialize};

use super::{front::Document, room::Room};

/// How often a decision is tried again when the request changed meanwhile.
const MAX_RETRIES: usize = 10;

/// What a change request's front matter says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRequest {
    /// `cr-` and a number.
    pub id: String,
    /// In a line.
    pub title: String,
    /// The agent that asks.
    pub emitted_by: String,
    /// When.
    pub emitted_at: Timestamp,
    /// What became of it.
    pub status: RequestStatus,
    /// Why.
    pub reason: String,
    /// The tasks it is about.
    #[serde(default)]
    pub affected_tasks: Vec<String>,
    /// What to do about it.
    #[serde(default)]
    pub suggested_changes: String,
}

/// What became of a change request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestStatus {
    /// It waits.
    Pending,
    /// It will be done.
    Approved,
    /// It will not be done.
    Rejected,
    /// It is done: the overlay is in the graph.
    Applied,
}

impl RequestStatus {
    /// Where a request may go from here.
    #[must_use]
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Approved, Self::Rejected],
            Self::Approved => &[Self::Applied],
            Self::Rejected | Self::Applied => &[],
        }
    }
}

impl ChangeRequest {
    /// Where a request is kept.
    #[must_use]
    pub fn place(id: &str) -> String {
        format!("change-requests/{id}/change-request.md")
    }

    /// All requests of a run, in order.
    pub async fn all(room: &Room<'_>) -> Result<Vec<Document<Self>>> {
        let mut requests = Vec::new();
        for id in room.folders("change-requests").await? {
            if room.bytes(&Self::place(&id)).await?.is_some() {
                requests.push(Document::parse(&room.text(&Self::place(&id)).await?, "change request")?);
            }
        }
        Ok(requests)
    }

    /// Keeps a new request under the next free number.
    pub async fn add(room: &Room<'_>, mut request: Document<Self>) -> Result<String> {
        let taken = room.folders("change-requests").await?;
        let last = taken.iter().filter_map(|it| it.strip_prefix("cr-")?.parse::<u32>().ok()).max().unwrap_or(0);
        // Somebody else may take a number at the same moment; the next one is free then.
        for number in last + 1..last + 100 {
            request.front.id = format!("cr-{number:03}");
            let place = Self::place(&request.front.id);
            match room.keep(&place, request.text()?.as_bytes(), ExpectedVersion::Absent).await {
                Ok(_) => return Ok(request.front.id),
                Err(Error::VersionConflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::failed("no number is free for the change request; try again"))
    }

    /// Moves a request on. The same state again changes nothing. Where another process decides at the same moment, the
    /// first decision holds, and this one must fit it.
    pub async fn go(room: &Room<'_>, id: &str, to: RequestStatus) -> Result<()> {
        let place = Self::place(id);
        for _ in 0..MAX_RETRIES {
            let (text, version) = room.versioned_text(&place).await?;
            let mut document: Document<Self> = Document::parse(&text, "change request")?;
            let from = document.front.status;
            if from == to {
                return Ok(());
            }
            if !from.next().contains(&to) {
                return Err(Error::failed(format!("the change request {id} is {from:?} and cannot become {to:?}")));
            }
            document.front.status = to;
            match room.keep(&place, document.text()?.as_bytes(), version).await {
                Err(Error::VersionConflict(_)) => {}
                kept => return kept.map(drop),
            }
        }
        Err(Error::VersionConflict(room.shown(&place)))
    }
}
