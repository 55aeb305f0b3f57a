//! Files: the same tools on every host.

mod apply_patch;
mod delete;
pub mod diff;
mod edit;
mod find;
mod glob;
mod grep;
mod list;
mod long_lines;
mod near;
mod notebook;
mod notebook_edit;
mod patch;
mod read;
mod replace;
pub mod text;
mod write;

pub use apply_patch::{ApplyPatch, PatchOut, Patched};
pub use delete::{Delete, Deleted};
pub use edit::{Edit, Edited};
pub use find::{Find, FindOut, Only};
pub use glob::{Files, Glob, Order};
pub use grep::{Grep, GrepOut, Mode, Names, Nothing, Numbers, Unit};
pub use list::{Detail, List, Listing, size};
pub use near::explain;
pub use notebook::{Cell, CellOutput, Notebook};
pub use notebook_edit::{CellEdited, CellMode, CellType, NotebookEdit};
pub use read::{CutBy, Page, PageRange, PdfText, Read, ReadOut, Seen, Total};
pub use replace::{Rung, Tolerance};
pub use write::{Write, WriteOut};

#[cfg(any(test, fuzzing))]
pub(crate) use patch::try_patch;
