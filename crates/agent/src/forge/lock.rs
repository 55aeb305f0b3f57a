//! The executor lock: one executor per repository. The kernel releases it when its holder dies.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
};

use super::{ForgeDir, Run};

/// The right to execute runs in a repository, as long as it is held.
pub struct ExecutorLock {
    _file: File,
}

impl ExecutorLock {
    /// Takes the right. The error says who has it.
    pub fn acquire(home: &ForgeDir, run: &Run) -> io::Result<Self> {
        let path = home.path().join("executor.lock");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                _ = (&file).take(200).read_to_string(&mut holder);
                return Err(io::Error::other(format!(
                    "another executor works in this repository ({}); wait for it, or stop it",
                    holder.trim()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "process {}, run {}", std::process::id(), run.label)?;
        Ok(Self { _file: file })
    }
}
