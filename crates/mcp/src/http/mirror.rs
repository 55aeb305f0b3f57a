//! The newest revision repeats the main fields of a request in headers for intermediaries: they must match the
//! message.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use serde_json::{Value, value::RawValue};

use crate::{
    revision::{self, LEGACY, MODERN},
    server::McpService,
    wire::{RequestParams, RpcError},
};

/// The header that says which revision a request speaks.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Whether the headers of a request say what the request says.
pub(crate) fn check_headers(
    headers: &HeaderMap,
    method: &str,
    params: Option<&RawValue>,
    server: &McpService,
) -> Result<(), RpcError> {
    let params = RequestParams::read(params)?;
    let Some(version) = params.meta.version.as_deref() else {
        return Err(RpcError::invalid_params("_meta needs io.modelcontextprotocol/protocolVersion"));
    };
    if text(headers, &VERSION)?.as_deref() != Some(version) {
        return Err(mismatch("MCP-Protocol-Version", "_meta"));
    }
    if version != MODERN {
        return Err(revision::unsupported(version));
    }
    if !params.meta.capabilities.as_ref().is_some_and(Value::is_object) {
        return Err(RpcError::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities, an object"));
    }
    if text(headers, &METHOD)?.as_deref() != Some(method) {
        return Err(mismatch("Mcp-Method", "method"));
    }
    let named = match method {
        "tools/call" | "prompts/get" => params.name.as_deref(),
        "resources/read" => params.uri.as_deref(),
        _ => return Ok(()),
    };
    if text(headers, &NAME)?.as_deref() != named {
        return Err(mismatch("Mcp-Name", "name"));
    }
    match (method, named) {
        ("tools/call", Some(tool)) => check_argument_headers(headers, tool, params.arguments, server),
        _ => Ok(()),
    }
}

/// Arguments that a tool's schema wants to see in headers.
fn check_argument_headers(
    headers: &HeaderMap,
    tool: &str,
    arguments: Option<&RawValue>,
    server: &McpService,
) -> Result<(), RpcError> {
    let Some(schema) = server.schema(tool) else { return Ok(()) };
    let Some(Value::Object(properties)) = schema.get("properties") else { return Ok(()) };
    let mut mirrored =
        properties.iter().filter_map(|(key, property)| Some((key, property.get("x-mcp-header")?.as_str()?))).peekable();
    if mirrored.peek().is_none() {
        return Ok(());
    }
    let given: Value = arguments.and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default();
    for (key, name) in mirrored {
        let Ok(header) = HeaderName::from_bytes(format!("mcp-param-{name}").as_bytes()) else { continue };
        let said = text(headers, &header)?;
        let meant = match given.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        if said.as_deref() != meant.as_deref() {
            return Err(mismatch(&format!("Mcp-Param-{name}"), key));
        }
    }
    Ok(())
}

fn mismatch(header: &str, part: &str) -> RpcError {
    RpcError::new(-32020, format!("Header mismatch: {header} does not say what the message says in {part}"))
}

/// What a header says. What does not fit into a header is written as `=?base64?…?=`.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<Cow<'a, str>>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bad = || RpcError::new(-32020, format!("Header mismatch: {name} makes no sense"));
    if values.next().is_some() {
        return Err(bad());
    }
    let plain = value.to_str().map_err(|_| bad())?.trim();
    let Some(code) = plain.strip_prefix("=?base64?").and_then(|it| it.strip_suffix("?=")) else {
        return Ok(Some(plain.into()));
    };
    let bytes = BASE64.decode(code).map_err(|_| bad())?;
    String::from_utf8(bytes).map(|it| Some(it.into())).map_err(|_| bad())
}

/// Whether the header names the newest revision, or one that we have never heard of.
pub(crate) fn names_modern_revision(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION).map(HeaderValue::as_bytes);
    version.is_some_and(|it| !LEGACY.iter().any(|known| known.as_bytes() == it))
}
