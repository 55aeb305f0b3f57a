//! Settings: one table of keys, five places they come from, and who may set what.

mod keys;
mod layers;
mod source;
mod trust;

pub(crate) use keys::{KEYS, shown};
pub(crate) use layers::{Flag, Origin, Program, Setting, Settings, Standing};
pub(crate) use source::{project_file, read_limited, user_file, xdg};
pub(crate) use trust::Trust;
