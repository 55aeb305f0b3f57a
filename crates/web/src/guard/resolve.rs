//! Names to addresses. The guard asks once for each hop and uses what it was told, so no second answer matters.

use std::{io, net::SocketAddr};

use async_trait::async_trait;

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// Every address of the name, each with the port.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's own way: its hosts file, its servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}
