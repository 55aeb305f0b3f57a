//! Suggestions for missing paths.

use std::path::Path;

use helve_contract::{
    Access, Call, Error, FileErrorKind, SafePath, closest_names,
    ports::{FileKind, FindQuery, IgnoreOptions, SortOrder},
};

/// Adds similar existing paths to a not-found error.
pub async fn with_suggestions(call: &Call, path: &SafePath, error: Error) -> Error {
    match error {
        Error::File { path: shown, fault: FileErrorKind::Missing { near } } if near.is_empty() => {
            Error::File { path: shown, fault: FileErrorKind::Missing { near: similar_paths(call, path).await } }
        }
        other => other,
    }
}

/// Similar names in the same directory; otherwise files of the same name elsewhere.
async fn similar_paths(call: &Call, path: &SafePath) -> Vec<String> {
    let Some(name) = path.relative().file_name().map(|it| it.to_string_lossy().into_owned()) else { return Vec::new() };
    let folder = path.relative().parent().unwrap_or(Path::new(""));
    let Ok(folder) = path.in_same_root(folder, Access::Read) else { return Vec::new() };
    if let Ok(items) = call.host().list(&folder).await {
        let names = items.iter().take(20_000).map(|item| item.name.as_str());
        let near = closest_names(&name, names);
        if !near.is_empty() {
            return near.into_iter().map(|it| folder.display_relative(&folder.relative().join(it))).collect();
        }
    }
    let Ok(top) = path.in_same_root("", Access::Read) else { return Vec::new() };
    let find = FindQuery {
        pattern: Some(escape_glob(&name)),
        whole_path: false,
        kind: Some(FileKind::File),
        noise: IgnoreOptions { ignored: false, hidden: false },
        order: SortOrder::Path,
        limit: 50,
    };
    let Ok(found) = call.host().find(&top, &find).await else { return Vec::new() };
    let same = found.files.iter().filter(|it| it.path.file_name().is_some_and(|it| it.to_string_lossy() == name));
    same.take(3).map(|it| top.display_relative(&it.path)).collect()
}

/// A name as a glob that matches only it.
fn escape_glob(name: &str) -> String {
    name.chars().map(|it| if matches!(it, '*' | '?' | '[' | ']' | '{' | '}' | '\\') { '?' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_text, call};

    #[tokio::test]
    async fn names_the_files_that_look_like_it() {
        let files = [("src/main.rs", "x"), ("src/README.md", "x"), ("lib/deep/unique.rs", "x")];
        for (path, near) in [
            ("src/mian.rs", " Did you mean src/main.rs?"),
            ("src/readme.md", " Did you mean src/README.md?"),
            ("src/unique.rs", " Did you mean lib/deep/unique.rs?"),
            ("src/else.txt", ""),
        ] {
            let (reply, _) = call::<crate::fs::ReadTool>(&files, &format!(r#"{{"path": "{path}"}}"#)).await;
            let dot = if near.is_empty() { "" } else { "." };
            assert_text(&reply, &format!("{path}: no such file or folder{dot}{near}"));
        }
    }
}
