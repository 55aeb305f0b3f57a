//! The person at the other end: questions, the to-do list, plans, settings.

mod ask;
mod plan;
mod setting;
mod todos;

pub use ask::{Answered, Ask};
pub use plan::{ExitPlan, PlanJudged};
pub use setting::{Setting, SettingOut};
pub use todos::{SLATE as TODOS, Todos, TodosOut};

use helve_contract::{Call, Error, Result};

/// Waits for a person, unless the caller gives up first.
async fn unless_cancelled<T>(call: &Call, work: impl Future<Output = Result<T>>) -> Result<T> {
    call.cancel.run_until_cancelled(work).await.unwrap_or(Err(Error::Cancelled))
}

#[cfg(test)]
mod testing;
