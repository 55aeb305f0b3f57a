//! Name resolution. The guard resolves once per hop and uses that result, so no second answer matters.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use async_trait::async_trait;

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Every address of the name, each with the port.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Whether this machine has a route to the internet, for the text of an error. Nothing is sent.
    fn has_route(&self) -> bool {
        true
    }
}

/// The system's own way: its hosts file, its servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }

    fn has_route(&self) -> bool {
        // Connecting a UDP socket only looks up a route and sends nothing.
        let has = |from: &str, to: &str| UdpSocket::bind(from).and_then(|socket| socket.connect(to)).is_ok();
        has("0.0.0.0:0", "1.1.1.1:53") || has("[::]:0", "[2606:4700:4700::1111]:53")
    }
}
