//! Requests to services that the operator chose, and what comes back.

use std::time::Duration;

use helve_contract::{Call, Error, Result, ports::RedirectPolicy};
use serde_json::Value;
use url::Url;

use crate::{
    client::{GuardedClient, HttpLimits, HttpRequest, HttpResponse},
    guard::AddressGuard,
};

/// The largest answer of a provider that is taken.
pub(super) const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// A client that reaches these addresses and no others. The operator wrote them: they may be private.
pub(crate) fn client_for<T: AsRef<str>>(addresses: &[T]) -> Result<GuardedClient> {
    let guard = AddressGuard::new().listed_only().with_allowlist(addresses).map_err(Error::failed)?;
    Ok(GuardedClient::new(guard))
}

/// Sends a request and takes up to `most` bytes of the answer; more is an error. Redirects are not followed.
pub(crate) async fn send_bounded(
    client: &GuardedClient,
    call: &Call,
    request: HttpRequest,
    most: usize,
) -> Result<HttpResponse> {
    let limits =
        HttpLimits { redirects: 0, body: most, total_timeout: Duration::from_secs(60), ..HttpLimits::default() };
    let host = Url::parse(&request.url).ok().and_then(|it| it.host_str().map(str::to_owned)).unwrap_or_default();
    let answer = client.send_for(call, request.redirects(RedirectPolicy::Never).limits(limits)).await?;
    if answer.truncated {
        return Err(Error::failed(format!(
            "{host} answered with more than {most} bytes, or broke off; try again later"
        )));
    }
    Ok(answer)
}

/// A GET of a path beneath a base address, with these questions.
pub(super) fn get(base: &Url, path: &str, pairs: &[(&str, &str)]) -> HttpRequest {
    let mut url = join_path(base, path);
    url.query_pairs_mut().extend_pairs(pairs);
    HttpRequest::get(url).header("Accept", "application/json")
}

/// A POST of JSON to a path beneath a base address.
pub(super) fn post(base: &Url, path: &str, body: &Value) -> HttpRequest {
    HttpRequest::post_json(join_path(base, path), body)
}

/// The body as JSON.
pub(crate) fn json(answer: &HttpResponse) -> Result<Value, MalformedResponse> {
    serde_json::from_slice(&answer.body).map_err(|_| {
        let start = String::from_utf8_lossy(&answer.body[..answer.body.len().min(256)]).trim_start().to_owned();
        MalformedResponse(if start.starts_with('<') { "HTML where JSON belongs" } else { "something that is not JSON" })
    })
}

/// An answer that is not what the provider is known to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedResponse(pub(crate) &'static str);

/// A path beneath a base address. The base may have a path of its own.
fn join_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    let whole = format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/'));
    url.set_path(&whole);
    url
}

/// Reads an address from the settings.
pub(crate) fn parse_base_url(text: &str) -> Result<Url> {
    let told = |why: &str| Error::failed(format!("`{text}` is not the address of a service: {why}"));
    let url = Url::parse(text.trim()).map_err(|error| told(&error.to_string()))?;
    match (url.scheme(), url.host()) {
        ("http" | "https", Some(_)) => Ok(url),
        _ => Err(told("it must begin with http:// or https://")),
    }
}
