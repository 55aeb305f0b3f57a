//! Settings: one table of keys, five places they come from, and who may set what.

mod keys;
mod layers;
mod source;
mod trust;

pub(crate) use keys::KEYS;
pub(crate) use layers::{Flag, Origin, Setting, Settings, Standing};
pub(crate) use source::{project_file, read_limited, user_file, xdg};
pub(crate) use trust::Trust;
