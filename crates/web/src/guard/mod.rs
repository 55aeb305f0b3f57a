//! The guard: which addresses may be reached. Every request that leaves for the web passes it, at every hop.
//!
//! - `target`: an address as it was written, taken strictly.
//! - `allow`: what the operator opened.
//! - `ranges`: every block of addresses that is not the public internet.
//! - `resolve`: names to addresses, once.
//! - `judge`: the guard itself.

mod allow;
mod judge;
mod ranges;
mod resolve;
mod target;

pub use judge::{Admitted, Guard};
pub use ranges::forbidden;
pub use resolve::{Resolve, SystemResolver};
pub use target::Target;
