//! HTTP responses: JSON, text, and errors in one format.

use std::fmt;

use bytes::Bytes;
use helve_mcp::{HttpBody, HttpReply};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};

/// Why a request fails.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    allow: Option<String>,
}

impl ApiError {
    /// An error: the status, a code for programs, and a message for people.
    pub(super) fn new(status: StatusCode, code: &'static str, why: impl Into<String>) -> Self {
        Self { status, code, message: why.into(), allow: None }
    }

    /// The request is invalid.
    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", why)
    }

    /// The resource does not exist.
    pub(super) fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", why)
    }

    /// The request conflicts with the current state.
    pub(super) fn conflict(why: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", why)
    }

    /// No model is available.
    pub(super) fn no_model_configured() -> Self {
        let why = "no model is configured here; set model.base_url and begin the server anew";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_model", why)
    }

    /// An internal error.
    pub(super) fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why.to_string())
    }

    /// A limit or a timeout was exceeded.
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
    }

    /// The method is not allowed.
    pub(super) fn method_not_allowed(allow: impl Into<String>) -> Self {
        let allow = allow.into();
        let why = format!("this address takes {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why) }
    }

    /// As a response.
    pub(super) fn into_response(self) -> HttpReply {
        let body = json!({ "error": self.message, "code": self.code, "details": { "status": self.status.as_u16() } });
        let mut reply = json_response(self.status, &body);
        if self.status == StatusCode::UNAUTHORIZED {
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow.and_then(|it| HeaderValue::from_str(&it).ok()) {
            reply.headers_mut().insert(ALLOW, allow);
        }
        reply
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status.as_u16(), self.message)
    }
}

impl From<helve_contract::Error> for ApiError {
    fn from(error: helve_contract::Error) -> Self {
        Self::internal(error)
    }
}

/// JSON.
pub(super) fn json_response(status: StatusCode, value: &Value) -> HttpReply {
    text_response(status, "application/json", value.to_string())
}

/// Text of some type.
pub(super) fn text_response(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> HttpReply {
    with_content_type(status, kind, Full::new(text.into()).boxed_unsync())
}

/// Any body of some type.
pub(super) fn with_content_type(status: StatusCode, kind: &'static str, body: HttpBody) -> HttpReply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let fixed: [(HeaderName, &'static str); 4] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
    ];
    for (name, value) in fixed {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}
