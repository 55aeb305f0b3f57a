//! The state directory: records of calls, spill files, trust. Only its owner can access it.

use std::{
    fs::DirBuilder,
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use helve_contract::ids::DEFAULT_TENANT;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{Settings, xdg_dir};

/// The default state directory.
pub fn default_dir() -> Option<PathBuf> {
    Some(xdg_dir("XDG_STATE_HOME", ".local/state")?.join("helve"))
}

/// The configured state directory.
pub fn place(settings: &Settings) -> Option<PathBuf> {
    settings.config.state_dir.as_deref().map(Path::to_path_buf).or_else(default_dir)
}

/// The directory for a tenant's sessions: saved output, temporary files, undo data, records and the vault. The default
/// tenant uses the state directory itself, other tenants a subdirectory.
pub fn tenant_dir(settings: &Settings, state: &Path) -> PathBuf {
    match settings.config.store.tenant.as_str() {
        DEFAULT_TENANT => state.to_owned(),
        tenant => state.join("tenants").join(tenant),
    }
}

/// Creates the state directory. If that fails, creates a temporary private one and returns a warning.
pub fn open(settings: &Settings) -> io::Result<(PathBuf, Option<String>)> {
    let why = match place(settings) {
        Some(folder) => match private(&folder) {
            Ok(()) => return Ok((folder.canonicalize()?, None)),
            // A configured directory must work; the default one can be replaced.
            Err(error) if settings.config.state_dir.is_some() => {
                return Err(io::Error::new(error.kind(), format!("state_dir {}: {error}", folder.display())));
            }
            Err(error) => format!("{}: {error}", folder.display()),
        },
        None => "HOME is not set".to_owned(),
    };
    let folder = std::env::temp_dir().join(format!("helve-{}", rustix::process::geteuid().as_raw()));
    private(&folder).map_err(|error| {
        io::Error::new(error.kind(), format!("no state folder: {why}; {}: {error}", folder.display()))
    })?;
    let remark =
        format!("no usual state folder ({why}); using {}. Set HELVE_STATE_DIR to choose one", folder.display());
    Ok((folder.canonicalize()?, Some(remark)))
}

/// Creates a directory and its parents with access for the owner only; refuses one that belongs to somebody else.
pub fn private(folder: &Path) -> io::Result<()> {
    if folder.symlink_metadata().is_err() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    if folder.symlink_metadata()?.is_symlink() {
        return Err(io::Error::new(
            ErrorKind::NotADirectory,
            "is a symbolic link, and links are not followed there; remove the link, or name the folder that it leads to",
        ));
    }
    // Uses one open handle, so that a later rename or link has no effect.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = match rustix::fs::open(folder, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(io::Error::new(ErrorKind::NotADirectory, "is not a folder")),
        open => open?,
    };
    let there = rustix::fs::fstat(&open)?;
    if there.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "belongs to another user"));
    }
    if there.st_mode & 0o077 != 0 {
        rustix::fs::fchmod(&open, Mode::from_raw_mode(0o700))?;
    }
    Ok(())
}

/// Random letters and digits.
pub fn random_id() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|it| char::from_digit(it.into(), 16)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{MetadataExt, PermissionsExt},
    };

    use super::*;

    /// A fresh private directory for a test.
    pub(crate) fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("helve-test-{name}-{}", random_id().unwrap()));
        private(&path).unwrap();
        path
    }

    #[test]
    fn the_folder_is_closed_to_others() {
        let top = folder("state");
        let open = top.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        private(&open).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o700);
        let link = top.join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        let told = private(&link).unwrap_err().to_string();
        assert!(told.starts_with("is a symbolic link, and links are not followed there; remove the link"), "{told}");
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o755, "the target of the link is untouched");
        fs::write(top.join("file"), "").unwrap();
        assert_eq!(private(&top.join("file")).unwrap_err().to_string(), "is not a folder");
        fs::remove_dir_all(top).unwrap();
    }
}
