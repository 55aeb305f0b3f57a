//! Webhooks in: what a machine posts becomes a message of the user, if its signature is right.

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::ALLOW,
};
use serde_json::Value;

use super::hmac::verify;

/// The largest body that is taken.
const LARGEST: usize = 1 << 20;

/// What a hook's bodies are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Words.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// A place where a machine may post.
#[derive(Clone)]
pub struct Inbound {
    /// Its name: messages begin with `[webhook:ID]`.
    pub id: String,
    /// Where it is: `/hooks/build`.
    pub path: String,
    /// What its bodies are.
    pub format: Format,
    /// What they are signed with, if they must be.
    pub secret: Option<String>,
}

/// A message that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which hook it came by.
    pub hook: String,
    /// What the user's message says.
    pub text: String,
}

impl Inbound {
    /// Whether the body was signed with the secret. Without a secret everything is taken.
    #[must_use]
    pub fn is_signed(&self, body: &[u8], signature: Option<&str>) -> bool {
        match (&self.secret, signature) {
            (None, _) => true,
            (Some(secret), Some(signature)) => verify(secret.as_bytes(), body, signature),
            (Some(_), None) => false,
        }
    }

    /// The message that a body is: `[webhook:ID] …`. `None`: it is none of the hook's format.
    #[must_use]
    pub fn message(&self, body: &[u8]) -> Option<Taken> {
        let text = match self.format {
            Format::Text => std::str::from_utf8(body).ok()?.trim().to_owned(),
            Format::Json => serde_json::from_slice::<Value>(body).ok()?.to_string(),
        };
        (!text.is_empty()).then(|| Taken { hook: self.id.clone(), text: format!("[webhook:{}] {text}", self.id) })
    }

    /// Answers one request. What was taken goes to `deliver`, after which the answer is 202; the work itself is done
    /// later. `deliver` says `false` when it can take no more, and the answer is 503.
    pub async fn answer<B>(
        hooks: &[Self],
        request: Request<B>,
        deliver: impl FnOnce(Taken) -> bool,
    ) -> Response<Full<Bytes>>
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        if path == "/health" {
            return match *request.method() {
                Method::GET | Method::HEAD => said(StatusCode::OK, "ok"),
                _ => not_allowed("GET"),
            };
        }
        let Some(hook) = hooks.iter().find(|it| it.path == path) else {
            return said(StatusCode::NOT_FOUND, "no such hook");
        };
        if request.method() != Method::POST {
            return not_allowed("POST");
        }
        let signature = request.headers().get("x-webhook-signature").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let body = match Limited::new(request.into_body(), LARGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return said(StatusCode::PAYLOAD_TOO_LARGE, "more than 1 MiB");
            }
            Err(_) => return said(StatusCode::BAD_REQUEST, "the body broke off"),
        };
        if !hook.is_signed(&body, signature.as_deref()) {
            return said(StatusCode::UNAUTHORIZED, "the signature is not right");
        }
        match hook.message(&body).map(deliver) {
            None => said(StatusCode::BAD_REQUEST, "the body is not what this hook takes"),
            Some(true) => said(StatusCode::ACCEPTED, "accepted"),
            Some(false) => said(StatusCode::SERVICE_UNAVAILABLE, "too many messages wait; try again later"),
        }
    }
}

fn said(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn not_allowed(method: &'static str) -> Response<Full<Bytes>> {
    let mut response = said(StatusCode::METHOD_NOT_ALLOWED, "another method is wanted");
    response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static(method));
    response
}
