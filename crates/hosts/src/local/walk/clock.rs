//! When a walk has to end: its time is up, or nobody waits for it any more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Tells a walk when to end.
#[derive(Clone)]
pub(in crate::local) struct WalkDeadline {
    until: Instant,
    stopped: Arc<AtomicBool>,
    expired: Arc<AtomicBool>,
}

/// Ends the walk when dropped: held by whoever waits for it.
pub(in crate::local) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl WalkDeadline {
    /// A clock that runs from now, and the right to stop it.
    pub(in crate::local) fn start(patience: Duration) -> (Self, CancelOnDrop) {
        let stopped = Arc::new(AtomicBool::new(false));
        let now = Instant::now();
        let until = now.checked_add(patience).unwrap_or(now + Duration::from_secs(3600));
        (Self { until, stopped: stopped.clone(), expired: Arc::default() }, CancelOnDrop(stopped))
    }

    /// The same, but with less time from now on.
    pub(in crate::local) fn shorter(&self, patience: Duration) -> Self {
        let until = Instant::now().checked_add(patience).map_or(self.until, |then| then.min(self.until));
        Self { until, stopped: self.stopped.clone(), expired: Arc::default() }
    }

    /// Whether to end now.
    pub(in crate::local) fn is_expired(&self) -> bool {
        let over = self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.until;
        if over {
            self.expired.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Whether anybody was told to end.
    pub(in crate::local) fn was_hit(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }
}
