//! Reads and removes files.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::UNIX_EPOCH,
};

use bashkit::{FileSystem, Metadata};
use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{DirEntry, FileChunk, FileKind, FileStamp, Span, Stat},
};

use super::{
    fault::from_bashkit_error,
    is_home,
    place::{self, FinalSymlink, kind},
};
use crate::local::names::escape_invisible;

const MAX_CHUNK_BYTES: u64 = 64 << 20;

pub(super) async fn stat(files: &dyn FileSystem, path: &SafePath) -> Result<Stat> {
    let meta = place::resolve_existing(files, path, FinalSymlink::Follow).await?.meta;
    Ok(Stat { kind: kind(&meta), size: meta.size, modified: Some(meta.modified) })
}

pub(super) async fn read(files: &dyn FileSystem, path: &SafePath, span: Span) -> Result<FileChunk> {
    let place = place::resolve_existing(files, path, FinalSymlink::Follow).await?;
    match kind(&place.meta) {
        FileKind::File => {}
        FileKind::Folder => return Err(Error::file(path, FileErrorKind::IsFolder)),
        FileKind::Link | FileKind::Other => return Err(Error::file(path, FileErrorKind::NotRegular)),
    }
    let bytes = files.read_file(&place.here).await.map_err(|error| Error::file(path, from_bashkit_error(&error)))?;
    let (size, stamp) = (bytes.len() as u64, stamp(&place.meta, &bytes));
    let start = span.start.min(size) as usize;
    let end = span.start.saturating_add(span.len.min(MAX_CHUNK_BYTES)).min(size) as usize;
    Ok(FileChunk { bytes: bytes[start..end].to_vec(), size, stamp })
}

fn stamp(meta: &Metadata, bytes: &[u8]) -> FileStamp {
    let mut content = DefaultHasher::new();
    bytes.hash(&mut content);
    let nanos = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos() as u64);
    FileStamp([content.finish(), bytes.len() as u64, nanos(meta.modified), nanos(meta.created)])
}

/// Removes a file, a link (not its target), or a directory with its content.
pub(super) async fn remove(files: &dyn FileSystem, path: &SafePath) -> Result<FileKind> {
    let place = place::resolve_existing(files, path, FinalSymlink::Keep).await?;
    if path.relative().as_os_str().is_empty() || is_home(&place.here) || place.here.parent().is_none() {
        return Err(Error::denied(format!(
            "{path} is the workspace itself, which is not removed; name something in it"
        )));
    }
    files.remove(&place.here, true).await.map_err(|error| Error::file(path, from_bashkit_error(&error)))?;
    Ok(kind(&place.meta))
}

pub(super) async fn list(files: &dyn FileSystem, path: &SafePath) -> Result<Vec<DirEntry>> {
    let place = place::resolve_existing(files, path, FinalSymlink::Follow).await?;
    if kind(&place.meta) != FileKind::Folder {
        return Err(Error::file(path, FileErrorKind::NotFolder));
    }
    let mut entries =
        files.read_dir(&place.here).await.map_err(|error| Error::file(path, from_bashkit_error(&error)))?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut items = Vec::with_capacity(entries.len());
    for entry in entries {
        let kind = kind(&entry.metadata);
        let target = match kind {
            FileKind::Link => files.read_link(&place.here.join(&entry.name)).await.ok(),
            _ => None,
        };
        items.push(DirEntry {
            name: escape_invisible(entry.name.as_bytes()),
            kind,
            size: entry.metadata.size,
            modified: Some(entry.metadata.modified),
            target: target.map(|it| escape_invisible(it.as_os_str().as_encoded_bytes())),
        });
    }
    Ok(items)
}
