//! Settings of Helve: the table of keys, the layers that set them, trust in project files, and the state directory.

mod keys;
mod layers;
mod source;
pub mod state;
mod trust;

pub use keys::{KEYS, Key, Kind, Project, shown};
pub use layers::{Flag, Origin, Program, Setting, Settings, Standing};
pub use source::{project_file, read_limited, user_file, xdg};
pub use trust::Trust;
