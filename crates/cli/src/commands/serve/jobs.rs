//! `/api/jobs`: lists, retries and cancels queued work.

use helve_contract::{
    Error,
    ports::{Job, JobFilter, JobId},
};
use serde_json::{Value, json};

use super::{
    hooks,
    routes::{QueryParams, query_number},
    say::ApiError,
    site::AppState,
};
use crate::commands::jobs::shown;

/// Jobs of one page, where the request does not say.
const PAGE: u64 = 50;
/// Jobs of one page at most.
const MAX_PAGE: u64 = 500;

impl AppState {
    /// Jobs, newest first, without their payloads.
    pub(super) async fn jobs(&self, query: &QueryParams) -> Result<Value, ApiError> {
        let state = query.get("state").map(|it| it.parse()).transpose();
        let filter = JobFilter {
            state: state.map_err(|error: Error| ApiError::bad_request(error.to_string()))?,
            kind: query.get("kind").cloned(),
            users: hooks::users(self.runtime.settings()),
            offset: query_number(query, "offset", 0)?,
            most: query_number(query, "most", PAGE)?.min(MAX_PAGE),
            ..JobFilter::default()
        };
        let (found, total) = self.runtime.jobs().jobs(&filter).await?;
        Ok(json!({ "jobs": found.iter().map(shown).collect::<Vec<_>>(), "total": total }))
    }

    /// Queues a dead job again.
    pub(super) async fn retry_job(&self, id: &str) -> Result<Value, ApiError> {
        let job = self.known_job(id).await?;
        let retried = self.runtime.jobs().retry(&job.id).await.map_err(|error| match error {
            Error::Failed(why) => ApiError::conflict(why),
            error => error.into(),
        })?;
        Ok(json!({ "job": shown(&retried.ok_or_else(no_job)?) }))
    }

    /// Cancels a job and the jobs below it.
    pub(super) async fn cancel_job(&self, id: &str) -> Result<Value, ApiError> {
        let job = self.known_job(id).await?;
        if job.state.is_ended() {
            return Err(ApiError::conflict(format!("job {} has ended: it is {}", job.id, job.state)));
        }
        let cancelled = self.runtime.jobs().cancel(&job.id).await?;
        Ok(json!({ "job": shown(&cancelled.ok_or_else(no_job)?) }))
    }

    /// A job of a user whom this server serves; jobs of others count as missing.
    async fn known_job(&self, id: &str) -> Result<Job, ApiError> {
        let id: JobId = id.parse().map_err(|_| no_job())?;
        let found = self.runtime.jobs().job(&id).await?;
        found.filter(|it| hooks::users(self.runtime.settings()).contains(&it.user)).ok_or_else(no_job)
    }
}

fn no_job() -> ApiError {
    ApiError::not_found("there is no such job; /api/jobs lists them")
}
