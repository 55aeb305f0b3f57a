//! File tools, the same on every host.

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

pub use apply_patch::{ApplyPatchOutput, ApplyPatchTool, PatchedFile};
pub use delete::{DeleteOutput, DeleteTool};
pub use edit::{EditOutput, EditTool};
pub use find::{EntryFilter, FindOutput, FindTool};
pub use glob::{GlobOrder, GlobOutput, GlobTool};
pub use grep::{FileNames, GrepMode, GrepOutput, GrepTool, LimitUnit, LineNumbers, NoMatchHints};
pub use list::{ListDetail, ListOutput, ListTool, format_size};
pub use near::with_suggestions;
pub use notebook::{Cell, CellOutput, Notebook};
pub use notebook_edit::{CellMode, CellType, NotebookEditOutput, NotebookEditTool};
pub use read::{PageLimit, PageRange, PdfText, ReadImage, ReadOutput, ReadTool, TextPage, TotalLines};
pub use replace::{MatchLevel, Tolerance};
pub use write::{WriteOutput, WriteTool};

#[cfg(any(test, fuzzing))]
pub(crate) use patch::fuzz_patch;
