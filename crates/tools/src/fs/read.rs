//! `read`: a text file a page at a time, a picture, a notebook, or pages of a PDF.

mod known;
mod page;
mod scan;

use std::{fmt, num::NonZeroU64, ops::RangeInclusive, str::FromStr};

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileFault, Reply, Result, SafePath, Tool,
    ports::{Picture, Span},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;

pub use self::page::{CutBy, Page, Total};
use super::{Notebook, explain, size, text};

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;
/// The largest picture, notebook or PDF that is taken in whole.
const WHOLE: u64 = 64 << 20;
/// The most pages of a PDF at once.
const PAGES: u32 = 20;

/// Reads a file. Text comes back as numbered lines, a long file in pages; pictures, notebooks and PDF files are shown.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// File to read.
    pub path: String,
    /// First line of the page, counted from 1.
    #[serde(default = "first")]
    pub start: NonZeroU64,
    /// Most lines to return.
    pub limit: Option<usize>,
    /// Most characters of a line; what is longer is cut and marked.
    pub max_line: Option<usize>,
    /// Most bytes of text to return, in whole lines.
    pub max_bytes: Option<usize>,
    /// Pages of a PDF, such as `3` or `1-5`; at most 20 at once.
    pub pages: Option<PageRange>,
}

fn first() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl Read {
    /// A file from its beginning.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), start: first(), limit: None, max_line: None, max_bytes: None, pages: None }
    }

    /// The same from a line on, counted from 1; 0 is the first line too, as models often mean it.
    #[must_use]
    pub fn from_line(self, line: u64) -> Self {
        Self { start: NonZeroU64::new(line).unwrap_or(NonZeroU64::MIN), ..self }
    }
}

/// Pages of a PDF, counted from 1: `3`, `1-5`, `10-`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct PageRange(RangeInclusive<u32>);

impl FromStr for PageRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::failed(format!("`{text}` is no range of pages; write `3` or `1-5`"));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|it| *it > 0).ok_or_else(bad);
        let (from, to) = match text.trim().split_once('-') {
            None => (number(text)?, number(text)?),
            Some((from, to)) if to.trim().is_empty() => (number(from)?, number(from)?.saturating_add(PAGES - 1)),
            Some((from, to)) => (number(from)?, number(to)?),
        };
        if from > to {
            return Err(bad());
        }
        if to - from >= PAGES {
            let last = from + PAGES - 1;
            return Err(Error::failed(format!(
                "{from}-{to} is {} pages; at most {PAGES} can be read at once, such as {from}-{last}",
                to - from + 1
            )));
        }
        Ok(Self(from..=to))
    }
}

impl TryFrom<String> for PageRange {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadOut {
    /// Lines of text.
    Text(Page),
    /// A picture.
    Picture(Seen),
    /// A notebook.
    Notebook(Notebook),
    /// Pages of a PDF.
    Pdf(PdfText),
}

/// A picture that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The file, as the model knows it.
    pub path: String,
    /// The picture, as the model gets it.
    pub picture: Picture,
    /// Bytes of the file.
    pub size: u64,
}

/// Pages of a PDF that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdfText {
    /// The file, as the model knows it.
    pub path: String,
    /// Number and text of each page.
    pub pages: Vec<(u32, String)>,
    /// How many pages there are in all.
    pub total: u32,
    /// Bytes of the file.
    pub size: u64,
}

impl Tool for Read {
    const NAME: &'static str = "read";
    const EFFECTS: Effects = Effects::READS;
    type Output = ReadOut;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<ReadOut> {
        let path = call.readable(&self.path)?;
        if self.pages.is_none()
            && let Some(page) = scan::known_page(call, &path, &self).await?
        {
            return Ok(ReadOut::Text(with_long_line(call, &path, page).await?));
        }
        let head = match call.host().read(&path, Span::first(CHUNK)).await {
            Ok(head) => head,
            Err(error) => return Err(explain(call, &path, error).await),
        };
        if text::is_picture(&head.bytes) {
            return self.picture(call, &path).await;
        }
        if text::is_pdf(&head.bytes) {
            return self.pdf(call, &path).await;
        }
        if let Some(pages) = &self.pages {
            return Err(Error::failed(format!("{path} is not a PDF file; it has lines, not pages ({pages})")));
        }
        if path.relative().extension().is_some_and(|it| it.eq_ignore_ascii_case("ipynb"))
            && head.size <= super::notebook::LIMIT
            && let Ok(notebook) = Notebook::parse(&path.to_string(), &whole(call, &path).await?.bytes)
        {
            return Ok(ReadOut::Notebook(notebook));
        }
        let format = text::detect(&head.bytes, head.size <= CHUNK)
            .map_err(|what| Error::file(&path, FileFault::Binary(format!("{what}, {}", size(head.size)))))?;
        let page = scan::page(call, &path, &self, format, head).await?;
        Ok(ReadOut::Text(with_long_line(call, &path, page).await?))
    }
}

impl Read {
    async fn picture(&self, call: &Call, path: &SafePath) -> Result<ReadOut> {
        let file = whole(call, path).await?;
        let picture = call.documents().picture(call, file.bytes).await?;
        Ok(ReadOut::Picture(Seen { path: path.to_string(), picture, size: file.size }))
    }

    async fn pdf(&self, call: &Call, path: &SafePath) -> Result<ReadOut> {
        let file = whole(call, path).await?;
        let wanted = self.pages.as_ref().map(|it| it.0.clone());
        let mut read = call.documents().pdf(call, file.bytes.clone(), wanted.clone()).await?;
        // A range past the end is clamped to the document: its last page.
        if read.pages.is_empty() && read.total > 0 && wanted.is_some_and(|it| *it.start() > read.total) {
            read = call.documents().pdf(call, file.bytes, Some(read.total..=read.total)).await?;
        }
        Ok(ReadOut::Pdf(PdfText { path: path.to_string(), pages: read.pages, total: read.total, size: file.size }))
    }
}

/// The page with its long line in full, where it has one and the file is not too large.
async fn with_long_line(call: &Call, path: &SafePath, mut page: Page) -> Result<Page> {
    let Some(line) = page.long.filter(|_| page.size <= WHOLE) else { return Ok(page) };
    let file = whole(call, path).await?;
    let Ok(format) = text::detect(&file.bytes, true) else { return Ok(page) };
    let text = text::decode(file.bytes.get(format.bom..).unwrap_or_default(), format.charset);
    let end = if text.contains('\n') { '\n' } else { '\r' };
    page.folded = text.split(end).nth(line as usize - 1).map(fold);
    Ok(page)
}

/// A line in pieces of a fixed number of characters.
fn fold(line: &str) -> String {
    let mut folded = String::with_capacity(line.len() + line.len() / page::FOLDED + 1);
    for (at, it) in line.trim_end_matches('\r').chars().enumerate() {
        if at > 0 && at.is_multiple_of(page::FOLDED) {
            folded.push('\n');
        }
        folded.push(it);
    }
    folded
}

/// All of a file that is not too large.
async fn whole(call: &Call, path: &SafePath) -> Result<helve_contract::ports::Chunk> {
    let file = call.host().read(path, Span::first(WHOLE)).await?;
    if file.size > WHOLE {
        return Err(Error::file(path, FileFault::TooLarge { bytes: file.size, limit: WHOLE }));
    }
    Ok(file)
}

impl Seen {
    /// The picture in a few words: its type and measures.
    #[must_use]
    pub fn words(&self) -> String {
        let ((width, height), shown) = (self.picture.original, self.picture.shown);
        let scaled =
            if shown == (width, height) { String::new() } else { format!(", shown at {}x{}", shown.0, shown.1) };
        format!("{}: {}, {width}x{height}{scaled}, {}", self.path, self.picture.media.mime, size(self.size))
    }
}

impl PdfText {
    /// The pages under their numbers. When there are more, `hint` says how to ask for the pages from `n` on.
    #[must_use]
    pub fn words(&self, hint: fn(n: u32) -> String) -> String {
        let mut text = String::new();
        for (number, page) in &self.pages {
            text += &format!("[page {number} of {}]\n{}\n", self.total, page.trim_end());
        }
        let last = self.pages.last().map_or(0, |(number, _)| *number);
        if self.pages.is_empty() {
            text += &format!("{} has no pages", self.path);
        } else if last < self.total {
            let more = self.total - last;
            text += &format!("[{more} more page{}; go on with {}]\n", if more == 1 { "" } else { "s" }, hint(last + 1));
        }
        text
    }
}

impl From<ReadOut> for Reply {
    fn from(out: ReadOut) -> Self {
        match out {
            ReadOut::Text(page) => Self { saved: page.saved(), ..page.numbered(|line| format!("start={line}")).into() },
            ReadOut::Picture(seen) => seen.into(),
            ReadOut::Notebook(notebook) => notebook.words().into(),
            ReadOut::Pdf(pdf) => pdf.words(|page| format!("pages={page}-")).into(),
        }
    }
}

impl From<Seen> for Reply {
    fn from(seen: Seen) -> Self {
        Self { text: seen.words(), media: vec![seen.picture.media], ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Data, Memory, call, call_on, run, says};

    #[tokio::test]
    async fn numbers_the_lines() {
        let (reply, _) = call::<Read>(&[("a.txt", "one\n\ttwo\r\n\nlast")], r#"{"path": "a.txt"}"#).await;
        says(&reply, "     1\tone\n     2\t\ttwo\n     3\t\n     4\tlast\n");
    }

    #[tokio::test]
    async fn says_where_to_go_on() {
        let files = [("a.txt", "one\ntwo\nthree\n")];
        let (reply, _) = call::<Read>(&files, r#"{"path": "a.txt", "start": 2, "limit": 1}"#).await;
        says(&reply, "     2\ttwo\n[lines 2-2 of 3; go on with start=3]\n");
        let (reply, _) = call::<Read>(&files, r#"{"path": "a.txt", "max_bytes": 9}"#).await;
        says(&reply, "     1\tone\n     2\ttwo\n[lines 1-2 of 3; go on with start=3]\n");
    }

    #[tokio::test]
    async fn says_how_long_the_file_is_when_asked_for_more() {
        let files = [("a.txt", "one\ntwo\n"), ("e.txt", "")];
        let (reply, _) = call::<Read>(&files, r#"{"path": "a.txt", "start": 3}"#).await;
        says(&reply, "a.txt has 2 lines; line 3 is past its end");
        let (reply, _) = call::<Read>(&files, r#"{"path": "e.txt"}"#).await;
        says(&reply, "[e.txt is empty]\n");
        let (reply, _) = call::<Read>(&files, r#"{"path": "e.txt", "start": 9}"#).await;
        says(&reply, "e.txt is empty; line 9 is past its end");
    }

    #[tokio::test]
    async fn cuts_long_lines_and_says_how_long_they_are() {
        let (reply, _) = call::<Read>(&[("a.txt", "éééééé\nshort\n")], r#"{"path": "a.txt", "max_line": 5}"#).await;
        says(&reply, "     1\tééééé… [cut: the line has 12 bytes]\n     2\tshort\n");
    }

    #[tokio::test]
    async fn a_line_longer_than_a_page_is_saved_in_full() {
        let line = "0123456789".repeat(250);
        let file = format!("first\n{line}\r\nlast\n");
        let files = [("a.txt", file.as_str())];
        let (reply, _) = call::<Read>(&files, r#"{"path": "a.txt", "start": 2, "max_bytes": 100}"#).await;
        let saved = reply.saved.unwrap();
        assert_eq!(saved.what, "line 2 in full, folded at 1000 characters");
        assert_eq!(saved.text.lines().map(str::len).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert_eq!(saved.text.replace('\n', ""), line);
        let (reply, _) = call::<Read>(&files, r#"{"path": "a.txt"}"#).await;
        assert_eq!(reply.saved, None);
    }

    #[tokio::test]
    async fn tells_the_encoding() {
        let memory = Memory::of("a.txt", *b"caf\xe9\nna\xefve\n");
        says(
            &call_on::<Read>(&memory, r#"{"path": "a.txt"}"#).await,
            "     1\tcafé\n     2\tnaïve\n[encoding: Windows-1252 (Latin-1) (guessed)]\n",
        );
        let memory = Memory::of("a.txt", *b"\xff\xfeo\0n\0e\0\r\0\n\0\xe9\0");
        says(
            &call_on::<Read>(&memory, r#"{"path": "a.txt"}"#).await,
            "     1\tone\n     2\té\n[encoding: UTF-16 LE with BOM]\n",
        );
    }

    #[tokio::test]
    async fn refuses_binary_and_says_what_it_is() {
        let memory = Memory::of("a.out", *b"\x7fELF\x02\x01\0\0");
        says(
            &call_on::<Read>(&memory, r#"{"path": "a.out"}"#).await,
            "a.out: binary file (ELF program or library, 8B), not text",
        );
        memory.put("hole", Data::Repeated(vec![0], 10 << 30));
        says(
            &call_on::<Read>(&memory, r#"{"path": "hole"}"#).await,
            "hole: binary file (data with a NUL byte at 0, 10GB), not text",
        );
        memory.put("pipe", Data::Fifo);
        says(
            &call_on::<Read>(&memory, r#"{"path": "pipe"}"#).await,
            "pipe: not a regular file (a pipe, device or socket); it was not opened",
        );
    }

    #[tokio::test]
    async fn one_line_of_a_gigabyte_is_a_few_letters() {
        let memory = Memory::default();
        memory.put("big", Data::Repeated(b"abcdefgh".to_vec(), 64 << 20));
        says(
            &call_on::<Read>(&memory, r#"{"path": "big", "max_line": 8}"#).await,
            "     1\tabcdefgh… [cut: the line has 67108864 bytes]\n",
        );
        memory.put("huge", Data::Repeated(b"abcdefgh".to_vec(), 1 << 40));
        let reply = call_on::<Read>(&memory, r#"{"path": "huge", "max_line": 8}"#).await;
        assert!(reply.text.starts_with("     1\tabcdefgh… [cut: the line has more than "), "{}", reply.text);
    }

    #[tokio::test]
    async fn counts_millions_of_lines_without_keeping_them() {
        let memory = Memory::default();
        memory.put("log", Data::Repeated(b"line\n".to_vec(), 20_000_000));
        says(&call_on::<Read>(&memory, r#"{"path": "log", "start": 3999999}"#).await, "3999999\tline\n4000000\tline\n");
        says(
            &call_on::<Read>(&memory, r#"{"path": "log", "start": 4000001}"#).await,
            "log has 4000000 lines; line 4000001 is past its end",
        );
        memory.put("log", Data::Repeated(b"line\n".to_vec(), 1 << 40));
        let reply = call_on::<Read>(&memory, r#"{"path": "log", "limit": 1}"#).await;
        assert!(reply.text.starts_with("     1\tline\n[lines 1-1 of more than "), "{}", reply.text);
    }

    #[tokio::test]
    async fn a_page_is_never_of_two_files() {
        let memory = Memory::of("f", "old\n".repeat(500_000));
        memory.meddle("f", "new\n".repeat(500_001));
        says(
            &call_on::<Read>(&memory, r#"{"path": "f", "start": 1, "limit": 1}"#).await,
            "     1\tnew\n[lines 1-1 of 500001; go on with start=2]\n",
        );
    }

    #[tokio::test]
    async fn a_late_bad_byte_is_told_too() {
        let mut file = "abcdefg\n".repeat(140_000).into_bytes();
        file.extend(b"caf\xe9!\n");
        says(
            &call_on::<Read>(&Memory::of("f", file), r#"{"path": "f", "start": 140001}"#).await,
            "140001\tcaf\u{fffd}!\n[encoding: UTF-8, with bytes that are not, shown as \u{fffd}]\n",
        );
    }

    #[tokio::test]
    async fn shows_pictures_and_pages() {
        let memory = Memory::of("a.png", *b"\x89PNG\r\n\x1a\n....");
        let reply = call_on::<Read>(&memory, r#"{"path": "a.png"}"#).await;
        says(&reply, "a.png: image/png, 640x480, shown at 320x240, 12B");
        assert_eq!(reply.media.len(), 1);

        let memory = Memory::of("a.pdf", *b"%PDF-1.7 \x80");
        says(
            &call_on::<Read>(&memory, r#"{"path": "a.pdf", "pages": "2"}"#).await,
            "[page 2 of 3]\ntext of page 2\n[1 more page; go on with pages=3-]\n",
        );
        for past in ["3-9", "7-9"] {
            let reply = call_on::<Read>(&memory, &format!(r#"{{"path": "a.pdf", "pages": "{past}"}}"#)).await;
            says(&reply, "[page 3 of 3]\ntext of page 3\n");
        }
    }

    #[test]
    fn understands_ranges_of_pages() {
        let seen = |text: &str| text.parse::<PageRange>().map_or_else(|it| it.to_string(), |it| it.to_string());
        assert_eq!(seen("3"), "3-3");
        assert_eq!(seen(" 1 - 5 "), "1-5");
        assert_eq!(seen("10-"), "10-29");
        for bad in ["0", "5-1", "a", "", "-", "1-2-3", "99999999999"] {
            assert_eq!(seen(bad), format!("`{bad}` is no range of pages; write `3` or `1-5`"));
        }
        assert_eq!(seen("1-21"), "1-21 is 21 pages; at most 20 can be read at once, such as 1-20");
    }

    #[tokio::test]
    async fn goes_nowhere_else() {
        let (reply, _) = call::<Read>(&[("src/a", "")], r#"{"path": "../etc/passwd"}"#).await;
        says(&reply, "../etc/passwd is outside the workspace; paths must be beneath /w");
        let (reply, _) = call::<Read>(&[("src/a", "")], r#"{"path": "src"}"#).await;
        says(&reply, "src: this is a folder, not a file; list it instead");
        let memory = Memory::default();
        memory.put("a", Data::Link("b".into()));
        memory.put("b", Data::Link("a".into()));
        says(&call_on::<Read>(&memory, r#"{"path": "a"}"#).await, "a: too many symbolic links on the way to it");
    }

    #[tokio::test]
    async fn gives_exact_text_to_who_wants_it() {
        for text in ["a\r\nb\r\n", "a\nb", "a\rb\r", "\n", "a\r\nb\nc", "\u{1}\u{1b}[2J\n"] {
            let ReadOut::Text(page) = run(&Memory::of("f", text), Read::new("f")).await.unwrap() else {
                panic!("text is text")
            };
            assert_eq!(page.exact(), text);
        }
    }
}
