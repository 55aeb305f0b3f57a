//! Turns settings into engines and sessions. The command line, the server and scheduled runs all assemble their
//! sessions here.

mod agent_user;
pub mod channels;
pub mod crew;
pub mod fault;
pub mod guard;
pub mod hosts;
pub mod knobs;
pub mod modules;
pub mod notify;
pub mod outside;
pub mod plugins;
pub mod print;
pub mod recall;
pub mod rules;
pub mod schedules;
pub mod session;
mod session_model;
pub mod setup;
pub mod shell;
pub mod talk;
pub mod undo;
pub mod web;
pub mod workshop;

pub use helve_config as config;
pub use helve_config::state;
pub use session::{Caller, OpenSession, SessionBuilder};
