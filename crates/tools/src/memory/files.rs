//! The memory files of a workspace: `MEMORY.md`, and the Markdown files in `memory/`.

use std::{
    path::{Component, Path},
    time::{Duration, SystemTime},
};

use helve_contract::{
    Access, Call, Error, FileErrorKind, Result, SafePath,
    ports::{FileKind, FileRevision, Span, Stat},
};

/// The largest memory file that is searched.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Memory files at most.
const MAX_FILES: usize = 1000;
/// A file that changed this recently may change again with the same timestamp.
const SETTLE_TIME: Duration = Duration::from_secs(2);

const ROOT_FILE: &str = "MEMORY.md";
const MEMORY_DIR: &str = "memory";

/// Whether a path of the workspace is a memory file's.
pub(super) fn is_memory_file(path: &Path) -> bool {
    let parts: Vec<_> = path.components().collect();
    match parts[..] {
        [Component::Normal(name)] => name == ROOT_FILE,
        [Component::Normal(folder), Component::Normal(name)] => {
            folder == MEMORY_DIR && Path::new(name).extension().is_some_and(|it| it.eq_ignore_ascii_case("md"))
        }
        _ => false,
    }
}

/// What the files of this workspace are kept under.
pub(super) fn partition_key(call: &Call) -> Result<String> {
    Ok(format!("{}:{}", call.host().name(), call.workspace_root()?.host_path().display()))
}

/// Updates the index. Reads only files whose fingerprint has changed.
pub(super) async fn sync(call: &Call, place: &str) -> Result<()> {
    let top = call.workspace_root()?;
    let mut marks = Vec::new();
    for name in names(call, &top).await {
        call.check_cancelled()?;
        let Ok(path) = top.in_same_root(&name, Access::Read) else { continue };
        let Ok(stat) = call.host().stat(&path).await else { continue };
        if stat.kind == FileKind::File && stat.size <= MAX_FILE_BYTES {
            marks.push(FileRevision { path: name, revision: fingerprint(call, &stat) });
        }
    }
    let user = super::owner(call)?;
    let changed = call.store().sync_files(user, place, &marks).await?;
    for mark in marks.iter().filter(|it| changed.contains(&it.path)) {
        call.check_cancelled()?;
        let Ok(chunk) =
            call.host().read(&top.in_same_root(&mark.path, Access::Read)?, Span::first(MAX_FILE_BYTES)).await
        else {
            continue;
        };
        // A binary file is stored as empty, so that it is not read again.
        let binary = chunk.bytes.contains(&0);
        let text = if binary { String::new() } else { String::from_utf8_lossy(&chunk.bytes).into_owned() };
        call.store().index_file(user, place, mark, &text).await?;
    }
    Ok(())
}

/// The names of the files, as far as they can be seen.
async fn names(call: &Call, top: &SafePath) -> Vec<String> {
    let mut names = vec![ROOT_FILE.to_owned()];
    if let Ok(folder) = top.in_same_root(MEMORY_DIR, Access::Read) {
        let items = call.host().list(&folder).await.unwrap_or_default();
        let files = items.into_iter().filter(|it| matches!(it.kind, FileKind::File | FileKind::Link));
        let files = files.map(|it| format!("{MEMORY_DIR}/{}", it.name)).filter(|it| is_memory_file(Path::new(it)));
        names.extend(files.take(MAX_FILES));
    }
    names
}

/// Changes when the file does. A file changed a moment ago is always read again.
fn fingerprint(call: &Call, stat: &Stat) -> String {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = stat.modified.map(since);
    let now = Duration::from_micros(call.now().as_microsecond().max(0) as u64);
    match changed {
        Some(changed) if changed + SETTLE_TIME < now => format!("{} {}", stat.size, changed.as_nanos()),
        _ => format!("{} seen {}", stat.size, now.as_nanos()),
    }
}

/// The path of a memory file, or why it is none.
pub(super) fn check(call: &Call, path: &str) -> Result<SafePath> {
    let safe = call.check_read(path)?;
    if safe.root().dir != call.workspace_root()?.root().dir || !is_memory_file(safe.relative()) {
        return Err(Error::file(
            &safe,
            FileErrorKind::Other("not a memory file; those are MEMORY.md and memory/*.md".to_owned()),
        ));
    }
    Ok(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_memory_file() {
        for (path, is) in [
            ("MEMORY.md", true),
            ("memory/2026-01-02.md", true),
            ("memory/deep/x.md", false),
            ("memory/x.txt", false),
            ("memory.md", false),
            ("memory/../secret.md", false),
            ("src/MEMORY.md", false),
            ("memory", false),
        ] {
            assert_eq!(is_memory_file(Path::new(path)), is, "{path}");
        }
    }
}
