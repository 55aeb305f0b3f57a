//! Everything a tool reaches outside of itself: one trait a port, several makers each.

mod documents;
mod host;
mod tasks;

pub use documents::{Documents, NoDocuments, PdfPages, Picture};
pub use host::{
    Absence, Change, Chunk, Command, Environment, Exit, Expect, FileHits, Find, Found, FoundFile, GRACE, Grep, Hit,
    HitKind, Host, Input, Item, Kind, Level, Matches, Network, Noise, Noticed, Order, Output, Process, Signal, Span,
    Stamp, Stat, Terminal, Written,
};
pub use tasks::{NoTasks, State, TaskId, TaskInfo, TaskOutput, Tasks, Until};
