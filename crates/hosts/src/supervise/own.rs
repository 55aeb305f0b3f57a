//! Selects the binary of the init helper: the small one beside this binary, or this binary.
//!
//! The kernel maps and the loader relocates the whole binary for every command, and `helve` is large. Both are built
//! from the same sources; another build refuses to be the helper.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The name of the small binary.
const HELPER_NAME: &str = "helve-stage";

/// The sources that define the helper's behaviour.
const HELPER_SOURCES: [&[u8]; 14] = [
    include_bytes!("attributes.rs"),
    include_bytes!("child.rs"),
    include_bytes!("dir.rs"),
    include_bytes!("finish.rs"),
    include_bytes!("forward.rs"),
    include_bytes!("leash.rs"),
    include_bytes!("notify.rs"),
    include_bytes!("plan.rs"),
    include_bytes!("rules.rs"),
    include_bytes!("seccomp.rs"),
    include_bytes!("stage.rs"),
    include_bytes!("sys.rs"),
    include_bytes!("tree.rs"),
    include_bytes!("unix_connect.rs"),
];

/// A hash of these sources. It distinguishes versions and is no security measure.
const HELPER_BUILD_ID: u64 = {
    let (mut sum, mut file) = (0xCBF2_9CE4_8422_2325_u64, 0);
    while file < HELPER_SOURCES.len() {
        let mut at = 0;
        while at < HELPER_SOURCES[file].len() {
            sum = (sum ^ HELPER_SOURCES[file][at] as u64).wrapping_mul(0x0100_0000_01B3);
            at += 1;
        }
        file += 1;
    }
    sum
};

/// The build id of the init helper in this binary. Both sides must have the same.
#[must_use]
pub fn helper_build_id() -> String {
    format!("{}-{HELPER_BUILD_ID:016x}", env!("CARGO_PKG_VERSION"))
}

/// The binary that becomes the init helper.
pub(crate) fn helper_program() -> PathBuf {
    let own = original_path(env::current_exe().unwrap_or_default());
    sibling_helper(&own).unwrap_or(own)
}

/// The original path of this binary if its file was replaced since: a deleted file cannot be mounted. The file there
/// now is the helper if it has the same build id, and refuses otherwise.
fn original_path(own: PathBuf) -> PathBuf {
    match own.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(before) if !own.exists() => OsStr::from_bytes(before).into(),
        _ => own,
    }
}

/// The small binary beside this one, if it is equally protected and has the same build id.
fn sibling_helper(own: &Path) -> Option<PathBuf> {
    let program = fs::canonicalize(own).ok()?.with_file_name(HELPER_NAME);
    let (ours, its) = (fs::metadata(own).ok()?, fs::symlink_metadata(&program).ok()?);
    let looser = its.mode() & !ours.mode() & 0o022 != 0;
    if !its.is_file() || its.uid() != ours.uid() || looser {
        return None;
    }
    let mut asked = Command::new(&program);
    let said = asked.env_clear().stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    (said.stdout.trim_ascii() == helper_build_id().as_bytes()).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_that_was_replaced_is_looked_for_where_it_lay() {
        let top = env::temp_dir().join(format!("helve-own-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let (lay, odd) = (top.join("helve"), top.join("odd (deleted)"));
        fs::write(&odd, "").unwrap();
        assert_eq!(original_path(top.join("helve (deleted)")), lay);
        assert_eq!(original_path(lay.clone()), lay);
        assert_eq!(original_path(odd.clone()), odd, "a name that is really its own");
        fs::remove_dir_all(&top).unwrap();
    }
}
