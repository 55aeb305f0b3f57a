//! `read`: reads a page of a text file, an image, a notebook, or PDF pages.

mod known;
mod page;
mod scan;

use std::{fmt, num::NonZeroU64, ops::RangeInclusive, str::FromStr};

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, SafePath, Tool,
    ports::{Image, Span},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;

pub use self::page::{PageLimit, TextPage, TotalLines};
use super::{Notebook, format_size, text, with_suggestions};

/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// The largest image, notebook or PDF that is taken in whole.
const MAX_WHOLE_BYTES: u64 = 64 << 20;
/// The most pages of a PDF at once.
const MAX_PDF_PAGES: u32 = 20;

/// Reads a file. Text comes back as numbered lines, a long file in pages; pictures, notebooks and PDF files are shown.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTool {
    /// File to read.
    pub path: String,
    /// First line of the page, counted from 1.
    #[serde(default = "default_start")]
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

fn default_start() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl ReadTool {
    /// A file from its beginning.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), start: default_start(), limit: None, max_line: None, max_bytes: None, pages: None }
    }

    /// Starts at a line, counted from 1; 0 also means the first line.
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
            Some((from, to)) if to.trim().is_empty() => {
                (number(from)?, number(from)?.saturating_add(MAX_PDF_PAGES - 1))
            }
            Some((from, to)) => (number(from)?, number(to)?),
        };
        if from > to {
            return Err(bad());
        }
        if to - from >= MAX_PDF_PAGES {
            let last = from + MAX_PDF_PAGES - 1;
            return Err(Error::failed(format!(
                "{from}-{to} is {} pages; at most {MAX_PDF_PAGES} can be read at once, such as {from}-{last}",
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

/// The content that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadOutput {
    /// Lines of text.
    Text(TextPage),
    /// An image.
    Image(ReadImage),
    /// A notebook.
    Notebook(Notebook),
    /// Pages of a PDF.
    Pdf(PdfText),
}

/// An image that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadImage {
    /// The file, as the model knows it.
    pub path: String,
    /// The image, as the model gets it.
    pub picture: Image,
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

impl Tool for ReadTool {
    const NAME: &'static str = "read";
    const EFFECTS: Effects = Effects::READS;
    type Output = ReadOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::reads([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<ReadOutput> {
        let path = call.check_read(&self.path)?;
        if self.pages.is_none()
            && let Some(page) = scan::read_indexed_page(call, &path, &self).await?
        {
            return Ok(ReadOutput::Text(with_long_line(call, &path, page).await?));
        }
        let head = match call.host().read(&path, Span::first(CHUNK_BYTES)).await {
            Ok(head) => head,
            Err(error) => return Err(with_suggestions(call, &path, error).await),
        };
        if text::is_image(&head.bytes) {
            return self.read_image(call, &path).await;
        }
        if text::is_pdf(&head.bytes) {
            return self.pdf(call, &path).await;
        }
        if let Some(pages) = &self.pages {
            return Err(Error::failed(format!("{path} is not a PDF file; it has lines, not pages ({pages})")));
        }
        if path.relative().extension().is_some_and(|it| it.eq_ignore_ascii_case("ipynb"))
            && head.size <= super::notebook::MAX_NOTEBOOK_BYTES
            && let Ok(notebook) = Notebook::parse(&path.to_string(), &read_whole(call, &path).await?.bytes)
        {
            return Ok(ReadOutput::Notebook(notebook));
        }
        let format = text::detect(&head.bytes, head.size <= CHUNK_BYTES)
            .map_err(|what| Error::file(&path, FileErrorKind::Binary(format!("{what}, {}", format_size(head.size)))))?;
        let page = scan::read_page(call, &path, &self, format, head).await?;
        Ok(ReadOutput::Text(with_long_line(call, &path, page).await?))
    }
}

impl ReadTool {
    async fn read_image(&self, call: &Call, path: &SafePath) -> Result<ReadOutput> {
        let file = read_whole(call, path).await?;
        let picture = call.documents().image(call, file.bytes).await?;
        Ok(ReadOutput::Image(ReadImage { path: path.to_string(), picture, size: file.size }))
    }

    async fn pdf(&self, call: &Call, path: &SafePath) -> Result<ReadOutput> {
        let file = read_whole(call, path).await?;
        let wanted = self.pages.as_ref().map(|it| it.0.clone());
        let mut read = call.documents().pdf(call, file.bytes.clone(), wanted.clone()).await?;
        // A range past the end is clamped to the last page.
        if read.pages.is_empty() && read.total > 0 && wanted.is_some_and(|it| *it.start() > read.total) {
            read = call.documents().pdf(call, file.bytes, Some(read.total..=read.total)).await?;
        }
        Ok(ReadOutput::Pdf(PdfText { path: path.to_string(), pages: read.pages, total: read.total, size: file.size }))
    }
}

/// Adds the full text of a long line, if the page has one and the file is not too large.
async fn with_long_line(call: &Call, path: &SafePath, mut page: TextPage) -> Result<TextPage> {
    let Some(line) = page.long.filter(|_| page.size <= MAX_WHOLE_BYTES) else { return Ok(page) };
    let file = read_whole(call, path).await?;
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
async fn read_whole(call: &Call, path: &SafePath) -> Result<helve_contract::ports::FileChunk> {
    let file = call.host().read(path, Span::first(MAX_WHOLE_BYTES)).await?;
    if file.size > MAX_WHOLE_BYTES {
        return Err(Error::file(path, FileErrorKind::TooLarge { bytes: file.size, limit: MAX_WHOLE_BYTES }));
    }
    Ok(file)
}

impl ReadImage {
    /// The image in a few words: its type and measures.
    #[must_use]
    pub fn summary(&self) -> String {
        let ((width, height), shown) = (self.picture.original_size, self.picture.size);
        let scaled =
            if shown == (width, height) { String::new() } else { format!(", shown at {}x{}", shown.0, shown.1) };
        format!("{}: {}, {width}x{height}{scaled}, {}", self.path, self.picture.media.mime, format_size(self.size))
    }
}

impl PdfText {
    /// The pages with their numbers. If there are more, `hint` says how to request the pages from `n` on.
    #[must_use]
    pub fn to_text(&self, hint: fn(n: u32) -> String) -> String {
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

impl From<ReadOutput> for Reply {
    fn from(out: ReadOutput) -> Self {
        match out {
            ReadOutput::Text(page) => {
                Self { saved: page.saved(), ..page.numbered(|line| format!("start={line}")).into() }
            }
            ReadOutput::Image(seen) => seen.into(),
            ReadOutput::Notebook(notebook) => notebook.to_text().into(),
            ReadOutput::Pdf(pdf) => pdf.to_text(|page| format!("pages={page}-")).into(),
        }
    }
}

impl From<ReadImage> for Reply {
    fn from(seen: ReadImage) -> Self {
        Self { text: seen.summary(), media: vec![seen.picture.media], ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeFile, FakeHost, assert_text, call, call_on, run};

    #[tokio::test]
    async fn numbers_the_lines() {
        let (reply, _) = call::<ReadTool>(&[("a.txt", "one\n\ttwo\r\n\nlast")], r#"{"path": "a.txt"}"#).await;
        assert_text(&reply, "     1\tone\n     2\t\ttwo\n     3\t\n     4\tlast\n");
    }

    #[tokio::test]
    async fn says_where_to_go_on() {
        let files = [("a.txt", "one\ntwo\nthree\n")];
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "a.txt", "start": 2, "limit": 1}"#).await;
        assert_text(&reply, "     2\ttwo\n[lines 2-2 of 3; go on with start=3]\n");
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "a.txt", "max_bytes": 9}"#).await;
        assert_text(&reply, "     1\tone\n     2\ttwo\n[lines 1-2 of 3; go on with start=3]\n");
    }

    #[tokio::test]
    async fn says_how_long_the_file_is_when_asked_for_more() {
        let files = [("a.txt", "one\ntwo\n"), ("e.txt", "")];
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "a.txt", "start": 3}"#).await;
        assert_text(&reply, "a.txt has 2 lines; line 3 is past its end");
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "e.txt"}"#).await;
        assert_text(&reply, "[e.txt is empty]\n");
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "e.txt", "start": 9}"#).await;
        assert_text(&reply, "e.txt is empty; line 9 is past its end");
    }

    #[tokio::test]
    async fn cuts_long_lines_and_says_how_long_they_are() {
        let (reply, _) = call::<ReadTool>(&[("a.txt", "éééééé\nshort\n")], r#"{"path": "a.txt", "max_line": 5}"#).await;
        assert_text(&reply, "     1\tééééé… [cut: the line has 12 bytes]\n     2\tshort\n");
    }

    #[tokio::test]
    async fn a_line_longer_than_a_page_is_saved_in_full() {
        let line = "0123456789".repeat(250);
        let file = format!("first\n{line}\r\nlast\n");
        let files = [("a.txt", file.as_str())];
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "a.txt", "start": 2, "max_bytes": 100}"#).await;
        let saved = reply.saved.unwrap();
        assert_eq!(saved.what, "line 2 in full, folded at 1000 characters");
        assert_eq!(saved.text.lines().map(str::len).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert_eq!(saved.text.replace('\n', ""), line);
        let (reply, _) = call::<ReadTool>(&files, r#"{"path": "a.txt"}"#).await;
        assert_eq!(reply.saved, None);
    }

    #[tokio::test]
    async fn tells_the_encoding() {
        let memory = FakeHost::of("a.txt", *b"caf\xe9\nna\xefve\n");
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "a.txt"}"#).await,
            "     1\tcafé\n     2\tnaïve\n[encoding: Windows-1252 (Latin-1) (guessed)]\n",
        );
        let memory = FakeHost::of("a.txt", *b"\xff\xfeo\0n\0e\0\r\0\n\0\xe9\0");
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "a.txt"}"#).await,
            "     1\tone\n     2\té\n[encoding: UTF-16 LE with BOM]\n",
        );
    }

    #[tokio::test]
    async fn refuses_binary_and_says_what_it_is() {
        let memory = FakeHost::of("a.out", *b"\x7fELF\x02\x01\0\0");
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "a.out"}"#).await,
            "a.out: binary file (ELF program or library, 8B), not text",
        );
        memory.put("hole", FakeFile::Repeated(vec![0], 10 << 30));
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "hole"}"#).await,
            "hole: binary file (data with a NUL byte at 0, 10GB), not text",
        );
        memory.put("pipe", FakeFile::Fifo);
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "pipe"}"#).await,
            "pipe: not a regular file (a pipe, device or socket); it was not opened",
        );
    }

    #[tokio::test]
    async fn one_line_of_a_gigabyte_is_a_few_letters() {
        let memory = FakeHost::default();
        memory.put("big", FakeFile::Repeated(b"abcdefgh".to_vec(), 64 << 20));
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "big", "max_line": 8}"#).await,
            "     1\tabcdefgh… [cut: the line has 67108864 bytes]\n",
        );
        memory.put("huge", FakeFile::Repeated(b"abcdefgh".to_vec(), 1 << 40));
        let reply = call_on::<ReadTool>(&memory, r#"{"path": "huge", "max_line": 8}"#).await;
        assert!(reply.text.starts_with("     1\tabcdefgh… [cut: the line has more than "), "{}", reply.text);
    }

    #[tokio::test]
    async fn counts_millions_of_lines_without_keeping_them() {
        let memory = FakeHost::default();
        memory.put("log", FakeFile::Repeated(b"line\n".to_vec(), 20_000_000));
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "log", "start": 3999999}"#).await,
            "3999999\tline\n4000000\tline\n",
        );
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "log", "start": 4000001}"#).await,
            "log has 4000000 lines; line 4000001 is past its end",
        );
        memory.put("log", FakeFile::Repeated(b"line\n".to_vec(), 1 << 40));
        let reply = call_on::<ReadTool>(&memory, r#"{"path": "log", "limit": 1}"#).await;
        assert!(reply.text.starts_with("     1\tline\n[lines 1-1 of more than "), "{}", reply.text);
    }

    #[tokio::test]
    async fn a_page_is_never_of_two_files() {
        let memory = FakeHost::of("f", "old\n".repeat(500_000));
        memory.inject_write("f", "new\n".repeat(500_001));
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "f", "start": 1, "limit": 1}"#).await,
            "     1\tnew\n[lines 1-1 of 500001; go on with start=2]\n",
        );
    }

    #[tokio::test]
    async fn a_late_bad_byte_is_told_too() {
        let mut file = "abcdefg\n".repeat(140_000).into_bytes();
        file.extend(b"caf\xe9!\n");
        assert_text(
            &call_on::<ReadTool>(&FakeHost::of("f", file), r#"{"path": "f", "start": 140001}"#).await,
            "140001\tcaf\u{fffd}!\n[encoding: UTF-8, with bytes that are not, shown as \u{fffd}]\n",
        );
    }

    #[tokio::test]
    async fn shows_pictures_and_pages() {
        let memory = FakeHost::of("a.png", *b"\x89PNG\r\n\x1a\n....");
        let reply = call_on::<ReadTool>(&memory, r#"{"path": "a.png"}"#).await;
        assert_text(&reply, "a.png: image/png, 640x480, shown at 320x240, 12B");
        assert_eq!(reply.media.len(), 1);

        let memory = FakeHost::of("a.pdf", *b"%PDF-1.7 \x80");
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "a.pdf", "pages": "2"}"#).await,
            "[page 2 of 3]\ntext of page 2\n[1 more page; go on with pages=3-]\n",
        );
        for past in ["3-9", "7-9"] {
            let reply = call_on::<ReadTool>(&memory, &format!(r#"{{"path": "a.pdf", "pages": "{past}"}}"#)).await;
            assert_text(&reply, "[page 3 of 3]\ntext of page 3\n");
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
        let (reply, _) = call::<ReadTool>(&[("src/a", "")], r#"{"path": "../etc/passwd"}"#).await;
        assert_text(&reply, "../etc/passwd is outside the workspace; paths must be beneath /w");
        let (reply, _) = call::<ReadTool>(&[("src/a", "")], r#"{"path": "src"}"#).await;
        assert_text(&reply, "src: this is a folder, not a file; list it instead");
        let memory = FakeHost::default();
        memory.put("a", FakeFile::Link("b".into()));
        memory.put("b", FakeFile::Link("a".into()));
        assert_text(
            &call_on::<ReadTool>(&memory, r#"{"path": "a"}"#).await,
            "a: too many symbolic links on the way to it",
        );
    }

    #[tokio::test]
    async fn gives_exact_text_to_who_wants_it() {
        for text in ["a\r\nb\r\n", "a\nb", "a\rb\r", "\n", "a\r\nb\nc", "\u{1}\u{1b}[2J\n"] {
            let ReadOutput::Text(page) = run(&FakeHost::of("f", text), ReadTool::new("f")).await.unwrap() else {
                panic!("text is text")
            };
            assert_eq!(page.to_exact_text(), text);
        }
    }
}
