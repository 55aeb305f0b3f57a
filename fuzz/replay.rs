// Runs a fuzz target's check on every file of its corpus. Tests include this file.

use std::{fs, path::Path};

/// Runs `check` on every file in `fuzz/seeds/TARGET`.
#[allow(clippy::disallowed_methods)] // The corpus lies beside the source, not behind a host.
pub(crate) fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).expect("the corpus is there").map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        println!("{}", file.display());
        check(&fs::read(&file).unwrap());
    }
}
