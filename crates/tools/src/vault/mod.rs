//! The vault: a root of secrets that commands never see. What leaves it leaves one file at a time.

mod copy_to;

pub use copy_to::{Copied, CopyTo};
