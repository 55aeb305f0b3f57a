//! Errors of an endpoint, with the next step.

use std::time::Duration;

use helve_contract::jiff::{Timestamp, fmt::rfc2822};
use serde_json::Value;

use super::{Endpoint, ModelError, wire::UnsupportedFeatures};

/// Why one try failed.
pub(crate) enum AttemptError {
    /// It may go well the next time; the endpoint may have said when.
    Retry {
        /// Why.
        why: String,
        /// When.
        after: Option<Duration>,
    },
    /// It must be asked in another way.
    RetryWithout(fn(&mut UnsupportedFeatures)),
    /// It never will.
    Fatal(ModelError),
}

fn retry_error(why: String) -> AttemptError {
    AttemptError::Retry { why, after: None }
}

fn fatal_error(why: String) -> AttemptError {
    AttemptError::Fatal(ModelError::Refused(why))
}

/// No first byte in time.
pub(crate) fn first_byte_timeout(at: &Endpoint, after: Duration) -> AttemptError {
    retry_error(format!("{} did not begin to answer within {} s", at.base_url, format_secs(after)))
}

/// Nothing more in time.
pub(crate) fn idle_timeout(at: &Endpoint, after: Duration) -> AttemptError {
    retry_error(format!("{} fell silent in the middle of its answer for {} s", at.base_url, format_secs(after)))
}

/// The stream ended before the answer did.
pub(crate) fn stream_ended_early(at: &Endpoint) -> AttemptError {
    retry_error(format!("the connection to {} broke in the middle of the answer", at.base_url))
}

/// More than is taken.
pub(crate) fn response_too_large(at: &Endpoint) -> AttemptError {
    fatal_error(format!("{} answered more than is taken; something is wrong with it", at.base_url))
}

/// The provider's filter stopped the answer.
pub(crate) fn content_filtered(at: &Endpoint) -> AttemptError {
    fatal_error(format!("the content filter of {} stopped the answer; say it in other words", at.base_url))
}

/// A web page in place of an answer.
pub(crate) fn html_response(at: &Endpoint) -> AttemptError {
    fatal_error(format!(
        "{} answered with a web page and not with JSON; the base URL should be the one that ends in /v1, as in https://api.openai.com/v1",
        at.base_url
    ))
}

/// Something that is no JSON.
pub(crate) fn invalid_json(at: &Endpoint, line: &str) -> AttemptError {
    if line.trim_start().starts_with('<') {
        return html_response(at);
    }
    retry_error(format!("{} sent something that is no JSON: {}", at.base_url, sanitize_message(at, line)))
}

/// The request did not get there.
pub(crate) fn send_failed(at: &Endpoint, error: &reqwest::Error) -> AttemptError {
    let mut why = String::new();
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = source {
        why = inner.to_string();
        source = inner.source();
    }
    let base = &at.base_url;
    retry_error(if error.is_connect() && why.contains("refused") {
        format!("nothing listens at {base}: is the server running, and is the port right?")
    } else if error.is_connect() {
        format!("{base} cannot be reached ({why}): check the address and the network")
    } else {
        format!("the connection to {base} broke before it answered ({why})")
    })
}

/// An error object inside a stream.
pub(crate) fn error_object(at: &Endpoint, error: &Value) -> AttemptError {
    let code = error["code"].as_u64().or_else(|| error["code"].as_str()?.parse().ok());
    let words = serde_json::json!({ "error": error }).to_string();
    match code {
        Some(code @ 400..=599) => http_status(at, code as u16, &words, None),
        _ if is_context_overflow(&words) => http_status(at, 400, &words, None),
        _ => retry_error(format!("{} reports: {}", at.base_url, error_message(at, &words))),
    }
}

/// A status that is not 200.
pub(crate) fn http_status(at: &Endpoint, status: u16, body: &str, after: Option<Duration>) -> AttemptError {
    let base = &at.base_url;
    let words = error_message(at, body);
    let lower = body.to_lowercase();
    match status {
        400 | 413 | 422 if is_context_overflow(&lower) => AttemptError::Fatal(ModelError::ContextTooLong(format!(
            "the conversation does not fit into the model's window: {words}"
        ))),
        400 | 422 if lower.contains("not support tools") || lower.contains("does not support function") => {
            fatal_error(format!("the model `{}` cannot call tools; choose another one ({words})", at.model))
        }
        401 | 403 => fatal_error(match &at.key {
            Some(key) => format!("{base} refuses the key from {} ({status}): check it ({words})", key.source()),
            None => format!(
                "{base} wants a key ({status}) and none is set: set one in the environment or the settings ({words})"
            ),
        }),
        402 => fatal_error(format!("there is no credit left at {base} (402): {words}")),
        404 if lower.contains("model") || !base.contains("/v1") && lower.contains("not found") && !is_html(body) => {
            fatal_error(format!(
                "there is no model `{}` at {base} (404): {base}/models lists those there are ({words})",
                at.model
            ))
        }
        404 | 405 => fatal_error(format!(
            "{base} has no chat completions ({status}): the base URL should be the one that ends in /v1"
        )),
        300..=399 => fatal_error(format!("{base} points elsewhere ({status}); set the base URL to where it points")),
        429 if lower.contains("insufficient_quota") => {
            fatal_error(format!("the quota at {base} is used up (429): {words}"))
        }
        429 => {
            let when = after.map(|it| format!(", and asks to wait {} s", format_secs(it))).unwrap_or_default();
            AttemptError::Retry { why: format!("{base} has too many requests (429){when}: {words}"), after }
        }
        408 | 409 | 425 | 500..=599 => AttemptError::Retry { why: format!("{base} failed ({status}): {words}"), after },
        _ => fatal_error(format!("{base} refused the request ({status}): {words}")),
    }
}

/// A field that the endpoint does not know, and that can be left out.
pub(crate) fn unsupported_field(body: &str, refuses: UnsupportedFeatures, pictures: bool) -> Option<AttemptError> {
    if !refuses.usage && (body.contains("stream_options") || body.contains("include_usage")) {
        return Some(AttemptError::RetryWithout(|it| it.usage = true));
    }
    if !refuses.max_tokens && body.contains("max_completion_tokens") {
        return Some(AttemptError::RetryWithout(|it| it.max_tokens = true));
    }
    if pictures && !refuses.images && body.to_lowercase().contains("image") {
        return Some(AttemptError::RetryWithout(|it| it.images = true));
    }
    None
}

/// What `Retry-After` says: seconds, or a date.
pub(crate) fn parse_retry_after(header: Option<&str>) -> Option<Duration> {
    let text = header?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    }
    let then = rfc2822::parse(&text.replace("GMT", "+0000")).ok()?.timestamp();
    let wait = then.as_second() - Timestamp::now().as_second();
    Some(Duration::from_secs(wait.max(0) as u64))
}

fn is_context_overflow(body: &str) -> bool {
    const OVERFLOW_MARKERS: [&str; 9] = [
        "context_length",
        "context length",
        "context window",
        "maximum context",
        "too many tokens",
        "prompt is too long",
        "exceeds the model",
        "exceed_context",
        "input is too long",
    ];
    let body = body.to_lowercase();
    OVERFLOW_MARKERS.iter().any(|it| body.contains(it))
}

fn is_html(body: &str) -> bool {
    let start = body.trim_start().get(..5).unwrap_or_default().to_lowercase();
    start == "<!doc" || start == "<html"
}

/// What the endpoint said, in one line.
fn error_message(at: &Endpoint, body: &str) -> String {
    if is_html(body) {
        return "a web page".to_owned();
    }
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let found = [&value["error"]["message"], &value["message"], &value["error"], &value["detail"]];
    let words = found.into_iter().find_map(|it| it.as_str()).unwrap_or(body);
    if words.trim().is_empty() { "it says nothing more".to_owned() } else { sanitize_message(at, words) }
}

/// Sanitises untrusted text: one line, bounded, without the key.
fn sanitize_message(at: &Endpoint, words: &str) -> String {
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|it| !it.is_control()).take(300).collect();
    at.key.as_ref().map_or(line.clone(), |key| key.redact(&line))
}

fn format_secs(time: Duration) -> String {
    if time.subsec_millis() == 0 { time.as_secs().to_string() } else { format!("{:.1}", time.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use super::{super::ApiKey, *};

    fn told(status: u16, body: &str) -> String {
        let mut at = Endpoint::new("https://api.example.com/v1", "gpt-x");
        at.key = Some(ApiKey::new("sk-secret-1234", "OPENAI_API_KEY"));
        match super::http_status(&at, status, body, None) {
            AttemptError::Retry { why, .. } => format!("again: {why}"),
            AttemptError::RetryWithout(_) => "otherwise".to_owned(),
            AttemptError::Fatal(error) => format!("never: {error}"),
        }
    }

    #[test]
    fn every_status_says_what_to_do_next() {
        assert_eq!(
            told(401, r#"{"error":{"message":"Incorrect API key provided: sk-secret-1234"}}"#),
            "never: https://api.example.com/v1 refuses the key from OPENAI_API_KEY (401): check it (Incorrect API key provided: •••)"
        );
        assert_eq!(
            told(404, r#"{"error":{"message":"The model `gpt-x` does not exist"}}"#),
            "never: there is no model `gpt-x` at https://api.example.com/v1 (404): https://api.example.com/v1/models lists those there are (The model `gpt-x` does not exist)"
        );
        assert_eq!(
            told(404, "<!DOCTYPE html><title>nginx</title>"),
            "never: https://api.example.com/v1 has no chat completions (404): the base URL should be the one that ends in /v1"
        );
        assert_eq!(told(529, "{}"), "again: https://api.example.com/v1 failed (529): {}");
        assert_eq!(
            told(
                400,
                r#"{"error":{"message":"maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#
            ),
            "never: the conversation does not fit into the model's window: maximum context length is 8192 tokens"
        );
        assert_eq!(
            told(502, "<html><body>Bad Gateway</body></html>"),
            "again: https://api.example.com/v1 failed (502): a web page"
        );
    }

    #[test]
    fn a_wait_is_in_seconds_or_until_a_date() {
        assert_eq!(parse_retry_after(Some("2")), Some(Duration::from_secs(2)));
        assert_eq!(parse_retry_after(Some("0.5")), Some(Duration::from_millis(500)));
        assert_eq!(parse_retry_after(Some("Wed, 21 Oct 2015 07:28:00 GMT")), Some(Duration::ZERO));
        assert!(parse_retry_after(Some("Fri, 21 Oct 2095 07:28:00 GMT")).is_some_and(|it| it.as_secs() > 1_000_000));
        assert_eq!(parse_retry_after(Some("soon")), None);
        assert_eq!(parse_retry_after(Some("1e300")), None);
    }
}
