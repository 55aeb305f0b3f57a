//! The configuration of MCP servers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// One server: its transport and filters.
#[derive(Clone, Debug)]
pub struct McpClientConfig {
    /// Its name, which is part of its tools' names. Letters, digits, `_` and `-`, without `__`.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// The timeout until its tools are known.
    pub start_timeout: Duration,
    /// The timeout of one call.
    pub call_timeout: Duration,
    /// If not empty, only these tools are accepted: `mcp__server__*`, or the server's own names.
    pub allow: Vec<String>,
    /// These tools are refused. Takes precedence over `allow`.
    pub deny: Vec<String>,
    /// The maximum size of the text of one answer.
    pub max_output_bytes: usize,
    /// Directories for a server that asks for roots; if empty, the request is refused.
    pub roots: Vec<PathBuf>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A program that speaks on its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, besides a few basic variables.
        env: BTreeMap<String, String>,
        /// Where it starts.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// Where messages are posted.
        url: String,
        /// Sent with every message.
        headers: BTreeMap<String, String>,
    },
    /// The older form of HTTP: a stream that names the place to post to.
    Sse {
        /// Where the stream is.
        url: String,
        /// Sent with every message.
        headers: BTreeMap<String, String>,
    },
}

impl McpClientConfig {
    /// A server with default limits.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            start_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(120),
            allow: Vec::new(),
            deny: Vec::new(),
            max_output_bytes: 1 << 20,
            roots: Vec::new(),
        }
    }
}

/// The private directories for data about servers.
#[derive(Clone, Debug)]
pub struct McpDirs {
    /// The record of tools that were seen: `mcp-tools.json`.
    pub state: PathBuf,
    /// Binary contents of resources.
    pub blobs: PathBuf,
}

impl McpDirs {
    /// Everything in one state directory.
    pub fn new(state: &Path) -> Self {
        Self { state: state.to_owned(), blobs: state.join("mcp-blobs") }
    }
}
