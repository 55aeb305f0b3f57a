//! A path that is not there: which ones that are look like it.

use std::path::Path;

use helve_contract::{
    Access, Call, Error, FileFault, SafePath, nearest,
    ports::{Find, Kind, Noise, Order},
};

/// The same error, and for a missing path the existing ones that look like it.
pub async fn explain(call: &Call, path: &SafePath, error: Error) -> Error {
    match error {
        Error::File { path: shown, fault: FileFault::Missing { near } } if near.is_empty() => {
            Error::File { path: shown, fault: FileFault::Missing { near: near_to(call, path).await } }
        }
        other => other,
    }
}

/// Names in the same folder first; where there are none, files of the same name elsewhere.
async fn near_to(call: &Call, path: &SafePath) -> Vec<String> {
    let Some(name) = path.relative().file_name().map(|it| it.to_string_lossy().into_owned()) else { return Vec::new() };
    let folder = path.relative().parent().unwrap_or(Path::new(""));
    let Ok(folder) = path.beside(folder, Access::Read) else { return Vec::new() };
    if let Ok(items) = call.host().list(&folder).await {
        let names = items.iter().take(20_000).map(|item| item.name.as_str());
        let near = nearest(&name, names);
        if !near.is_empty() {
            return near.into_iter().map(|it| folder.shown(&folder.relative().join(it))).collect();
        }
    }
    let Ok(top) = path.beside("", Access::Read) else { return Vec::new() };
    let find = Find {
        pattern: Some(escaped(&name)),
        whole_path: false,
        kind: Some(Kind::File),
        noise: Noise { ignored: false, hidden: false },
        order: Order::Path,
        limit: 50,
    };
    let Ok(found) = call.host().find(&top, &find).await else { return Vec::new() };
    let same = found.files.iter().filter(|it| it.path.file_name().is_some_and(|it| it.to_string_lossy() == name));
    same.take(3).map(|it| top.shown(&it.path)).collect()
}

/// A name as a glob that matches only it.
fn escaped(name: &str) -> String {
    name.chars().map(|it| if matches!(it, '*' | '?' | '[' | ']' | '{' | '}' | '\\') { '?' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{call, says};

    #[tokio::test]
    async fn names_the_files_that_look_like_it() {
        let files = [("src/main.rs", "x"), ("src/README.md", "x"), ("lib/deep/unique.rs", "x")];
        for (path, near) in [
            ("src/mian.rs", " Did you mean src/main.rs?"),
            ("src/readme.md", " Did you mean src/README.md?"),
            ("src/unique.rs", " Did you mean lib/deep/unique.rs?"),
            ("src/else.txt", ""),
        ] {
            let (reply, _) = call::<crate::fs::Read>(&files, &format!(r#"{{"path": "{path}"}}"#)).await;
            let dot = if near.is_empty() { "" } else { "." };
            says(&reply, &format!("{path}: no such file or folder{dot}{near}"));
        }
    }
}
