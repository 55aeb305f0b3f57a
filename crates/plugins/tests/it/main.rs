//! Tools from outside, as the engine calls them.
#![allow(clippy::unwrap_used, missing_docs)]

mod component;
mod plugins;
mod wasm;
