//! Resources of servers: listed and read as two tools.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{Effects, Entry, Error, PortSet, Reply, Result, Spec};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    call::truncate,
    connect,
    link::{RpcClientError, RpcConnection},
    name,
    servers::{ConnectedServer, McpServersInner},
    text,
};

/// Characters of what a list tells about one resource.
const MAX_SUMMARY_CHARS: usize = 1000;
/// How long one server may take when all are asked.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// `ListMcpResources` and `ReadMcpResource`.
pub(crate) fn entries(inner: &Arc<McpServersInner>) -> Vec<Entry> {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let listing = json!({
        "type": "object",
        "properties": { "server": text("Only the resources of this server.") },
        "additionalProperties": false,
    });
    let reading = json!({
        "type": "object",
        "properties": {
            "server": text("The name of the server."),
            "uri": text("The URI of the resource, as it was listed."),
        },
        "required": ["server", "uri"],
        "additionalProperties": false,
    });
    let (one, other) = (inner.clone(), inner.clone());
    vec![
        Entry::dynamic(
            spec("ListMcpResources", "Lists the resources that MCP servers offer.", listing, Effects::READS),
            move |args, _| {
                let inner = one.clone();
                Box::pin(async move { list(&inner, args["server"].as_str()).await })
            },
        ),
        Entry::dynamic(
            spec(
                "ReadMcpResource",
                "Reads a resource of an MCP server. What is not text is saved to a file, whose name is told.",
                reading,
                // No approval is needed, as in the seed; the URI is still checked for secrets, because the server
                // gets it.
                Effects::READS | Effects::SENDS,
            ),
            move |args, call| {
                let inner = other.clone();
                Box::pin(async move {
                    let [server, uri] = ["server", "uri"].map(|it| args[it].as_str().unwrap_or_default());
                    tokio::select! {
                        reply = read(&inner, server, uri) => reply,
                        () = call.cancel.cancelled() => Err(Error::Cancelled),
                    }
                })
            },
        )
        .with_untrusted_origin("an MCP server"),
    ]
}

fn spec(name: &str, description: &str, schema: Value, effects: Effects) -> Spec {
    Spec {
        name: name.into(),
        aliases: vec![format!("{name}Tool")],
        rule_names: Vec::new(),
        annotations: None,
        description: description.into(),
        input_schema: schema,
        output_schema: None,
        effects,
        tier: None,
        timeout: Duration::from_secs(300),
        // These tools exist only with configured servers.
        needs: PortSet::NONE,
        profile: None,
        access: None,
    }
}

async fn list(inner: &McpServersInner, only: Option<&str>) -> Result<Reply> {
    let servers = match only {
        Some(name) => vec![inner.find(name)?.clone()],
        None => inner.servers.clone(),
    };
    let asked = servers.iter().map(|server| async move {
        // A server requested by name returns its error; in the full list it is skipped.
        let link = match (server.link_for_resources(), only) {
            (Ok(Some(link)), _) => link,
            (Ok(None), _) => return Ok((server, Vec::new())),
            (Err(error), Some(_)) => return Err(error),
            (Err(error), None) => return Ok((server, vec![Err(error.to_string())])),
        };
        match (resources_of(server, &link).await, only) {
            (Ok(found), _) => Ok((server, found.into_iter().map(Ok).collect())),
            (Err(lost), Some(_)) => Err(request_error(server, &lost)),
            (Err(lost), None) => Ok((server, vec![Err(request_error(server, &lost).to_string())])),
        }
    });
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for answer in futures::future::join_all(asked).await {
        for item in answer?.1 {
            match item {
                Ok(resource) => all.push(resource),
                Err(note) => notes.push(note),
            }
        }
    }
    Ok(Reply { notes, ..Reply::json(all.into()) })
}

async fn resources_of(server: &ConnectedServer, link: &RpcConnection) -> Result<Vec<Value>, RpcClientError> {
    let limit = server.settings.call_timeout.min(LIST_TIMEOUT);
    let found = connect::list(link, "resources/list", "resources", limit).await?;
    Ok(found.iter().filter_map(|it| resource_summary(server, it)).collect())
}

fn resource_summary(server: &ConnectedServer, told: &Value) -> Option<Value> {
    let uri = told["uri"].as_str().filter(|it| it.len() <= 8192 && !it.chars().any(text::is_invisible))?;
    let mut item = Map::new();
    item.insert("uri".into(), uri.into());
    item.insert("name".into(), text::clean_description(told["name"].as_str().unwrap_or(uri), MAX_SUMMARY_CHARS).into());
    for key in ["mimeType", "description"] {
        if let Some(words) = told[key].as_str() {
            item.insert(key.into(), text::clean_description(words, MAX_SUMMARY_CHARS).into());
        }
    }
    item.insert("server".into(), server.settings.name.as_str().into());
    Some(item.into())
}

async fn read(inner: &McpServersInner, server: &str, uri: &str) -> Result<Reply> {
    let server = inner.find(server)?;
    let none = || Error::failed(format!("the MCP server `{}` has no resources", server.settings.name));
    let link = server.link_for_resources()?.ok_or_else(none)?;
    let asked = link.request("resources/read", json!({ "uri": uri }), server.settings.call_timeout, None).await;
    let mut answer = asked.map_err(|lost| request_error(server, &lost))?;
    let mut contents = Vec::new();
    if let Value::Array(parts) = answer["contents"].take() {
        for part in parts {
            contents.push(content(inner, server, &part).map_err(Error::failed)?);
        }
    }
    Ok(Reply::json(json!({ "contents": contents })))
}

/// One content of a resource: its text, or the file that it was saved to.
pub(crate) fn content(inner: &McpServersInner, server: &ConnectedServer, told: &Value) -> Result<Value, String> {
    let mut content = Map::new();
    content.insert("uri".into(), text::quote_message(told["uri"].as_str().unwrap_or_default()).into());
    let mime = told["mimeType"].as_str().map(text::quote_message);
    if let Some(mime) = &mime {
        content.insert("mimeType".into(), mime.as_str().into());
    }
    if let Some(words) = told["text"].as_str() {
        content.insert("text".into(), truncate(&text::strip_control(words), server.settings.max_output_bytes).into());
    } else if let Some(blob) = told["blob"].as_str() {
        let bytes = BASE64.decode(blob).map_err(|error| format!("the server sent broken base64: {error}"))?;
        let file = save_blob(inner, server, &bytes, mime.as_deref())
            .map_err(|error| format!("it cannot be saved: {error}"))?;
        content.insert("blobSavedTo".into(), file.into());
    }
    Ok(content.into())
}

/// Saves bytes to a file that is named after them.
fn save_blob(
    inner: &McpServersInner,
    server: &ConnectedServer,
    bytes: &[u8],
    mime: Option<&str>,
) -> io::Result<String> {
    let folder = &inner.folders.blobs;
    if !folder.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mark = name::hex(&Sha256::digest(bytes));
    let ending = match mime.unwrap_or_default() {
        "text/plain" => "txt".to_owned(),
        mime => mime.split('/').nth(1).map(name::to_identifier).unwrap_or_default(),
    };
    let ending = if (1..=8).contains(&ending.len()) { &ending } else { "bin" };
    let file = format!("{}-{}.{ending}", name::to_identifier(&server.settings.name), &mark[..16]);
    let path = folder.join(file);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        // A partial file would be taken for the whole the next time.
        Ok(mut file) => file.write_all(bytes).inspect_err(|_| _ = fs::remove_file(&path))?,
        // The same bytes were saved before.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(path.display().to_string())
}

fn request_error(server: &ConnectedServer, lost: &RpcClientError) -> Error {
    match lost {
        RpcClientError::Timeout => Error::Timeout(server.settings.call_timeout),
        lost => Error::failed(format!("the MCP server `{}` {}", server.settings.name, lost.message())),
    }
}
