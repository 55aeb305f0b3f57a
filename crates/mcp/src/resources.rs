//! Files as resources: what lies at the top of the workspace, its memory files, and the whole of replies that were cut.

use std::{fmt::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{
    Access, Reading, SafePath, Session,
    ports::{Kind, Span},
};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    revision::Era,
    server::Server,
    wire::{Fault, Id, short},
};

/// Where a workspace keeps its memory files, beside `MEMORY.md` at its top.
const MEMORY: &str = "memory";
/// Files in one list.
const MOST: usize = 200;
/// Bytes of one file.
const LARGEST: u64 = 8 << 20;

/// How any file of the workspace is named.
pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "file:///{+path}",
        "name": "workspace-file",
        "title": "Workspace file",
        "description": "A file of the workspace, by its absolute path.",
    }])
}

/// The files at the top of each root and in its folder of memory files, and the spill files.
pub(crate) async fn list(server: &Server, session: &Session, id: &Id, era: Era) -> Result<Vec<u8>, Fault> {
    let mut files = Vec::new();
    for root in session.workspace.roots() {
        let Ok(top) = session.workspace.check(&named(session, root), Access::Read, None) else { continue };
        let Ok(items) = session.ports.host.list(&top).await else { continue };
        let has_memory = items.iter().any(|it| it.kind == Kind::Folder && it.name == MEMORY);
        let mut found: Vec<_> =
            items.into_iter().filter(|it| it.kind == Kind::File).map(|it| (it.name, it.size)).collect();
        if has_memory
            && let Ok(folder) = top.beside(MEMORY, Access::Read)
            && let Ok(items) = session.ports.host.list(&folder).await
        {
            let notes = items
                .into_iter()
                .filter(|it| it.kind == Kind::File && Path::new(&it.name).extension().is_some_and(|it| it == "md"));
            found.extend(notes.map(|it| (format!("{MEMORY}/{}", it.name), it.size)));
        }
        for (name, size) in found {
            if let Ok(path) = top.beside(&name, Access::Read) {
                files.push(json!({ "uri": uri(session, &path), "name": name, "size": size }));
            }
        }
    }
    files.truncate(MOST);
    for spill in server.spills() {
        let name = Path::new(&spill).file_name().map_or(spill.clone(), |it| it.to_string_lossy().into_owned());
        files.push(json!({
            "uri": encoded(Path::new(&spill)),
            "name": name,
            "description": "The whole output of a call whose reply was cut.",
            "mimeType": "text/plain",
        }));
    }
    Ok(Answer::to(id, era).field("resources", &files).fresh_for(0).done())
}

/// One file of the workspace, or one that we spilled. Nothing else has a name here.
pub(crate) async fn read(
    server: &Server,
    session: &Session,
    (id, era): (&Id, Era),
    uri: &str,
) -> Result<Vec<u8>, Fault> {
    let path = decoded(uri).ok_or_else(|| missing(era, uri, "only file:///… names a resource here"))?;
    let bytes = if server.spills().contains(&path) {
        spill(path).await.map_err(|why| missing(era, uri, &why))?
    } else {
        workspace_file(session, &path).await.map_err(|why| missing(era, uri, &why))?
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
    Ok(Answer::to(id, era).field("contents", &[content]).fresh_for(0).done())
}

async fn workspace_file(session: &Session, path: &str) -> Result<Vec<u8>, String> {
    let safe = session.workspace.check(Path::new(path), Access::Read, None).map_err(|it| it.to_string())?;
    let host = &session.ports.host;
    let chunk = host.read(&safe, Span::first(LARGEST + 1)).await.map_err(|it| it.to_string())?;
    if chunk.bytes.len() as u64 > LARGEST {
        return Err(format!("{safe} has {} bytes, and {LARGEST} fit; read it with a tool, in pages", chunk.size));
    }
    Ok(chunk.bytes)
}

/// A file that the engine wrote, read from this machine; its folder is private to us.
async fn spill(path: String) -> Result<Vec<u8>, String> {
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<u8>> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read.await {
        Ok(Ok(bytes)) => Ok(bytes),
        _ => Err("the file has expired".into()),
    }
}

fn missing(era: Era, uri: &str, why: &str) -> Fault {
    let code = if era == Era::Modern { -32602 } else { -32002 };
    Fault::new(code, format!("Resource not found: {why}")).with(json!({ "uri": short(uri) }))
}

/// How a root is named in this session.
fn named(session: &Session, root: &helve_contract::Root) -> std::path::PathBuf {
    match (session.workspace.reading(), &root.name) {
        (Reading::Virtual, Some(name)) => Path::new("/").join(name),
        _ => root.dir.clone(),
    }
}

/// The name of a file: where the model sees virtual roots, clients see them too.
fn uri(session: &Session, path: &SafePath) -> String {
    match session.workspace.reading() {
        Reading::Virtual => encoded(Path::new(&path.to_string())),
        Reading::Relative | Reading::Absolute => encoded(&path.on_host()),
    }
}

fn encoded(path: &Path) -> String {
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
pub(crate) fn decoded(uri: &str) -> Option<String> {
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
        let uri = encoded(Path::new(path));
        assert_eq!(uri, "file:///work%20space/%C3%A4%25b%23%3F.txt");
        assert_eq!(decoded(&uri).as_deref(), Some(path));
        for wrong in ["http://x/y", "file://host/x", "file:///a%2", "file:///%ff", "/etc/passwd", ""] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
