//! Runs the calls of one turn, in parallel where that is safe.

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use helve_contract::{Call, Reply};

use crate::{CallArgs, Engine};

/// The maximum number of parallel calls.
const MAX_PARALLEL_CALLS: usize = 10;

/// One call of a turn.
pub struct CallRequest {
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments.
    pub args: CallArgs,
    /// The call context.
    pub call: Call,
}

impl Engine {
    /// Runs the calls of one turn. Consecutive calls that are read-only or start an agent run in parallel; all others
    /// run alone. The replies have the order of the calls.
    pub async fn batch(&self, calls: Vec<CallRequest>) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(calls.len());
        let mut together: Vec<BoxFuture<'_, Reply>> = Vec::new();
        for CallRequest { name, args, call } in calls {
            let alone = !self.is_parallel_safe(&name);
            let work = async move { self.run(&name, args, call).await }.boxed();
            if alone {
                replies.extend(run_parallel(std::mem::take(&mut together)).await);
                replies.push(work.await);
            } else {
                together.push(work);
            }
        }
        replies.extend(run_parallel(together).await);
        replies
    }

    /// Whether a call may run in parallel with others. An unknown tool has no effect, so it may.
    pub fn is_parallel_safe(&self, name: &str) -> bool {
        self.registry().find(name).is_none_or(|slot| slot.entry.spec.effects.is_parallel_safe())
    }
}

async fn run_parallel(calls: Vec<BoxFuture<'_, Reply>>) -> Vec<Reply> {
    stream::iter(calls).buffered(MAX_PARALLEL_CALLS).collect().await
}
