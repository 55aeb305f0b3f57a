//! A tiny dialect through the whole pipeline.
#![allow(clippy::unwrap_used, missing_docs)]

mod house;
mod names;
mod offers;
mod pipeline;
mod record;
mod strangers;
