//! The bridge from a module's thread to the host: the module waits while the call's task does the work.
//!
//! After the task's end is dropped, no further request of the module runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use helve_contract::ports::Host;
use tokio::sync::{mpsc, oneshot};

/// A piece of work for the call's task.
pub(super) type HostJob = BoxFuture<'static, ()>;

/// The module's end.
pub(super) struct HostBridge {
    host: Arc<dyn Host>,
    jobs: mpsc::Sender<HostJob>,
}

/// The call was dropped.
#[derive(Debug)]
pub(super) struct CallAbandoned;

impl HostBridge {
    /// A bridge to a host, and the end that does the work.
    pub(super) fn to(host: Arc<dyn Host>) -> (Self, mpsc::Receiver<HostJob>) {
        let (jobs, asked) = mpsc::channel(1);
        (Self { host, jobs }, asked)
    }

    /// Runs work on the host and waits for it. Only from a thread that may block.
    pub(super) fn run<T, F>(&self, work: impl FnOnce(Arc<dyn Host>) -> F) -> Result<T, CallAbandoned>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work = work(self.host.clone());
        let job = Box::pin(async move { _ = answer.send(work.await) });
        self.jobs.blocking_send(job).map_err(|_| CallAbandoned)?;
        answered.blocking_recv().map_err(|_| CallAbandoned)
    }
}
