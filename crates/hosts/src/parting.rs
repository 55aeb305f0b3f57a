//! What must still be done when something far away is let go of: a container removed, a sandbox ended.

use std::{thread, time::Duration};

/// The longest that a drop may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Does the work on a thread of its own, because a drop cannot wait and the runtime may be ending, and waits for it.
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
