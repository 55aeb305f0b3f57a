//! Requests and responses of the guarded client.

use std::time::Duration;

use helve_contract::ports::RedirectPolicy;
use hyper::{HeaderMap, Method};

/// Size and time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Redirects that are followed.
    pub redirects: usize,
    /// The body limit in bytes, before and after decompression. A larger body is truncated, and the response says so.
    pub body: usize,
    /// The timeout to the first byte of the response, per hop.
    pub first_byte_timeout: Duration,
    /// The timeout between two chunks of a body.
    pub idle_timeout: Duration,
    /// The total timeout over all hops.
    pub total_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            redirects: 10,
            body: 5 << 20,
            first_byte_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(10),
            total_timeout: Duration::from_secs(30),
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// How.
    pub method: Method,
    /// Where, as it was written.
    pub url: String,
    /// Headers. Only `Accept`, `Accept-Language` and `Content-Type` are sent to another origin.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Vec<u8>,
    /// How redirects are taken.
    pub redirects: RedirectPolicy,
    /// How much and how long.
    pub limits: HttpLimits,
}

impl HttpRequest {
    /// Gets an address and follows redirects.
    pub fn get(url: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            redirects: RedirectPolicy::Follow,
            limits: HttpLimits::default(),
        }
    }

    /// Posts JSON to a URL. Does not follow redirects.
    pub fn post_json(url: impl Into<String>, json: &serde_json::Value) -> Self {
        let body = json.to_string().into_bytes();
        let request = Self { method: Method::POST, body, redirects: RedirectPolicy::Never, ..Self::get(url) };
        request.header("Content-Type", "application/json").header("Accept", "application/json")
    }

    /// With one more header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With redirects taken another way.
    pub fn redirects(self, redirects: RedirectPolicy) -> Self {
        Self { redirects, ..self }
    }

    /// Within other limits.
    pub fn limits(self, limits: HttpLimits) -> Self {
        Self { limits, ..self }
    }
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct HttpResponse {
    /// The address that answered, after redirects.
    pub url: String,
    /// The target of a redirect that was not followed.
    pub moved_to: Option<String>,
    /// The status.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, unpacked.
    pub body: Vec<u8>,
    /// Whether the body was truncated.
    pub truncated: bool,
    /// What else there is to say.
    pub notes: Vec<String>,
}

impl HttpResponse {
    /// A header, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the status says that all is well.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as text, whatever is no UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
