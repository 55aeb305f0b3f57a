//! The memory files of a workspace: `MEMORY.md`, and the Markdown files in `memory/`.

use std::{
    path::{Component, Path},
    time::{Duration, SystemTime},
};

use helve_contract::{
    Access, Call, Error, FileFault, Result, SafePath,
    ports::{FileMark, Kind, Span, Stat},
};

/// The largest memory file that is searched.
const LARGEST: u64 = 1 << 20;
/// Memory files at most.
const MOST: usize = 1000;
/// A file that changed so recently may change again without looking different.
const FRESH: Duration = Duration::from_secs(2);

const TOP: &str = "MEMORY.md";
const FOLDER: &str = "memory";

/// Whether a path of the workspace is a memory file's.
pub(super) fn is_one(path: &Path) -> bool {
    let parts: Vec<_> = path.components().collect();
    match parts[..] {
        [Component::Normal(name)] => name == TOP,
        [Component::Normal(folder), Component::Normal(name)] => {
            folder == FOLDER && Path::new(name).extension().is_some_and(|it| it.eq_ignore_ascii_case("md"))
        }
        _ => false,
    }
}

/// What the files of this workspace are kept under.
pub(super) fn place(call: &Call) -> Result<String> {
    Ok(format!("{}:{}", call.host().name(), call.top()?.on_host().display()))
}

/// Brings the index up to date. Only files that look different from last time are read.
pub(super) async fn sync(call: &Call, place: &str) -> Result<()> {
    let top = call.top()?;
    let mut marks = Vec::new();
    for name in names(call, &top).await {
        call.still_wanted()?;
        let Ok(path) = top.beside(&name, Access::Read) else { continue };
        let Ok(stat) = call.host().stat(&path).await else { continue };
        if stat.kind == Kind::File && stat.size <= LARGEST {
            marks.push(FileMark { path: name, mark: mark(call, &stat) });
        }
    }
    let user = super::owner(call)?;
    let changed = call.store().sync_files(user, place, &marks).await?;
    for mark in marks.iter().filter(|it| changed.contains(&it.path)) {
        call.still_wanted()?;
        let Ok(chunk) = call.host().read(&top.beside(&mark.path, Access::Read)?, Span::first(LARGEST)).await else {
            continue;
        };
        // What is no text is kept as an empty file, and not asked for again.
        let binary = chunk.bytes.contains(&0);
        let text = if binary { String::new() } else { String::from_utf8_lossy(&chunk.bytes).into_owned() };
        call.store().keep_file(user, place, mark, &text).await?;
    }
    Ok(())
}

/// The names of the files, as far as they can be seen.
async fn names(call: &Call, top: &SafePath) -> Vec<String> {
    let mut names = vec![TOP.to_owned()];
    if let Ok(folder) = top.beside(FOLDER, Access::Read) {
        let items = call.host().list(&folder).await.unwrap_or_default();
        let files = items.into_iter().filter(|it| matches!(it.kind, Kind::File | Kind::Link));
        let files = files.map(|it| format!("{FOLDER}/{}", it.name)).filter(|it| is_one(Path::new(it)));
        names.extend(files.take(MOST));
    }
    names
}

/// Changes when the file does. A file changed a moment ago is always read again.
fn mark(call: &Call, stat: &Stat) -> String {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = stat.modified.map(since);
    let now = Duration::from_micros(call.now().as_microsecond().max(0) as u64);
    match changed {
        Some(changed) if changed + FRESH < now => format!("{} {}", stat.size, changed.as_nanos()),
        _ => format!("{} seen {}", stat.size, now.as_nanos()),
    }
}

/// The path of a memory file, or why it is none.
pub(super) fn check(call: &Call, path: &str) -> Result<SafePath> {
    let safe = call.readable(path)?;
    if safe.root().dir != call.top()?.root().dir || !is_one(safe.relative()) {
        return Err(Error::file(
            &safe,
            FileFault::Other("not a memory file; those are MEMORY.md and memory/*.md".to_owned()),
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
            assert_eq!(is_one(Path::new(path)), is, "{path}");
        }
    }
}
