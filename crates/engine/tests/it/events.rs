//! The implementations of the port `Events`, against the suite for all of them.

use std::sync::Arc;

use helve_contract::ports::Events;
use helve_engine::{FileEvents, MemoryEvents};

use crate::events_suite::Maker;

struct InFile(tempfile::TempDir);

impl Default for InFile {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Maker for InFile {
    fn events(&self) -> Arc<dyn Events> {
        Arc::new(FileEvents::new(self.0.path().join("events.ndjson")))
    }
}

#[derive(Default)]
struct InMemory(Arc<MemoryEvents>);

impl Maker for InMemory {
    fn events(&self) -> Arc<dyn Events> {
        self.0.clone()
    }
}

mod file {
    crate::events_suite::suite!(super::InFile);
}

mod memory {
    crate::events_suite::suite!(super::InMemory);
}
