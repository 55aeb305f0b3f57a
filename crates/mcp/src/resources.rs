//! Files as resources: the top level of the workspace, its memory files, and spill files.

use std::{fmt::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{
    Access, PathStyle, SafePath, Session,
    ports::{FileKind, Span},
};
use serde_json::{Value, json};

use crate::{
    answer::ResponseBuilder,
    revision::ProtocolEra,
    server::McpService,
    wire::{RequestId, RpcError, truncate_name},
};

/// Where a workspace keeps its memory files, beside `MEMORY.md` at its top.
const MEMORY_DIR: &str = "memory";
/// Files in one list.
const MAX_FILES: usize = 200;
/// Bytes of one file.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// How any file of the workspace is named.
pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "file:///{+path}",
        "name": "workspace-file",
        "title": "Workspace file",
        "description": "A file of the workspace, by its absolute path.",
    }])
}

/// The files at the top of each root and in its directory of memory files, and the spill files.
pub(crate) async fn list(
    server: &McpService,
    session: &Session,
    id: &RequestId,
    era: ProtocolEra,
) -> Result<Vec<u8>, RpcError> {
    let mut files = Vec::new();
    for root in session.workspace.roots() {
        let Ok(top) = session.workspace.check(&root_path(session, root), Access::Read, None) else { continue };
        let Ok(items) = session.ports.host.list(&top).await else { continue };
        let has_memory = items.iter().any(|it| it.kind == FileKind::Folder && it.name == MEMORY_DIR);
        let mut found: Vec<_> =
            items.into_iter().filter(|it| it.kind == FileKind::File).map(|it| (it.name, it.size)).collect();
        if has_memory
            && let Ok(folder) = top.in_same_root(MEMORY_DIR, Access::Read)
            && let Ok(items) = session.ports.host.list(&folder).await
        {
            let notes = items
                .into_iter()
                .filter(|it| it.kind == FileKind::File && Path::new(&it.name).extension().is_some_and(|it| it == "md"));
            found.extend(notes.map(|it| (format!("{MEMORY_DIR}/{}", it.name), it.size)));
        }
        for (name, size) in found {
            if let Ok(path) = top.in_same_root(&name, Access::Read) {
                files.push(json!({ "uri": file_uri(session, &path), "name": name, "size": size }));
            }
        }
    }
    files.truncate(MAX_FILES);
    for spill in server.spills() {
        let name = Path::new(&spill).file_name().map_or(spill.clone(), |it| it.to_string_lossy().into_owned());
        files.push(json!({
            "uri": percent_encode(Path::new(&spill)),
            "name": name,
            "description": "The whole output of a call whose reply was cut.",
            "mimeType": "text/plain",
        }));
    }
    Ok(ResponseBuilder::new(id, era).field("resources", &files).cacheable_for(0).finish())
}

/// Reads one file of the workspace or one spill file. Nothing else has a URI.
pub(crate) async fn read(
    server: &McpService,
    session: &Session,
    (id, era): (&RequestId, ProtocolEra),
    uri: &str,
) -> Result<Vec<u8>, RpcError> {
    let path = parse_file_uri(uri).ok_or_else(|| not_found(era, uri, "only file:///… names a resource here"))?;
    let bytes = if server.spills().contains(&path) {
        spill(path).await.map_err(|why| not_found(era, uri, &why))?
    } else {
        workspace_file(session, &path).await.map_err(|why| not_found(era, uri, &why))?
    };
    let mut content = json!({ "uri": uri });
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            content["mimeType"] = "text/plain".into();
            content["text"] = text.into();
        }
        Ok(text) => content["blob"] = BASE64.encode(text).into(),
        Err(error) => content["blob"] = BASE64.encode(error.as_bytes()).into(),
    }
    Ok(ResponseBuilder::new(id, era).field("contents", &[content]).cacheable_for(0).finish())
}

async fn workspace_file(session: &Session, path: &str) -> Result<Vec<u8>, String> {
    let safe = session.workspace.check(Path::new(path), Access::Read, None).map_err(|it| it.to_string())?;
    let host = &session.ports.host;
    let chunk = host.read(&safe, Span::first(MAX_FILE_BYTES + 1)).await.map_err(|it| it.to_string())?;
    if chunk.bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "{safe} has {} bytes, and {MAX_FILE_BYTES} fit; read it with a tool, in pages",
            chunk.size
        ));
    }
    Ok(chunk.bytes)
}

/// A file that the engine wrote, read from this machine; its directory is private to us.
async fn spill(path: String) -> Result<Vec<u8>, String> {
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<u8>> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read.await {
        Ok(Ok(bytes)) => Ok(bytes),
        _ => Err("the file has expired".into()),
    }
}

fn not_found(era: ProtocolEra, uri: &str, why: &str) -> RpcError {
    let code = if era == ProtocolEra::Modern { -32602 } else { -32002 };
    RpcError::new(code, format!("Resource not found: {why}")).with_data(json!({ "uri": truncate_name(uri) }))
}

/// How a root is named in this session.
fn root_path(session: &Session, root: &helve_contract::Root) -> std::path::PathBuf {
    match (session.workspace.path_style(), &root.name) {
        (PathStyle::Virtual, Some(name)) => Path::new("/").join(name),
        _ => root.dir.clone(),
    }
}

/// The URI of a file: clients see virtual roots as the model does.
fn file_uri(session: &Session, path: &SafePath) -> String {
    match session.workspace.path_style() {
        PathStyle::Virtual => percent_encode(Path::new(&path.to_string())),
        PathStyle::Relative | PathStyle::Absolute => percent_encode(&path.host_path()),
    }
}

fn percent_encode(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
            other => {
                let _ = write!(uri, "%{other:02X}");
            }
        }
    }
    uri
}

/// The path of a `file:` name on this machine.
pub(crate) fn parse_file_uri(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |it: Option<u8>| char::from(it?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        let path = "/work space/ä%b#?.txt";
        let uri = percent_encode(Path::new(path));
        assert_eq!(uri, "file:///work%20space/%C3%A4%25b%23%3F.txt");
        assert_eq!(parse_file_uri(&uri).as_deref(), Some(path));
        for wrong in ["http://x/y", "file://host/x", "file:///a%2", "file:///%ff", "/etc/passwd", ""] {
            assert_eq!(parse_file_uri(wrong), None, "{wrong}");
        }
    }
}
