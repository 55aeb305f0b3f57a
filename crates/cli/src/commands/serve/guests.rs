//! The connected MCP clients, to show what each has running.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use helve_contract::{Session, async_trait};
use helve_mcp::{McpService, McpSessionFactory};

use super::hub::EventBus;
use crate::commands::http::EngineSessionFactory;

/// The sessions of clients.
#[derive(Default)]
pub(super) struct ActiveMcpSessions {
    all: Mutex<Vec<Weak<Session>>>,
}

impl ActiveMcpSessions {
    /// Those that are open.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn add(&self, session: &Arc<Session>) {
        let mut all = self.lock();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(session));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An MCP session factory that tracks its clients.
pub(super) struct TrackingSessionFactory {
    pub(super) inner: EngineSessionFactory,
    pub(super) event_bus: Arc<EventBus>,
    pub(super) sessions: Arc<ActiveMcpSessions>,
}

#[async_trait]
impl McpSessionFactory for TrackingSessionFactory {
    async fn open(&self) -> io::Result<Arc<McpService>> {
        let server = self.inner.open().await?;
        self.event_bus.client_connected();
        self.sessions.add(server.session());
        Ok(server)
    }

    async fn close(&self, server: Arc<McpService>) {
        self.event_bus.client_disconnected();
        self.inner.close(server).await;
    }
}
