//! The child's side: take the document, parse it behind walls, answer.

use std::{io, panic, process, thread};

use super::{
    pdf, picture, walls,
    wire::{self, Answer, Ask, MARKER},
};
use crate::html::{self, Part, Style};

/// The parser's stack. Documents nest; the crates below have limits of their own, which fit into this.
const STACK: usize = 64 << 20;
/// More than a parent ever sends.
const MAX_INPUT: u64 = 80 << 20;

/// Becomes the parser of one document if this process was started to be one, and does not return then.
///
/// A program that makes a [`Reader`](super::Reader) calls this first thing in `main`, before it opens anything.
pub fn child_stage() {
    if std::env::args_os().nth(1).is_some_and(|it| it == MARKER) {
        process::exit(i32::from(run().is_err()));
    }
}

/// What a parser says: an answer and the bytes that follow it.
pub(super) type Parsed = (Answer, Vec<u8>);

fn run() -> io::Result<()> {
    walls::raise()?;
    // A parser that trips says so in its answer; the words of the panic are for nobody.
    panic::set_hook(Box::new(|_| {}));
    let all = wire::read_all(io::stdin().lock(), MAX_INPUT)?;
    let parser = thread::Builder::new().stack_size(STACK).spawn(move || {
        // A kernel without filters leaves the limits and the empty hands of this process; that still holds a parser.
        let _ = walls::shut();
        let (ask, bytes) = wire::split::<Ask>(&all).ok_or_else(|| io::Error::other("not a question"))?;
        Ok::<_, io::Error>(parse(&ask, bytes))
    })?;
    let (answer, bytes) = match parser.join() {
        Ok(parsed) => parsed?,
        Err(_) => refused("it is damaged in a way that the parser does not understand"),
    };
    wire::send(io::stdout().lock(), &answer, &bytes)
}

fn parse(ask: &Ask, bytes: &[u8]) -> Parsed {
    match ask {
        Ask::Pdf { pages } => pdf::text(bytes, *pages),
        Ask::Picture => picture::fit(bytes),
        Ask::Page { url, style, part } => Ok(page(bytes, url, *style, *part)),
    }
    .unwrap_or_else(refused)
}

fn page(bytes: &[u8], url: &str, style: Style, part: Part) -> Parsed {
    let page = html::page(&String::from_utf8_lossy(bytes), url, style, part);
    (Answer::Page { title: page.title, article: page.article, notes: page.notes }, page.text.into_bytes())
}

fn refused(why: impl Into<String>) -> Parsed {
    (Answer::Refused(why.into()), Vec::new())
}
