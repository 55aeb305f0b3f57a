//! The handle table of a component: descriptors, streams, pollables and errors.

use std::time::Duration;

use super::{
    files::DirRow,
    guest::{HaltReason, WasiErrno},
};

/// How many things a component may hold at once.
const MAX_HANDLES: usize = 1024;

/// Something a component holds.
#[derive(Clone)]
pub(super) enum ResourceHandle {
    /// An open file or directory.
    Descriptor(u32),
    /// Reads from a descriptor; from a place that moves on, where the descriptor has places.
    Reader { fd: u32, at: u64 },
    /// Writes to a descriptor.
    Writer { fd: u32, at: WritePosition },
    /// The rows of a directory that were not told yet, the next one last.
    Listing(Vec<DirRow>),
    /// Ready when the call is this old.
    Pollable(Duration),
    /// Why a stream failed.
    StreamError(WasiErrno),
}

/// Where a stream writes.
#[derive(Clone, Copy)]
pub(super) enum WritePosition {
    At(u64),
    End,
}

impl ResourceHandle {
    /// The descriptor that it keeps open.
    fn fd(&self) -> Option<u32> {
        match self {
            Self::Descriptor(fd) | Self::Reader { fd, .. } | Self::Writer { fd, .. } => Some(*fd),
            Self::Listing(_) | Self::Pollable(_) | Self::StreamError(_) => None,
        }
    }
}

/// Everything that one call holds. The first number is 1.
#[derive(Default)]
pub(super) struct HandleTable(Vec<Option<ResourceHandle>>);

impl HandleTable {
    pub(super) fn add(&mut self, handle: ResourceHandle) -> Result<u32, HaltReason> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free >= MAX_HANDLES {
            return Err(HaltReason::AbiViolation("it holds too many things at once"));
        }
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(handle);
        Ok(free as u32 + 1)
    }

    pub(super) fn get(&mut self, number: u32) -> Result<&mut ResourceHandle, HaltReason> {
        let slot = (number as usize).checked_sub(1).and_then(|it| self.0.get_mut(it));
        slot.and_then(Option::as_mut).ok_or(HaltReason::AbiViolation("it names something that it does not hold"))
    }

    /// Lets go of something. The descriptor comes back that nothing else keeps open.
    pub(super) fn remove(&mut self, number: u32) -> Result<Option<u32>, HaltReason> {
        let fd = self.get(number)?.fd();
        self.0[number as usize - 1] = None;
        Ok(fd.filter(|fd| !self.0.iter().flatten().any(|it| it.fd() == Some(*fd))))
    }
}
