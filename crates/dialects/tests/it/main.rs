//! Tests of the dialects: their pages, their tables, and the order of the crates.
#![allow(clippy::unwrap_used, missing_docs)]

mod bare;
mod conformance;
mod corpus;
mod desk;
mod layers;
mod limits;
mod pages;
mod ports;
mod prompts;
mod rule_matrix;
mod scenarios;
mod shelf;
mod tables;
mod threats;
mod torture;
