//! Whether the current thread may block on disk I/O.
//!
//! Handing a small write to another thread costs more than the write. A server with one client and no other work may
//! block; a server with many clients may not.

use std::cell::Cell;

thread_local! {
    static PATIENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, usually one poll of a call, on a thread that may block meanwhile.
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

/// Whether the current thread may block on disk I/O now.
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
