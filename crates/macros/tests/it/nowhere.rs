//! A call that reaches nothing.

use std::sync::Arc;

use helve_contract::{
    Call, Error, PathRules, Ports, Reading, Result, Root, SafePath, Session, Workspace, async_trait,
    ports::{
        Change, Chunk, Command, Expect, Find, Found, Grep, Host, Item, Kind, Matches, NoDocuments, NoTasks, Process,
        Span, Stat, Written,
    },
};

struct Nowhere;

fn nothing<T>() -> Result<T> {
    Err(Error::failed("nothing is here"))
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

pub(crate) fn call() -> Call {
    let workspace = Workspace::new([Root::writable("/w")], PathRules::default(), Reading::Relative);
    let ports = Ports { host: Arc::new(Nowhere), tasks: Arc::new(NoTasks), documents: Arc::new(NoDocuments) };
    Call::new("call-1", Arc::new(Session::new("session-1", workspace, ports)))
}
