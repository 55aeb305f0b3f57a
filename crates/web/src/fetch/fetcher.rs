//! Fetches a URL and converts it to text.

use std::sync::Arc;

use helve_contract::{
    Call, Error, Result,
    ports::{Documents, FetchRequest, FetchResponse, PageFormat, PageScope, SchemePolicy},
};

use super::{
    body::{BodyKind, classify},
    charset::decode,
    visible::strip_invisible,
};
use crate::{
    DocumentReader,
    cache::{CacheKey, PageCache},
    client::{GuardedClient, HttpLimits, HttpRequest, HttpResponse},
    guard::Target,
    html::{HtmlPart, HtmlTextStyle},
};

/// The most pages of a PDF that are read at once.
const MAX_PDF_PAGES: u32 = 20;
/// The timeout for TLS before the fallback to plain HTTP, for an `http` URL.
const HTTPS_FIRST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(6);
const ACCEPT: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,application/pdf;q=0.9,application/json;q=0.9,text/*;q=0.8,*/*;q=0.5";

/// Fetches pages: guarded, bounded, parsed in a restricted child, cached for 15 minutes.
pub struct PageFetcher {
    client: GuardedClient,
    reader: Arc<DocumentReader>,
    cache: PageCache,
}

impl PageFetcher {
    /// A fetcher with this client, whose documents this reader parses.
    pub fn new(client: GuardedClient, reader: Arc<DocumentReader>) -> Self {
        Self { client, reader, cache: PageCache::default() }
    }

    /// The client that it uses.
    pub fn client(&self) -> &GuardedClient {
        &self.client
    }

    /// Gets a page and turns it into text.
    pub async fn fetch(&self, call: &Call, wanted: &FetchRequest) -> Result<FetchResponse> {
        let target = Target::parse(&wanted.url)?;
        let key = CacheKey::new(target.url().as_str(), wanted);
        if let Some(page) = self.cache.get(&key, call.now()) {
            return Ok(page);
        }
        let (response, note) = self.get_https_first(call, target, wanted).await?;
        let keep = response.is_success() && !response.header("cache-control").is_some_and(|it| it.contains("no-store"));
        let mut page = self.page(call, response, wanted).await?;
        page.notes.extend(note);
        if keep {
            self.cache.put(key, &page, call.now());
        }
        Ok(page)
    }

    /// Tries TLS first if requested; a host without TLS gets the original URL.
    async fn get_https_first(
        &self,
        call: &Call,
        target: Target,
        wanted: &FetchRequest,
    ) -> Result<(HttpResponse, Option<String>)> {
        let limits = HttpLimits { total_timeout: wanted.timeout, ..HttpLimits::default() };
        let request = |limits| HttpRequest::get("").header("Accept", ACCEPT).redirects(wanted.redirects).limits(limits);
        let secure = if wanted.scheme == SchemePolicy::HttpsFirst { target.to_https() } else { None };
        if let Some(secure) = secure {
            let limits = HttpLimits { first_byte_timeout: HTTPS_FIRST_TIMEOUT, ..limits };
            match self.send(call, secure, request(limits)).await {
                // Only a TLS failure leads to the fallback; a denial or a late page does not.
                Err(Error::Failed(_)) => {}
                other => return Ok((other?, None)),
            }
            let note = "the host was asked without encryption, because it offers none".to_owned();
            return Ok((self.send(call, target, request(limits)).await?, Some(note)));
        }
        Ok((self.send(call, target, request(limits)).await?, None))
    }

    async fn send(&self, call: &Call, target: Target, request: HttpRequest) -> Result<HttpResponse> {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Err(Error::Cancelled),
            answer = self.client.send_to(target, request) => answer,
        }
    }

    /// What came, as text.
    async fn page(&self, call: &Call, response: HttpResponse, wanted: &FetchRequest) -> Result<FetchResponse> {
        let header = response.header("content-type").map(str::to_owned);
        let (body, mime) = classify(header.as_deref(), &response.body);
        let HttpResponse { url, moved_to, status, reason, body: bytes, truncated: cut, mut notes, .. } = response;
        let size = bytes.len() as u64;
        if cut {
            notes.push(format!("the answer was cut after {size} bytes"));
        }
        let mut page = FetchResponse {
            url,
            redirect_to: moved_to,
            status,
            reason,
            mime,
            bytes: size,
            notes,
            ..FetchResponse::default()
        };
        if page.redirect_to.is_some() || bytes.is_empty() {
            return Ok(page);
        }
        match body {
            BodyKind::Html if wanted.format != PageFormat::Source => {
                self.html(call, &bytes, header.as_deref(), wanted, &mut page).await?;
            }
            BodyKind::Html | BodyKind::Plain => {
                let (text, charset) = decode(&bytes, header.as_deref());
                page.text = text;
                page.notes.extend(charset.map(|it| format!("read as {it}")));
            }
            BodyKind::Pdf => self.pdf(call, bytes, &mut page).await?,
            BodyKind::Image => {
                let picture = self.reader.image(call, bytes).await?;
                let (width, height) = picture.original_size;
                page.notes.push(format!("a picture of {width} × {height} pixels"));
                page.media = Some(picture.media);
            }
            BodyKind::Binary => {
                page.notes.push(format!("{} is not text; only what is known about it is given", page.mime));
            }
        }
        let (text, hidden) = strip_invisible(std::mem::take(&mut page.text));
        page.text = text;
        if hidden > 0 {
            page.notes.push(format!("{hidden} invisible characters were taken out"));
        }
        page.title = page.title.map(|it| strip_invisible(it).0).filter(|it| !it.is_empty());
        Ok(page)
    }

    async fn html(
        &self,
        call: &Call,
        bytes: &[u8],
        header: Option<&str>,
        wanted: &FetchRequest,
        page: &mut FetchResponse,
    ) -> Result<()> {
        let (text, charset) = decode(bytes, header);
        page.notes.extend(charset.map(|it| format!("read as {it}")));
        let style = if wanted.format == PageFormat::Text { HtmlTextStyle::Text } else { HtmlTextStyle::Markdown };
        // An error page has no article.
        let whole = wanted.scope == PageScope::Whole || !(200..300).contains(&page.status);
        let part = if whole { HtmlPart::Whole } else { HtmlPart::Main };
        let read = self.reader.page(call, &text, &page.url, style, part).await?;
        page.title = Some(read.title).filter(|it| !it.is_empty());
        page.text = read.text;
        page.is_article_only = read.article;
        page.notes.extend(read.notes);
        Ok(())
    }

    async fn pdf(&self, call: &Call, bytes: Vec<u8>, page: &mut FetchResponse) -> Result<()> {
        let read = self.reader.pdf(call, bytes, Some(1..=MAX_PDF_PAGES)).await?;
        let total = read.total;
        for (number, text) in &read.pages {
            page.text += &format!("--- page {number} of {total} ---\n\n{}\n\n", text.trim());
        }
        page.text.truncate(page.text.trim_end().len());
        if total > MAX_PDF_PAGES {
            page.notes.push(format!(
                "the PDF has {total} pages, and the first {MAX_PDF_PAGES} are shown; download it to read on"
            ));
        }
        Ok(())
    }
}
