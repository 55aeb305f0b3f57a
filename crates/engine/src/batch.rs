//! Several calls of one turn.

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use helve_contract::{Call, Reply};

use crate::{Args, Engine};

/// How many calls run side by side.
const SIDE_BY_SIDE: usize = 10;

/// One call of a turn.
pub struct Request {
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments.
    pub args: Args,
    /// Who asks, and where.
    pub call: Call,
}

impl Engine {
    /// Runs the calls of one turn: those that only look or start an agent side by side where they follow each other, every
    /// other one alone.
    /// The replies are in the order of the calls.
    pub async fn batch(&self, calls: Vec<Request>) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(calls.len());
        let mut together: Vec<BoxFuture<'_, Reply>> = Vec::new();
        for Request { name, args, call } in calls {
            let alone = !self.runs_beside_others(&name);
            let work = async move { self.run(&name, args, call).await }.boxed();
            if alone {
                replies.extend(side_by_side(std::mem::take(&mut together)).await);
                replies.push(work.await);
            } else {
                together.push(work);
            }
        }
        replies.extend(side_by_side(together).await);
        replies
    }

    /// Whether a call may run beside others. One that names no tool does nothing at all.
    pub fn runs_beside_others(&self, name: &str) -> bool {
        self.table().find(name).is_none_or(|slot| slot.entry.spec.effects.runs_beside_others())
    }
}

async fn side_by_side(calls: Vec<BoxFuture<'_, Reply>>) -> Vec<Reply> {
    stream::iter(calls).buffered(SIDE_BY_SIDE).collect().await
}
