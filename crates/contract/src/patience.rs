//! Whether whoever looks after a call can wait for a disk on the same thread.
//!
//! Handing a small write to another thread and hearing of its end costs more than the write. A server that has one
//! client and nothing else to do may as well wait for it itself; one that looks after many may not.

use std::cell::Cell;

thread_local! {
    static PATIENT: Cell<bool> = const { Cell::new(false) };
}

/// Does some work, usually one poll of a call, on a thread that may wait meanwhile.
pub fn allow_blocking<T>(work: impl FnOnce() -> T) -> T {
    struct RestoreOnDrop(bool);
    impl Drop for RestoreOnDrop {
        fn drop(&mut self) {
            PATIENT.set(self.0);
        }
    }
    let _before = RestoreOnDrop(PATIENT.replace(true));
    work()
}

/// Whether this thread may wait for a disk here and now.
pub fn is_blocking_allowed() -> bool {
    PATIENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_with_the_work_however_it_ends() {
        assert!(!is_blocking_allowed());
        assert!(allow_blocking(|| allow_blocking(is_blocking_allowed) && is_blocking_allowed()));
        assert!(std::panic::catch_unwind(|| allow_blocking(|| panic!("no"))).is_err());
        assert!(!is_blocking_allowed());
    }
}
