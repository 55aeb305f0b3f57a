//! The deadline of a walk: a timeout or the cancellation of the caller.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Signals a walk to end.
#[derive(Clone)]
pub(in crate::local) struct WalkDeadline {
    until: Instant,
    stopped: Arc<AtomicBool>,
    expired: Arc<AtomicBool>,
}

/// Ends the walk when dropped; the caller holds it.
pub(in crate::local) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl WalkDeadline {
    /// Starts the deadline now and returns it with its cancellation handle.
    pub(in crate::local) fn start(patience: Duration) -> (Self, CancelOnDrop) {
        let stopped = Arc::new(AtomicBool::new(false));
        let now = Instant::now();
        let until = now.checked_add(patience).unwrap_or(now + Duration::from_secs(3600));
        (Self { until, stopped: stopped.clone(), expired: Arc::default() }, CancelOnDrop(stopped))
    }

    /// The same deadline with a shorter timeout from now on.
    pub(in crate::local) fn shorter(&self, patience: Duration) -> Self {
        let until = Instant::now().checked_add(patience).map_or(self.until, |then| then.min(self.until));
        Self { until, stopped: self.stopped.clone(), expired: Arc::default() }
    }

    pub(in crate::local) fn is_expired(&self) -> bool {
        let over = self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.until;
        if over {
            self.expired.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Whether any walker has reached the deadline.
    pub(in crate::local) fn was_hit(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }
}
