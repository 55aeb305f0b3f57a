//! Tests of the gate.

mod asking;
mod explaining;
mod modes;
mod rules;
mod stage;
mod threats;
