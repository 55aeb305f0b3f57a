//! The same tools under other names: one file a dialect, each a table.
//!
//! A dialect says what the model calls, what it sends, what runs, and how it is answered. The adapting is plain
//! `TryFrom` that the compiler checks.

/// Reads a table of tools. A row is `"name" Args => Tool, reply;`
///
/// The model calls `name` with `Args`; `Tool` runs; `reply` words the answer.
macro_rules! table {
    ($($name:literal $args:ty => $tool:ty, $reply:expr;)*) => {
        vec![$(helve_contract::Entry::row::<$args, $tool, _>($name, $reply)),*]
    };
}

mod claude;
mod forge;
mod oxydra;
mod preset;
mod solo;
mod words;

pub use claude::claude;
pub use forge::forge;
use helve_engine::Dialect;
pub use oxydra::oxydra;
pub use preset::preset;
pub use solo::solo;

/// The names of the dialects, in the order of their numbers.
pub const NAMES: [&str; 5] = ["solo", "forge", "preset", "oxydra", "claude"];

/// All dialects.
pub fn all() -> Vec<Dialect> {
    NAMES.iter().filter_map(|name| by_name(name)).collect()
}

/// The dialect of this name or number (`claude`, `004`).
pub fn by_name(name: &str) -> Option<Dialect> {
    Some(match name {
        "solo" | "000" => solo(),
        "forge" | "001" => forge(),
        "preset" | "002" => preset(),
        "oxydra" | "003" => oxydra(),
        "claude" | "004" => claude(),
        _ => return None,
    })
}
