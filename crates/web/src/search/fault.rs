//! Maps a provider's refusal to an error with the next step.

use helve_contract::{Error, Result};

use super::{
    SearchClient, SearchProvider, clean,
    duckduckgo::is_challenge,
    provider::display_base,
    wire::{self, MalformedResponse},
};
use crate::client::HttpResponse;

/// An answer with results in it, or what to do instead.
pub(super) fn check_response(search: &SearchClient, answer: &HttpResponse) -> Result<()> {
    let who = search.provider.title();
    let said = match answer.status {
        // A challenge page also has a success status.
        200..300 if search.provider == SearchProvider::DuckDuckGo => {
            let page = String::from_utf8_lossy(&answer.body);
            if answer.status != 202 && !is_challenge(&page) {
                return Ok(());
            }
            format!(
                "{who} wants to see a person first and gave no results. Wait some minutes before the next search; if it \
                 stays so, ask the user to set up another provider (search.provider) with a key of its own"
            )
        }
        202 => format!("{who} has taken the search but has no results yet (HTTP 202); search again in a minute"),
        200..300 => return Ok(()),
        300..400 => format!(
            "{who} at {} answered with a redirect (HTTP {}){}; ask the user to check search.base_url",
            display_base(&search.base),
            answer.status,
            answer.header("location").map(|it| format!(" to {}", clean::single_line(it, 200))).unwrap_or_default()
        ),
        401 | 403 if search.provider == SearchProvider::SearXng => format!(
            "the SearXNG server at {} does not answer in JSON (HTTP {}); its operator must add `json` to search.formats \
             in its settings.yml, or ask the user to choose another provider",
            display_base(&search.base),
            answer.status
        ),
        401 | 403 if search.provider.key_variable().is_none() => format!(
            "{who} refuses searches from here (HTTP {}). Do not try again; ask the user to set up another provider \
             (search.provider)",
            answer.status
        ),
        401 | 403 => format!(
            "{who} refused the key (HTTP {}){}; ask the user to check it. Searching again does not help",
            answer.status,
            provider_message(answer)
        ),
        402 => format!(
            "{who} wants to be paid (HTTP 402){}; ask the user to look at the account",
            provider_message(answer)
        ),
        429 | 432 | 433 => format!(
            "{who} has had too many searches (HTTP {}){}; {} Do with fewer searches, or fetch an address that you know",
            answer.status,
            provider_message(answer),
            retry_after(answer)
        ),
        400..500 => format!("{who} did not understand the search (HTTP {}){}", answer.status, provider_message(answer)),
        _ => format!(
            "{who} does not work right now (HTTP {}){}; try again later",
            answer.status,
            provider_message(answer)
        ),
    };
    Err(Error::failed(said))
}

/// An answer that has another shape than it should.
pub(super) fn malformed_error(search: &SearchClient, what: &MalformedResponse) -> Error {
    Error::failed(format!(
        "{} at {} answered with {}; try again later, or ask the user to check search.provider and search.base_url",
        search.provider.title(),
        display_base(&search.base),
        what.0
    ))
}

/// How long to wait, if the provider says.
fn retry_after(answer: &HttpResponse) -> String {
    match answer.header("retry-after").and_then(|it| it.trim().parse::<u32>().ok()) {
        Some(seconds) => format!("search again after {seconds} s."),
        None => "wait a minute before the next one.".to_owned(),
    }
}

/// The provider's own words, where there are some in the usual places.
fn provider_message(answer: &HttpResponse) -> String {
    let Ok(body) = wire::json(answer) else { return String::new() };
    let places =
        ["/error/message", "/error/detail", "/detail/error", "/error", "/message", "/detail", "/errors/0/message"];
    let said = places.iter().find_map(|it| body.pointer(it)?.as_str()).map(|it| clean::single_line(it, 200));
    said.filter(|it| !it.is_empty()).map(|it| format!(": {it}")).unwrap_or_default()
}
