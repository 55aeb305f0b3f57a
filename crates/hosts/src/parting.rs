//! Cleanup of remote resources on drop: removes a container, ends a sandbox.

use std::{thread, time::Duration};

/// The maximum duration of a drop.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the cleanup on a separate thread and waits for it, because drop is not async and the runtime may be shutting
/// down.
pub(crate) fn block_on_cleanup(work: impl Future<Output = ()> + Send + 'static) {
    let thread = thread::Builder::new().name("helve-parting".to_owned()).spawn(move || {
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            _ = runtime.block_on(async { tokio::time::timeout(CLEANUP_TIMEOUT, work).await });
        }
    });
    if let Ok(thread) = thread {
        _ = thread.join();
    }
}
