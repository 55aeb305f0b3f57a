//! Clients of MCP: who is in, for those who want to see what each has running.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use helve_contract::{Session, async_trait};
use helve_mcp::{Rooms, Server};

use super::hub::Hub;
use crate::commands::http::House;

/// The sessions of clients.
#[derive(Default)]
pub(super) struct Guests {
    all: Mutex<Vec<Weak<Session>>>,
}

impl Guests {
    /// Those that are open.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn came(&self, session: &Arc<Session>) {
        let mut all = self.lock();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(session));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A house that knows who is in.
pub(super) struct Hall {
    pub(super) house: House,
    pub(super) hub: Arc<Hub>,
    pub(super) guests: Arc<Guests>,
}

#[async_trait]
impl Rooms for Hall {
    async fn open(&self) -> io::Result<Arc<Server>> {
        let server = self.house.open().await?;
        self.hub.came();
        self.guests.came(server.session());
        Ok(server)
    }

    async fn close(&self, server: Arc<Server>) {
        self.hub.went();
        self.house.close(server).await;
    }
}
