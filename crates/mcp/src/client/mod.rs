//! The MCP client: tools and resources of MCP servers, for an engine.
//!
//! [`McpServers::start`] starts every configured server in the background and supervises it; [`McpServers::entries`]
//! returns the tools of connected ones. Everything a server sends is untrusted: it is bounded, cleaned and pinned,
//! and never loosens the gate.

mod call;
mod connect;
mod definition;
mod http;
mod keeper;
mod ledger;
mod lines;
mod link;
mod name;
mod resources;
mod servers;
mod settings;
mod sse;
mod stdio;
mod text;

pub use name::is_tool_of;
pub use servers::{ChangedTool, McpServers, ServerReport, ServerStatus, SkippedTool};
pub use settings::{McpClientConfig, McpDirs, Transport};

/// What a server may say, tried on any bytes: messages, streams of events, definitions.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_any(data: &[u8]) {
    let (link, _queue) = link::RpcConnection::new(Vec::new());
    data.split(|byte| *byte == b'\n').for_each(|line| link.receive(line));
    let events = |size: usize| {
        let mut events = sse::SseParser::default();
        data.chunks(size)
            .map(|piece| events.push(piece))
            .collect::<Result<Vec<_>, _>>()
            .map(|it| it.into_iter().flatten().collect::<Vec<_>>())
    };
    assert_eq!(events(1), events(data.len().max(1)));
    let Ok(told) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    if let Ok(taken) = definition::ToolDefinition::parse("server", &told) {
        let offered = name::assigned(&[], &[("server", &taken.server_name)]);
        assert!(offered[0].len() <= 64 && taken.schema.is_object(), "{taken:?}");
        assert!(!taken.description.chars().any(text::is_invisible), "{taken:?}");
    }
}
