//! Tests of a small dialect through the whole pipeline.
#![allow(clippy::unwrap_used, missing_docs)]

mod events;
#[path = "../../../contract/tests/suites/events.rs"]
mod events_suite;
mod house;
mod names;
mod offers;
mod pipeline;
mod record;
mod strangers;
