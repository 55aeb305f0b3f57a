//! Properties that hold for any bytes. Tests check some, fuzzers many.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use helve_contract::{PathRules, PathStyle, Ports, Session, Workspace};
use helve_engine::{Dialect, Engine};
use serde_json::Value;

use crate::{McpServerConfig, McpService, MessageResponse, Outbox, Peer, client};

/// What was sent to nobody.
#[derive(Default)]
struct RecordingOutbox(Mutex<Vec<Vec<u8>>>);

impl Outbox for RecordingOutbox {
    fn send(&self, message: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

/// Lines of a client: each is answered with JSON, or not at all.
pub fn server(data: &[u8], dialect: Dialect) {
    let Ok(engine) = Engine::builder(dialect).build() else { return };
    let workspace = Workspace::new([], PathRules::default(), PathStyle::Relative);
    let session = Arc::new(Session::new("trial", workspace, Ports::new(Arc::new(helve_contract::ports::NoHost))));
    let peer = Peer::new(Arc::new(McpService::new(Arc::new(engine), session, McpServerConfig::default())));
    let kept = Arc::new(RecordingOutbox::default());
    let out: Arc<dyn Outbox> = kept.clone();
    for line in data.split(|byte| *byte == b'\n') {
        let answer = match peer.receive(line, &out) {
            MessageResponse::None => None,
            MessageResponse::Ready(answer) => Some(answer),
            // Work that needs a runtime to wait in is left.
            MessageResponse::Pending(work) => work.now_or_never().flatten(),
        };
        kept.0.lock().unwrap_or_else(PoisonError::into_inner).extend(answer);
    }
    for said in kept.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let said: Value =
            serde_json::from_slice(said).unwrap_or_else(|why| panic!("{}: {why}", String::from_utf8_lossy(said)));
        assert!(said["jsonrpc"] == "2.0" || said.is_array(), "{said}");
    }
}

/// What a server says to us: messages, streams of events, definitions of tools.
pub fn client(data: &[u8]) {
    client::fuzz_any(data);
}

#[cfg(test)]
mod corpus {
    use helve_contract::{PathStyle, Reply};
    use helve_engine::{Dialect, Limit, MessageTemplates, Mode, OutputLimits};
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn of_servers_is_replayed() {
        replay("mcp_client", super::client);
    }

    #[tokio::test]
    async fn of_clients_is_replayed() {
        let dialect = || Dialect {
            name: "none",
            description: "Without tools.",
            tools: Vec::new(),
            external: &[],
            roles: &[],
            default_role: None,
            path_style: PathStyle::Absolute,
            limits: OutputLimits { general: Limit::bytes(1 << 20).lines(1000), by_tool: &[], paged: &[], ranges: &[] },
            templates: MessageTemplates {
                error: |_, error| Reply::error(error.to_string()),
                error_prefix: "",
                notice: |_| "[cut]".into(),
                cancelled: "cancelled",
            },
            mode: Mode::Open,
        };
        replay("mcp_server", |data| super::server(data, dialect()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_falls_over(data in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,200}") {
            for data in [&data[..], text.as_bytes()] {
                super::client(data);
            }
        }
    }
}
