//! The parser child: reads the document, parses it in its sandbox, answers.

use std::{io, panic, process, thread};

use super::{
    pdf, picture, walls,
    wire::{self, PARSER_ARG, ParseRequest, ParseResponse},
};
use crate::html::{self, HtmlPart, HtmlTextStyle};

/// The parser's stack. Documents nest; the crates below have limits of their own, which fit into this.
const STACK_BYTES: usize = 64 << 20;
/// More than a parent ever sends.
const MAX_INPUT_BYTES: u64 = 80 << 20;

/// Runs the parser of one document if this process was started as one, and then never returns.
///
/// A program that creates a [`DocumentReader`](super::DocumentReader) calls this first in `main`, before it opens
/// anything.
pub fn run_parser_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|it| it == PARSER_ARG) {
        process::exit(i32::from(run().is_err()));
    }
}

/// What a parser says: an answer and the bytes that follow it.
pub(super) type ParserOutput = (ParseResponse, Vec<u8>);

fn run() -> io::Result<()> {
    walls::apply_rlimits()?;
    // A parser panic becomes an error in the answer; its message is not printed.
    panic::set_hook(Box::new(|_| {}));
    let all = wire::read_all(io::stdin().lock(), MAX_INPUT_BYTES)?;
    let parser = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        // Without seccomp the resource limits still apply, and this process holds nothing of value.
        let _ = walls::install_seccomp();
        let (ask, bytes) = wire::split::<ParseRequest>(&all).ok_or_else(|| io::Error::other("not a question"))?;
        Ok::<_, io::Error>(parse(&ask, bytes))
    })?;
    let (answer, bytes) = match parser.join() {
        Ok(parsed) => parsed?,
        Err(_) => refuse("it is damaged in a way that the parser does not understand"),
    };
    wire::send(io::stdout().lock(), &answer, &bytes)
}

fn parse(ask: &ParseRequest, bytes: &[u8]) -> ParserOutput {
    match ask {
        ParseRequest::Pdf { pages } => pdf::text(bytes, *pages),
        ParseRequest::Picture => picture::fit_for_model(bytes),
        ParseRequest::Page { url, style, part } => Ok(page(bytes, url, *style, *part)),
    }
    .unwrap_or_else(refuse)
}

fn page(bytes: &[u8], url: &str, style: HtmlTextStyle, part: HtmlPart) -> ParserOutput {
    let page = html::render_page(&String::from_utf8_lossy(bytes), url, style, part);
    (ParseResponse::Page { title: page.title, article: page.article, notes: page.notes }, page.text.into_bytes())
}

fn refuse(why: impl Into<String>) -> ParserOutput {
    (ParseResponse::Refused(why.into()), Vec::new())
}
