//! What a component holds by number: descriptors, streams, clocks to wait for, errors to ask about.

use std::time::Duration;

use super::{
    files::Row,
    guest::{Errno, Halt},
};

/// How many things a component may hold at once.
const MOST: usize = 1024;

/// Something a component holds.
#[derive(Clone)]
pub(super) enum Handle {
    /// An open file or folder.
    Descriptor(u32),
    /// Reads from a descriptor; from a place that moves on, where the descriptor has places.
    Reader { fd: u32, at: u64 },
    /// Writes to a descriptor.
    Writer { fd: u32, at: Place },
    /// The rows of a folder that were not told yet, the next one last.
    Listing(Vec<Row>),
    /// Ready when the call is this old.
    Wait(Duration),
    /// Why a stream failed.
    Failure(Errno),
}

/// Where a stream writes.
#[derive(Clone, Copy)]
pub(super) enum Place {
    At(u64),
    End,
}

impl Handle {
    /// The descriptor that it keeps open.
    fn fd(&self) -> Option<u32> {
        match self {
            Self::Descriptor(fd) | Self::Reader { fd, .. } | Self::Writer { fd, .. } => Some(*fd),
            Self::Listing(_) | Self::Wait(_) | Self::Failure(_) => None,
        }
    }
}

/// Everything that one call holds. The first number is 1.
#[derive(Default)]
pub(super) struct Handles(Vec<Option<Handle>>);

impl Handles {
    pub(super) fn add(&mut self, handle: Handle) -> Result<u32, Halt> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free >= MOST {
            return Err(Halt::Misuse("it holds too many things at once"));
        }
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(handle);
        Ok(free as u32 + 1)
    }

    pub(super) fn get(&mut self, number: u32) -> Result<&mut Handle, Halt> {
        let slot = (number as usize).checked_sub(1).and_then(|it| self.0.get_mut(it));
        slot.and_then(Option::as_mut).ok_or(Halt::Misuse("it names something that it does not hold"))
    }

    /// Lets go of something. The descriptor comes back that nothing else keeps open.
    pub(super) fn remove(&mut self, number: u32) -> Result<Option<u32>, Halt> {
        let fd = self.get(number)?.fd();
        self.0[number as usize - 1] = None;
        Ok(fd.filter(|fd| !self.0.iter().flatten().any(|it| it.fd() == Some(*fd))))
    }
}
