//! Looking at files, and removing them.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::UNIX_EPOCH,
};

use bashkit::{FileSystem, Metadata};
use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{Chunk, Item, Kind, Span, Stamp, Stat},
};

use super::{
    fault::fault,
    is_home,
    place::{self, Last, kind},
};
use crate::local::names::visible;

/// The most bytes of one chunk.
const CHUNK: u64 = 64 << 20;

pub(super) async fn stat(files: &dyn FileSystem, path: &SafePath) -> Result<Stat> {
    let meta = place::need(files, path, Last::Follow).await?.meta;
    Ok(Stat { kind: kind(&meta), size: meta.size, modified: Some(meta.modified) })
}

pub(super) async fn read(files: &dyn FileSystem, path: &SafePath, span: Span) -> Result<Chunk> {
    let place = place::need(files, path, Last::Follow).await?;
    match kind(&place.meta) {
        Kind::File => {}
        Kind::Folder => return Err(Error::file(path, FileFault::IsFolder)),
        Kind::Link | Kind::Other => return Err(Error::file(path, FileFault::NotRegular)),
    }
    let bytes = files.read_file(&place.here).await.map_err(|error| Error::file(path, fault(&error)))?;
    let (size, stamp) = (bytes.len() as u64, stamp(&place.meta, &bytes));
    let start = span.start.min(size) as usize;
    let end = span.start.saturating_add(span.len.min(CHUNK)).min(size) as usize;
    Ok(Chunk { bytes: bytes[start..end].to_vec(), size, stamp })
}

fn stamp(meta: &Metadata, bytes: &[u8]) -> Stamp {
    let mut content = DefaultHasher::new();
    bytes.hash(&mut content);
    let nanos = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos() as u64);
    Stamp([content.finish(), bytes.len() as u64, nanos(meta.modified), nanos(meta.created)])
}

/// Removes a file, a link (not what it points to), or a folder with all that is in it.
pub(super) async fn remove(files: &dyn FileSystem, path: &SafePath) -> Result<Kind> {
    let place = place::need(files, path, Last::Keep).await?;
    if path.relative().as_os_str().is_empty() || is_home(&place.here) || place.here.parent().is_none() {
        return Err(Error::denied(format!(
            "{path} is the workspace itself, which is not removed; name something in it"
        )));
    }
    files.remove(&place.here, true).await.map_err(|error| Error::file(path, fault(&error)))?;
    Ok(kind(&place.meta))
}

pub(super) async fn list(files: &dyn FileSystem, path: &SafePath) -> Result<Vec<Item>> {
    let place = place::need(files, path, Last::Follow).await?;
    if kind(&place.meta) != Kind::Folder {
        return Err(Error::file(path, FileFault::NotFolder));
    }
    let mut entries = files.read_dir(&place.here).await.map_err(|error| Error::file(path, fault(&error)))?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut items = Vec::with_capacity(entries.len());
    for entry in entries {
        let kind = kind(&entry.metadata);
        let target = match kind {
            Kind::Link => files.read_link(&place.here.join(&entry.name)).await.ok(),
            _ => None,
        };
        items.push(Item {
            name: visible(entry.name.as_bytes()),
            kind,
            size: entry.metadata.size,
            modified: Some(entry.metadata.modified),
            target: target.map(|it| visible(it.as_os_str().as_encoded_bytes())),
        });
    }
    Ok(items)
}
