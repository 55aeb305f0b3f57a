//! The endpoint of a model: URL, key, name and timeouts.

use std::{collections::BTreeMap, fmt, time::Duration};

/// Where a model is.
#[derive(Clone)]
pub struct Endpoint {
    /// The address that `/chat/completions` is put behind: `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key, where one is needed.
    pub key: Option<ApiKey>,
    /// The model's name, as the endpoint knows it.
    pub model: String,
    /// How many tokens fit into its window, where that is known.
    pub context_window: Option<u64>,
    /// What it costs, where that is known.
    pub prices: Option<Prices>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// How often a request is sent at most.
    pub max_attempts: u32,
    /// More headers.
    pub headers: BTreeMap<String, String>,
}

impl Endpoint {
    /// A model at an address, without a key.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            key: None,
            model: model.into(),
            context_window: None,
            prices: None,
            timeouts: Timeouts::default(),
            max_attempts: 5,
            headers: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What headers hold may be as secret as a key.
        let headers: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("key", &self.key)
            .field("model", &self.model)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// The timeouts of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Until the first byte of the answer; a local model may have to be loaded first.
    pub first_byte: Duration,
    /// Between two pieces of it.
    pub idle: Duration,
    /// Before the second try; doubled for each one after it.
    pub backoff: Duration,
    /// The longest wait between two tries, whatever the endpoint asks for.
    pub max_backoff: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            first_byte: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
        }
    }
}

/// US dollars for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of a prompt.
    pub prompt: f64,
    /// Of an answer.
    pub completion: f64,
}

/// An API key. It is sent, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    value: String,
    source: String,
}

impl ApiKey {
    /// A key, and where it is from: the name of a variable or a setting.
    pub fn new(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self { value: value.into().trim().to_owned(), source: source.into() }
    }

    /// Where it is from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The key itself, for a header.
    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// A text without the key in it.
    pub(crate) fn redact(&self, text: &str) -> String {
        if self.value.len() < 6 { text.to_owned() } else { text.replace(&self.value, "•••") }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(from {})", self.source)
    }
}
