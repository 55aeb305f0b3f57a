//! Several calls of one turn.

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use helve_contract::{Call, Reply};

use crate::{CallArgs, Engine};

/// How many calls run side by side.
const MAX_PARALLEL_CALLS: usize = 10;

/// One call of a turn.
pub struct CallRequest {
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments.
    pub args: CallArgs,
    /// Who asks, and where.
    pub call: Call,
}

impl Engine {
    /// Runs the calls of one turn: those that only look or start an agent side by side where they follow each other, every
    /// other one alone.
    /// The replies are in the order of the calls.
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

    /// Whether a call may run beside others. One that names no tool does nothing at all.
    pub fn is_parallel_safe(&self, name: &str) -> bool {
        self.registry().find(name).is_none_or(|slot| slot.entry.spec.effects.is_parallel_safe())
    }
}

async fn run_parallel(calls: Vec<BoxFuture<'_, Reply>>) -> Vec<Reply> {
    stream::iter(calls).buffered(MAX_PARALLEL_CALLS).collect().await
}
