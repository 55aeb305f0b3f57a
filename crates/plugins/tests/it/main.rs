//! Tests of external tools through the engine.
#![allow(clippy::unwrap_used, missing_docs)]

mod component;
mod plugins;
mod wasm;
