//! The parent side: starts a child, sends the document, and waits for the answer with a timeout.

use std::{
    ops::RangeInclusive,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context;
use async_trait::async_trait;
use helve_contract::{
    Call, Error, Media, Result,
    ports::{Documents, Image, PdfPages},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    sync::Semaphore,
    time::timeout,
};

use super::wire::{self, MAX_HEAD_BYTES, PARSER_ARG, ParseRequest, ParseResponse};
use crate::html::{HtmlPage, HtmlPart, HtmlTextStyle};

/// The largest document.
const MAX_INPUT_BYTES: usize = 64 << 20;
/// How long a child may take.
const CHILD_TIMEOUT: Duration = Duration::from_secs(15);
/// Children at the same time: each may need a gigabyte.
const MAX_CHILDREN: usize = 3;

/// Reads PDF files and images in restricted child processes.
///
/// The child is this program again, so `main` calls [`run_parser_if_requested`](super::run_parser_if_requested) first.
pub struct DocumentReader {
    program: PathBuf,
    child_slots: Semaphore,
}

impl Default for DocumentReader {
    fn default() -> Self {
        Self::new()
    }
}

impl DocumentReader {
    /// A reader whose child is this program, even if its file was replaced since.
    #[must_use]
    pub fn new() -> Self {
        Self::with_program("/proc/self/exe")
    }

    /// A reader whose child is another program with the parser entry point.
    #[must_use]
    pub fn with_program(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), child_slots: Semaphore::new(MAX_CHILDREN) }
    }

    /// A page of the web as text.
    pub(crate) async fn page(
        &self,
        call: &Call,
        html: &str,
        url: &str,
        style: HtmlTextStyle,
        part: HtmlPart,
    ) -> Result<HtmlPage> {
        let ask = ParseRequest::Page { url: url.to_owned(), style, part };
        match self.parse(call, ask, html.as_bytes()).await? {
            (ParseResponse::Page { title, article, notes }, text) => {
                Ok(HtmlPage { title, text: String::from_utf8_lossy(&text).into_owned(), article, notes })
            }
            (other, _) => Err(anyhow::anyhow!("the parsing child answered {other:?}").into()),
        }
    }

    async fn parse(&self, call: &Call, ask: ParseRequest, bytes: &[u8]) -> Result<(ParseResponse, Vec<u8>)> {
        let what = DocumentLabel::of(&ask);
        if bytes.len() > MAX_INPUT_BYTES {
            let (size, most) = (bytes.len() >> 20, MAX_INPUT_BYTES >> 20);
            return Err(Error::failed(format!("{what} is too large to be read: {size} MiB, and {most} MiB fit")));
        }
        call.check_cancelled()?;

        let asked = async {
            let _turn = self.child_slots.acquire().await.context("no more documents are read")?;
            let mut child = self.start()?;
            let said = timeout(CHILD_TIMEOUT, exchange(&mut child, &ask, bytes)).await;
            // Nothing waits for it any more; this also reaps the process.
            let _ = child.kill().await;
            Ok::<_, anyhow::Error>(said)
        };
        let said = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(Error::Cancelled),
            said = asked => said?,
        };

        let Ok(said) = said else {
            let seconds = CHILD_TIMEOUT.as_secs();
            return Err(Error::failed(format!("{what} could not be read within {seconds} seconds")));
        };
        let (said, status) = said.context("the parsing child")?;
        match wire::split(&said) {
            Some((ParseResponse::Refused(why), _)) => Err(Error::failed(format!("{what} could not be read: {why}"))),
            Some((answer, rest)) => Ok((answer, rest.to_vec())),
            None => Err(Error::failed(format!("{what} could not be read: {}", exit_reason(status)))),
        }
    }

    fn start(&self) -> anyhow::Result<Child> {
        Command::new(&self.program)
            .arg(PARSER_ARG)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("the parsing child does not start")
    }
}

/// Writes the question and the document, reads the answer to its end, and waits for the exit.
async fn exchange(child: &mut Child, ask: &ParseRequest, bytes: &[u8]) -> anyhow::Result<(Vec<u8>, ExitStatus)> {
    let (mut to, from) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
    let head = wire::encode_head(ask)?;
    let write = async move {
        // The exit of a dead child tells more than a broken pipe.
        let _ = to.write_all(&head).await;
        let _ = to.write_all(bytes).await;
    };
    let mut said = Vec::new();
    let mut from = from.take((MAX_HEAD_BYTES + MAX_INPUT_BYTES) as u64);
    let read = from.read_to_end(&mut said);
    let ((), read) = tokio::join!(write, read);
    read?;
    Ok((said, child.wait().await?))
}

fn exit_reason(status: ExitStatus) -> &'static str {
    match status.signal() {
        Some(libc::SIGXCPU | libc::SIGKILL) => "it takes too much computing",
        Some(_) => "it is damaged, or needs more memory or nests deeper than is allowed",
        None => "the parser gave up on it",
    }
}

/// What the document is called in messages.
#[derive(Clone, Copy)]
struct DocumentLabel(&'static str);

impl DocumentLabel {
    fn of(ask: &ParseRequest) -> Self {
        Self(match ask {
            ParseRequest::Pdf { .. } => "the PDF",
            ParseRequest::Picture => "the picture",
            ParseRequest::Page { .. } => "the page",
        })
    }
}

impl std::fmt::Display for DocumentLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

#[async_trait]
impl Documents for DocumentReader {
    async fn pdf(&self, call: &Call, bytes: Vec<u8>, pages: Option<RangeInclusive<u32>>) -> Result<PdfPages> {
        let pages = pages.map(|it| (*it.start(), *it.end()));
        match self.parse(call, ParseRequest::Pdf { pages }, &bytes).await? {
            (ParseResponse::Pdf { pages, total }, _) => Ok(PdfPages { pages, total }),
            (other, _) => Err(anyhow::anyhow!("the parsing child answered {other:?}").into()),
        }
    }

    async fn image(&self, call: &Call, bytes: Vec<u8>) -> Result<Image> {
        match self.parse(call, ParseRequest::Picture, &bytes).await? {
            (ParseResponse::Same { mime, size }, _) => {
                Ok(Image { media: Media { mime, bytes }, original_size: size, size })
            }
            (ParseResponse::Made { mime, original, shown }, made) => {
                Ok(Image { media: Media { mime, bytes: made }, original_size: original, size: shown })
            }
            (other, _) => Err(anyhow::anyhow!("the parsing child answered {other:?}").into()),
        }
    }
}
