//! The user: questions, the to-do list, plans, settings.

mod ask;
mod plan;
mod setting;
mod todos;

pub use ask::{UserAskOutput, UserAskTool};
pub use plan::{UserExitPlanOutput, UserExitPlanTool};
pub use setting::{UserSettingOutput, UserSettingTool};
pub use todos::{STATE_KEY as TODOS, UserTodosOutput, UserTodosTool};

use helve_contract::{Call, Error, Result};

/// Waits for the user until the call is cancelled.
async fn unless_cancelled<T>(call: &Call, work: impl Future<Output = Result<T>>) -> Result<T> {
    call.cancel.run_until_cancelled(work).await.unwrap_or(Err(Error::Cancelled))
}

#[cfg(test)]
mod testing;
