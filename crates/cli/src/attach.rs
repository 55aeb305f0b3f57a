//! Reads local files for a message: `--attach FILE` and `/attach FILE`.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use helve_contract::ports::{Attachment, AttachmentLimits};

use crate::fault::CliError;

/// Reads files in this order. Files that are already attached count for the limits.
pub(crate) fn read(paths: &[impl AsRef<Path>], attached: &[Attachment]) -> Result<Vec<Attachment>, CliError> {
    let limits = AttachmentLimits::LOCAL;
    let mut sizes: Vec<u64> = attached.iter().map(|it| it.media.bytes.len() as u64).collect();
    let mut files = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let failed = |why: String| CliError::usage(format!("cannot attach {}: {why}", path.display()));
        let info = path.metadata().map_err(|error| failed(error.to_string()))?;
        if !info.is_file() {
            return Err(failed("it is not a regular file".to_owned()));
        }
        sizes.push(info.len());
        limits.check(sizes.iter().copied()).map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        // The file may have grown meanwhile.
        file.take(limits.bytes as u64 + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
        if let Some(size) = sizes.last_mut() {
            *size = bytes.len() as u64;
        }
        limits.check(sizes.iter().copied()).map_err(|error| failed(error.to_string()))?;
        let name = path.file_name().map(|it| it.to_string_lossy()).unwrap_or_default();
        files.push(Attachment::new(&name, bytes));
    }
    Ok(files)
}

/// A path as a person types it: with or without quotes, `~/` for the home directory.
pub(crate) fn typed_path(text: &str) -> PathBuf {
    let text = text.trim();
    let quoted = ['"', '\''].iter().find_map(|it| text.strip_prefix(*it)?.strip_suffix(*it));
    let text = quoted.unwrap_or(text);
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}
