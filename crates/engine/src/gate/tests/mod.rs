//! Stories of the gate: who asks what, and what happens.

mod asking;
mod modes;
mod rules;
mod stage;
mod threats;
