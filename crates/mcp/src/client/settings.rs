//! What is configured about a server.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// One server: how it is reached, and what is taken from it.
#[derive(Clone, Debug)]
pub struct McpClientConfig {
    /// Its name; the middle of its tools' names. Letters, digits, `_` and `-`, without `__`.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// How long it may take until its tools are known.
    pub start_timeout: Duration,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// When not empty, only these tools are taken: `mcp__server__*`, or the name the server itself uses.
    pub allow: Vec<String>,
    /// These tools are not taken. Beats `allow`.
    pub deny: Vec<String>,
    /// Bytes of text that are taken from one answer.
    pub max_output_bytes: usize,
    /// Folders that are told to a server that asks for roots; none refuse the question.
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
        /// Its environment, beside the few variables that every program needs.
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
    /// A server with the usual limits.
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

/// Where things about servers are kept. Both folders are the owner's alone.
#[derive(Clone, Debug)]
pub struct McpDirs {
    /// The record of tools that were seen: `mcp-tools.json`.
    pub state: PathBuf,
    /// Binary contents of resources.
    pub blobs: PathBuf,
}

impl McpDirs {
    /// Everything in one state folder.
    pub fn new(state: &Path) -> Self {
        Self { state: state.to_owned(), blobs: state.join("mcp-blobs") }
    }
}
