//! Settings: one table of keys, five places they come from, and who may set what.

mod keys;
mod layers;
mod source;
mod trust;

pub use keys::KEYS;
pub use layers::{Flag, Origin, Setting, Settings, Standing};
pub use source::{project_file, read_limited, user_file, xdg};
pub use trust::Trust;
