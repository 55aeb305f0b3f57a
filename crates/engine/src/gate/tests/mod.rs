//! Stories of the gate: who asks what, and what happens.

mod asking;
mod explaining;
mod modes;
mod rules;
mod stage;
mod threats;
