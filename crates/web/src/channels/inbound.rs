//! Inbound webhooks: a signed POST becomes a message of the user.

use helve_contract::ports::{Attachment, AttachmentLimits};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{ALLOW, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::Value;

use super::{attachments::EncodedAttachment, hmac::verify};

/// The largest body that is taken.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The largest body of JSON, which may carry files in base64.
const MAX_JSON: usize = 8 << 20;

/// Headers with the sender's delivery id, which stays the same on a retry. The first one counts.
const DELIVERY_HEADERS: [&str; 3] = ["idempotency-key", "x-github-delivery", "webhook-id"];
/// The longest id of a delivery.
const MAX_DELIVERY: usize = 128;

/// What a hook's bodies are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookFormat {
    /// Words.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// A place where a machine may post.
#[derive(Clone)]
pub struct InboundWebhook {
    /// Its name: messages begin with `[webhook:ID]`.
    pub id: String,
    /// Where it is: `/hooks/build`.
    pub path: String,
    /// What its bodies are.
    pub format: WebhookFormat,
    /// What they are signed with, if they must be.
    pub secret: Option<String>,
}

/// A message that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundMessage {
    /// Which hook it came by.
    pub hook: String,
    /// What the user's message says.
    pub text: String,
    /// Files that came with it.
    pub attachments: Vec<Attachment>,
    /// The sender's id of this delivery, from `Idempotency-Key`, `X-GitHub-Delivery` or `Webhook-Id`.
    pub delivery: Option<String>,
}

/// Why a body is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not have the hook's format; what is wrong.
    Malformed(&'static str),
    /// Its files are too many or too large; which limit they exceed.
    TooLarge(String),
}

/// A body with files.
#[derive(Deserialize)]
struct WithFiles {
    #[serde(default)]
    content: String,
    attachments: Vec<EncodedAttachment>,
}

impl InboundWebhook {
    /// Whether the body was signed with the secret. Without a secret everything is taken.
    #[must_use]
    pub fn is_signed(&self, body: &[u8], signature: Option<&str>) -> bool {
        match (&self.secret, signature) {
            (None, _) => true,
            (Some(secret), Some(signature)) => verify(secret.as_bytes(), body, signature),
            (Some(_), None) => false,
        }
    }

    /// The message that a body is: `[webhook:ID] …`. A JSON object with `attachments`, each with `name` and `data` in
    /// base64, brings files; its `content` is the text.
    pub fn parse(&self, body: &[u8]) -> Result<InboundMessage, Refusal> {
        const FORMAT: Refusal = Refusal::Malformed("the body is not what this hook takes");
        if let Some(WithFiles { content, attachments }) = with_files(body) {
            let attachments = decode(attachments)?;
            let text = format!("[webhook:{}] {}", self.id, content.trim()).trim_end().to_owned();
            return Ok(InboundMessage { hook: self.id.clone(), text, attachments, delivery: None });
        }
        let text = match self.format {
            WebhookFormat::Text => std::str::from_utf8(body).map_err(|_| FORMAT)?.trim().to_owned(),
            WebhookFormat::Json => serde_json::from_slice::<Value>(body).map_err(|_| FORMAT)?.to_string(),
        };
        if text.is_empty() {
            return Err(FORMAT);
        }
        let text = format!("[webhook:{}] {text}", self.id);
        Ok(InboundMessage { hook: self.id.clone(), text, attachments: Vec::new(), delivery: None })
    }

    /// Handles one request. An accepted message goes to `deliver`, followed by 202; the work happens later. An error
    /// of `deliver` becomes 503 with its text.
    pub async fn handle<B, F>(
        hooks: &[Self],
        request: Request<B>,
        deliver: impl FnOnce(InboundMessage) -> F,
    ) -> Response<Full<Bytes>>
    where
        F: Future<Output = Result<(), String>>,
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        if path == "/health" {
            return match *request.method() {
                Method::GET | Method::HEAD => text_response(StatusCode::OK, "ok"),
                _ => not_allowed("GET"),
            };
        }
        let Some(hook) = hooks.iter().find(|it| it.path == path) else {
            return text_response(StatusCode::NOT_FOUND, "no such hook");
        };
        if request.method() != Method::POST {
            return not_allowed("POST");
        }
        let signature = request.headers().get("x-webhook-signature").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let delivery = match delivery(request.headers()) {
            Ok(delivery) => delivery,
            Err(why) => return text_response(StatusCode::BAD_REQUEST, why),
        };
        let kind = request.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let is_json = kind.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json"));
        let (most, too_large) =
            if is_json { (MAX_JSON, "more than 8 MiB") } else { (MAX_BODY_BYTES, "more than 1 MiB") };
        let body = match Limited::new(request.into_body(), most).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return text_response(StatusCode::PAYLOAD_TOO_LARGE, too_large);
            }
            Err(_) => return text_response(StatusCode::BAD_REQUEST, "the body broke off"),
        };
        if !hook.is_signed(&body, signature.as_deref()) {
            return text_response(StatusCode::UNAUTHORIZED, "the signature is not right");
        }
        let taken = match hook.parse(&body) {
            Ok(taken) => InboundMessage { delivery, ..taken },
            Err(Refusal::Malformed(why)) => return text_response(StatusCode::BAD_REQUEST, why),
            Err(Refusal::TooLarge(why)) => return text_response(StatusCode::PAYLOAD_TOO_LARGE, why),
        };
        match deliver(taken).await {
            Ok(()) => text_response(StatusCode::ACCEPTED, "accepted"),
            Err(why) => text_response(StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }
}

/// The sender's id of a delivery, where it gives one.
fn delivery(headers: &HeaderMap) -> Result<Option<String>, String> {
    for name in DELIVERY_HEADERS {
        let Some(value) = headers.get(name) else { continue };
        let text = value.to_str().ok().map(str::trim).filter(|it| it.len() <= MAX_DELIVERY);
        let text =
            text.ok_or_else(|| format!("the header {name} must have at most {MAX_DELIVERY} ASCII characters"))?;
        if !text.is_empty() {
            return Ok(Some(text.to_owned()));
        }
    }
    Ok(None)
}

/// The body as a message with files. `None` if it is not one, or uses `attachments` with another meaning.
fn with_files(body: &[u8]) -> Option<WithFiles> {
    serde_json::from_slice::<WithFiles>(body).ok().filter(|it| !it.attachments.is_empty())
}

fn decode(files: Vec<EncodedAttachment>) -> Result<Vec<Attachment>, Refusal> {
    EncodedAttachment::check(&files, AttachmentLimits::WEBHOOK)
        .map_err(|error| Refusal::TooLarge(error.to_string()))?;
    let decoded = files.into_iter().map(EncodedAttachment::decode).collect::<Result<_, _>>();
    decoded.map_err(|_| Refusal::Malformed("an attachment's `data` is not base64"))
}

fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

fn not_allowed(method: &'static str) -> Response<Full<Bytes>> {
    let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "another method is wanted");
    response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static(method));
    response
}
