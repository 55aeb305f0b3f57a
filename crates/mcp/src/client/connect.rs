//! Connects to a configured server and reads its tools.

use std::{sync::Arc, time::Duration};

use helve_contract::PatternPurpose;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    definition::{self, ToolDefinition},
    http,
    link::{RpcClientError, RpcConnection},
    name,
    servers::SkippedTool,
    settings::{McpClientConfig, Transport},
    stdio::{self, ProcessGroup},
};
use crate::revision;

/// Pages of a list, and things in it.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 2000;

/// A server that answers.
pub(crate) struct McpConnection {
    pub(crate) link: Arc<RpcConnection>,
    pub(crate) group: Option<ProcessGroup>,
    /// The transport tasks; they end with the connection.
    _tasks: JoinSet<()>,
    /// Whether it has tools, and whether it has resources.
    pub(crate) capabilities: (bool, bool),
}

impl McpConnection {
    /// Connects to the server and negotiates a revision.
    pub(crate) async fn open(settings: &McpClientConfig) -> Result<Self, String> {
        let (link, queue) = RpcConnection::new(settings.roots.clone());
        let limit = settings.call_timeout.max(settings.start_timeout) + Duration::from_secs(5);
        let (group, tasks) = match &settings.transport {
            Transport::Stdio { command, args, env, cwd } => {
                let (group, tasks) = stdio::open(&link, queue, (command, args), env, cwd.as_deref())?;
                (Some(group), tasks)
            }
            Transport::Http { url, headers } => (None, http::open(&link, queue, url, headers, limit, false).await?),
            Transport::Sse { url, headers } => (None, http::open(&link, queue, url, headers, limit, true).await?),
        };
        let mut connection = Self { link, group, _tasks: tasks, capabilities: (false, false) };
        connection.initialize(settings).await?;
        Ok(connection)
    }

    async fn initialize(&mut self, settings: &McpClientConfig) -> Result<(), String> {
        let capabilities = if settings.roots.is_empty() { json!({}) } else { json!({ "roots": {} }) };
        let hello = json!({
            "protocolVersion": revision::LEGACY[0],
            "capabilities": capabilities,
            "clientInfo": { "name": "helve", "version": env!("CARGO_PKG_VERSION") },
        });
        let said = self
            .link
            .request("initialize", hello, settings.start_timeout, None)
            .await
            .map_err(|lost| lost.message())?;
        let spoken = said["protocolVersion"].as_str().unwrap_or_default();
        let Some(agreed) = revision::LEGACY.into_iter().find(|it| *it == spoken) else {
            return Err(format!("speaks the revision {spoken:.40?} of the protocol, which is not known here"));
        };
        _ = self.link.revision.set(agreed.to_owned());
        self.capabilities = (said["capabilities"]["tools"].is_object(), said["capabilities"]["resources"].is_object());
        self.link.notify("notifications/initialized").await;
        Ok(())
    }
}

/// Reads all pages of a list.
pub(crate) async fn list(
    link: &RpcConnection,
    method: &str,
    field: &str,
    limit: Duration,
) -> Result<Vec<Value>, RpcClientError> {
    let mut all = Vec::new();
    let mut cursor = Value::Null;
    for _ in 0..MAX_PAGES {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let mut page = link.request(method, params, limit, None).await?;
        if let Value::Array(items) = page[field].take() {
            all.extend(items);
        }
        let next = page["nextCursor"].take();
        if !next.is_string() || next == cursor || all.len() > MAX_ITEMS {
            break;
        }
        cursor = next;
    }
    all.truncate(MAX_ITEMS);
    Ok(all)
}

/// The server's tools, and those that are refused.
pub(crate) async fn tools(
    link: &RpcConnection,
    settings: &McpClientConfig,
) -> Result<(Vec<ToolDefinition>, Vec<SkippedTool>), String> {
    let told = list(link, "tools/list", "tools", settings.start_timeout).await.map_err(|lost| lost.message())?;
    let (mut taken, mut left) = (Vec::<ToolDefinition>::new(), Vec::new());
    for tool in &told {
        let shown = definition::display_name(tool);
        let raw = tool["name"].as_str().unwrap_or_default();
        let named = |patterns: &[String], purpose| {
            patterns.iter().any(|it| name::matches_pattern(it, &settings.name, raw, purpose))
        };
        if named(&settings.deny, PatternPurpose::Restrict)
            || !(settings.allow.is_empty() || named(&settings.allow, PatternPurpose::Grant))
        {
            continue;
        }
        let why = match ToolDefinition::parse(&settings.name, tool) {
            Ok(tool) if taken.iter().any(|it| it.server_name == tool.server_name) => {
                "the server has two tools of that name".to_owned()
            }
            Ok(tool) => {
                taken.push(tool);
                continue;
            }
            Err(why) => why,
        };
        left.push(SkippedTool { server: settings.name.clone(), tool: shown, why });
    }
    Ok((taken, left))
}
