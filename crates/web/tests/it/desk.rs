//! A reader with its child, and a call that reaches nothing else.

use std::{future::Future, sync::Arc};

use helve_contract::{
    Call, Error, PathRules, Ports, Reading, Result, SafePath, Session, Workspace, async_trait,
    ports::{
        Change, Chunk, Command, Expect, Find, Found, Grep, Host, Item, Kind, Matches, NoDocuments, NoTasks, Process,
        Span, Stat, Written,
    },
};
use helve_web::Reader;

pub(crate) fn reader() -> Reader {
    Reader::with_program(env!("CARGO_BIN_EXE_helve-parser-child"))
}

pub(crate) fn call() -> Call {
    let ports = Ports { host: Arc::new(Nowhere), tasks: Arc::new(NoTasks), documents: Arc::new(NoDocuments) };
    let workspace = Workspace::new([], PathRules::default(), Reading::Relative);
    Call::new("1", Arc::new(Session::new("s", workspace, ports)))
}

pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

struct Nowhere;

fn nothing<T>() -> Result<T> {
    Err(Error::failed("nothing here"))
}

#[async_trait]
impl Host for Nowhere {
    fn name(&self) -> &'static str {
        "nowhere"
    }
    async fn stat(&self, _: &SafePath) -> Result<Stat> {
        nothing()
    }
    async fn read(&self, _: &SafePath, _: Span) -> Result<Chunk> {
        nothing()
    }
    async fn write(&self, _: &SafePath, _: &[u8], _: Expect) -> Result<Written> {
        nothing()
    }
    async fn change(&self, _: Vec<Change>) -> Result<()> {
        nothing()
    }
    async fn remove(&self, _: &SafePath) -> Result<Kind> {
        nothing()
    }
    async fn list(&self, _: &SafePath) -> Result<Vec<Item>> {
        nothing()
    }
    async fn find(&self, _: &SafePath, _: &Find) -> Result<Found> {
        nothing()
    }
    async fn grep(&self, _: &SafePath, _: &Grep) -> Result<Matches> {
        nothing()
    }
    async fn spawn(&self, _: &Command) -> Result<Box<dyn Process>> {
        nothing()
    }
}
