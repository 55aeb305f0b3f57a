//! A reader with its child, and a call that reaches nothing else.

use std::{future::Future, sync::Arc};

use helve_contract::{Call, PathRules, PathStyle, Ports, Session, Workspace, ports::NoHost};
use helve_web::DocumentReader;

pub(crate) fn reader() -> DocumentReader {
    DocumentReader::with_program(env!("CARGO_BIN_EXE_helve-parser-child"))
}

pub(crate) fn call() -> Call {
    let ports = Ports::new(Arc::new(NoHost));
    let workspace = Workspace::new([], PathRules::default(), PathStyle::Relative);
    Call::new("1", Arc::new(Session::new("s", workspace, ports)))
}

pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
