//! The way from an address to text.

use std::sync::Arc;

use helve_contract::{
    Call, Error, Result,
    ports::{Documents, Fetch, Fetched, PagePart, PageStyle, Scheme},
};

use super::{
    body::{Body, kind},
    charset::decode,
    visible::visible,
};
use crate::{
    Reader,
    cache::{Cache, Key},
    client::{Client, Limits, Request, Response},
    guard::Target,
    html::{Part, Style},
};

/// The most pages of a PDF that are read at once.
const PDF_PAGES: u32 = 20;
/// How long a host may take to speak TLS before it is asked without, where the address was written so.
const TLS_TRY: std::time::Duration = std::time::Duration::from_secs(6);
const ACCEPT: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,application/pdf;q=0.9,application/json;q=0.9,text/*;q=0.8,*/*;q=0.5";

/// Fetches pages: guarded, bounded, parsed in a limited child, kept for a quarter of an hour.
pub struct Fetcher {
    client: Client,
    reader: Arc<Reader>,
    cache: Cache,
}

impl Fetcher {
    /// A fetcher with this client, whose documents this reader parses.
    pub fn new(client: Client, reader: Arc<Reader>) -> Self {
        Self { client, reader, cache: Cache::default() }
    }

    /// The client that it uses.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Gets a page and turns it into text.
    pub async fn fetch(&self, call: &Call, wanted: &Fetch) -> Result<Fetched> {
        let target = Target::parse(&wanted.url)?;
        let key = Key::of(target.url().as_str(), wanted);
        if let Some(page) = self.cache.get(&key, call.now()) {
            return Ok(page);
        }
        let (response, note) = self.get(call, target, wanted).await?;
        let keep = response.is_success() && !response.header("cache-control").is_some_and(|it| it.contains("no-store"));
        let mut page = self.page(call, response, wanted).await?;
        page.notes.extend(note);
        if keep {
            self.cache.put(key, &page, call.now());
        }
        Ok(page)
    }

    /// Asks over TLS first where that is wanted; a host that does not speak it is asked as the address was written.
    async fn get(&self, call: &Call, target: Target, wanted: &Fetch) -> Result<(Response, Option<String>)> {
        let limits = Limits { total: wanted.timeout, ..Limits::default() };
        let request = |limits| Request::get("").header("Accept", ACCEPT).redirects(wanted.redirects).limits(limits);
        let secure = if wanted.scheme == Scheme::SecureFirst { target.upgraded() } else { None };
        if let Some(secure) = secure {
            let limits = Limits { first_byte: TLS_TRY, ..limits };
            match self.send(call, secure, request(limits)).await {
                // Only what keeps TLS from being spoken leads back; a refusal and a late page do not.
                Err(Error::Failed(_)) => {}
                other => return Ok((other?, None)),
            }
            let note = "the host was asked without encryption, because it offers none".to_owned();
            return Ok((self.send(call, target, request(limits)).await?, Some(note)));
        }
        Ok((self.send(call, target, request(limits)).await?, None))
    }

    async fn send(&self, call: &Call, target: Target, request: Request) -> Result<Response> {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Err(Error::Cancelled),
            answer = self.client.send_to(target, request) => answer,
        }
    }

    /// What came, as text.
    async fn page(&self, call: &Call, response: Response, wanted: &Fetch) -> Result<Fetched> {
        let header = response.header("content-type").map(str::to_owned);
        let (body, mime) = kind(header.as_deref(), &response.body);
        let Response { url, moved_to, status, reason, body: bytes, cut, mut notes, .. } = response;
        let size = bytes.len() as u64;
        if cut {
            notes.push(format!("the answer was cut after {size} bytes"));
        }
        let mut page = Fetched { url, moved_to, status, reason, mime, bytes: size, notes, ..Fetched::default() };
        if page.moved_to.is_some() || bytes.is_empty() {
            return Ok(page);
        }
        match body {
            Body::Html if wanted.style != PageStyle::Source => {
                self.html(call, &bytes, header.as_deref(), wanted, &mut page).await?;
            }
            Body::Html | Body::Plain => {
                let (text, charset) = decode(&bytes, header.as_deref());
                page.text = text;
                page.notes.extend(charset.map(|it| format!("read as {it}")));
            }
            Body::Pdf => self.pdf(call, bytes, &mut page).await?,
            Body::Picture => {
                let picture = self.reader.picture(call, bytes).await?;
                let (width, height) = picture.original;
                page.notes.push(format!("a picture of {width} × {height} pixels"));
                page.media = Some(picture.media);
            }
            Body::Binary => page.notes.push(format!("{} is not text; only what is known about it is given", page.mime)),
        }
        let (text, hidden) = visible(std::mem::take(&mut page.text));
        page.text = text;
        if hidden > 0 {
            page.notes.push(format!("{hidden} invisible characters were taken out"));
        }
        page.title = page.title.map(|it| visible(it).0).filter(|it| !it.is_empty());
        Ok(page)
    }

    async fn html(
        &self,
        call: &Call,
        bytes: &[u8],
        header: Option<&str>,
        wanted: &Fetch,
        page: &mut Fetched,
    ) -> Result<()> {
        let (text, charset) = decode(bytes, header);
        page.notes.extend(charset.map(|it| format!("read as {it}")));
        let style = if wanted.style == PageStyle::Text { Style::Text } else { Style::Markdown };
        // A page that says that something is wrong has no article.
        let whole = wanted.part == PagePart::Whole || !(200..300).contains(&page.status);
        let part = if whole { Part::Whole } else { Part::Main };
        let read = self.reader.page(call, &text, &page.url, style, part).await?;
        page.title = Some(read.title).filter(|it| !it.is_empty());
        page.text = read.text;
        page.article = read.article;
        page.notes.extend(read.notes);
        Ok(())
    }

    async fn pdf(&self, call: &Call, bytes: Vec<u8>, page: &mut Fetched) -> Result<()> {
        let read = self.reader.pdf(call, bytes, Some(1..=PDF_PAGES)).await?;
        let total = read.total;
        for (number, text) in &read.pages {
            page.text += &format!("--- page {number} of {total} ---\n\n{}\n\n", text.trim());
        }
        page.text.truncate(page.text.trim_end().len());
        if total > PDF_PAGES {
            page.notes.push(format!(
                "the PDF has {total} pages, and the first {PDF_PAGES} are shown; download it to read on"
            ));
        }
        Ok(())
    }
}
