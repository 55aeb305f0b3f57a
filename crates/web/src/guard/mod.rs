//! The guard: which addresses may be reached. Every web request passes it at every hop.
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

pub use judge::{AddressGuard, AdmittedTarget};
pub use ranges::non_public_reason;
pub use resolve::{Resolver, SystemResolver};
pub use target::Target;
