//! A client for OpenAI's chat completions API.

use std::{
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::ports::TokenUsage;
use reqwest::{
    Client, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
    redirect::Policy,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Endpoint, Model, ModelError, ModelRequest, ModelResponse, Prices, StreamChunk, StreamSink,
    accumulate::{Accumulator, is_object},
    faults::{self, AttemptError},
    reasoning_details::ReasoningDetails,
    sse::SseLineParser,
    wire::{self, REASONING_DETAILS, UnsupportedFeatures},
};

/// The longest answer that is taken.
const MAX_RESPONSE_BYTES: usize = 32 << 20;
/// How much of an error's body is read.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// A model behind OpenAI's chat completions.
pub struct OpenAi {
    client: Client,
    url: Url,
    headers: HeaderMap,
    endpoint: Endpoint,
    refuses: Mutex<UnsupportedFeatures>,
    /// 0: not known.
    context_window: AtomicU64,
    prices: Mutex<Option<Prices>>,
}

impl OpenAi {
    /// A client for an endpoint. Nothing is sent yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ModelError> {
        let url = endpoint_url(&endpoint, "chat/completions")?;
        Ok(Self {
            client: http_client(&endpoint, &url)?,
            headers: headers(&endpoint)?,
            url,
            refuses: Mutex::default(),
            context_window: AtomicU64::new(endpoint.context_window.unwrap_or(0)),
            prices: Mutex::new(endpoint.prices),
            endpoint,
        })
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks the endpoint for the model's window and prices, where they are not configured. Not every endpoint tells.
    pub async fn fetch_model_info(&self) {
        let known = self.context_window().is_some() && self.prices().is_some();
        if known {
            return;
        }
        let Ok(listed) = super::list_models(&self.endpoint).await else { return };
        let Some(own) = listed.into_iter().find(|it| it.id == self.endpoint.model) else { return };
        if let (None, Some(window)) = (self.context_window(), own.context_window) {
            self.context_window.store(window, Ordering::Relaxed);
        }
        let mut prices = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
        *prices = prices.or(own.prices);
    }

    fn prices(&self) -> Option<Prices> {
        *self.prices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retries until there is an answer, a fatal error, or streamed text.
    async fn complete_with_retries(
        &self,
        ask: &ModelRequest<'_>,
        ear: &StreamSink<'_>,
    ) -> Result<ModelResponse, ModelError> {
        let mut tried = 0;
        loop {
            let heard = RecordingSink::new(ear);
            let fault = match self.attempt(ask, &heard).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            tried += 1;
            let said = heard.text();
            let (why, after) = match fault {
                AttemptError::Fatal(error) => return Err(error),
                AttemptError::RetryWithout(change) => {
                    self.disable_feature(change);
                    continue;
                }
                AttemptError::Retry { why, .. } if heard.has_output() => {
                    return Err(ModelError::StreamBroken { why, said });
                }
                AttemptError::Retry { why, after } => (why, after),
            };
            let wait = self.retry_delay(tried, after);
            if after.is_some_and(|it| it > self.endpoint.timeouts.max_backoff) || tried >= self.endpoint.max_attempts {
                let tries = if tried == 1 { String::new() } else { format!(" (tried {tried} times)") };
                return Err(ModelError::Unreachable(format!("{why}{tries}")));
            }
            ear(StreamChunk::Retry(&why, wait.as_millis() as u64));
            tokio::time::sleep(wait).await;
        }
    }

    fn disable_feature(&self, change: fn(&mut UnsupportedFeatures)) {
        change(&mut self.refuses.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The retry delay: what the endpoint requests, or exponential backoff with jitter.
    fn retry_delay(&self, tried: u32, after: Option<Duration>) -> Duration {
        let times = &self.endpoint.timeouts;
        let usual = times.backoff.saturating_mul(1 << (tried - 1).min(16));
        let base = after.unwrap_or(usual).min(times.max_backoff);
        let chance = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX);
        base.mul_f64(if after.is_some() { 1.0 + chance * 0.1 } else { 0.75 + chance * 0.5 })
    }

    /// Asks once.
    async fn attempt(&self, ask: &ModelRequest<'_>, heard: &RecordingSink<'_>) -> Result<ModelResponse, AttemptError> {
        let refuses = *self.refuses.lock().unwrap_or_else(PoisonError::into_inner);
        let body = wire::request_body(ask, &self.endpoint.model, refuses).to_string();
        let length = body.len();
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let first = self.endpoint.timeouts.first_byte;
        let response = match timeout(first, request.send()).await {
            Err(_) => return Err(faults::first_byte_timeout(&self.endpoint, first)),
            Ok(Err(error)) => return Err(faults::send_failed(&self.endpoint, &error)),
            Ok(Ok(response)) => response,
        };
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        if status != 200 {
            let after = faults::parse_retry_after(response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()));
            let words = self.read_error_body(response).await;
            let unknown = faults::unsupported_field(&words, refuses, wire::has_images(ask));
            return Err(unknown.unwrap_or_else(|| faults::http_status(&self.endpoint, status, &words, after)));
        }
        if kind.contains("html") {
            return Err(faults::html_response(&self.endpoint));
        }
        let mut reader = ModelResponseBuilder::new(ask, heard, &self.endpoint);
        let whole = if kind.contains("json") {
            self.read_unstreamed(response, &mut reader).await
        } else {
            self.stream(response, &mut reader).await
        };
        whole?;
        let mut answer = reader.finish()?;
        self.record_usage(&mut answer, length);
        Ok(answer)
    }

    /// The beginning of a body.
    async fn read_error_body(&self, mut response: Response) -> String {
        let mut bytes = Vec::new();
        while let Ok(Ok(Some(piece))) = timeout(self.endpoint.timeouts.idle, response.chunk()).await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_ERROR_BODY_BYTES {
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// An endpoint that does not stream.
    async fn read_unstreamed(
        &self,
        mut response: Response,
        reader: &mut ModelResponseBuilder<'_>,
    ) -> Result<(), AttemptError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next_chunk(&mut response).await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_RESPONSE_BYTES {
                return Err(faults::response_too_large(&self.endpoint));
            }
        }
        reader.push_event(&String::from_utf8_lossy(&bytes))?;
        reader.done = true;
        Ok(())
    }

    async fn stream(&self, mut response: Response, reader: &mut ModelResponseBuilder<'_>) -> Result<(), AttemptError> {
        let mut lines = SseLineParser::default();
        while let Some(piece) = self.next_chunk(&mut response).await? {
            let whole = lines.push(&piece).map_err(|_| faults::response_too_large(&self.endpoint))?;
            for line in whole {
                reader.push_event(&line)?;
                if reader.done {
                    return Ok(());
                }
            }
        }
        lines.finish().map_or(Ok(()), |line| reader.push_event(&line))
    }

    async fn next_chunk(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, AttemptError> {
        match timeout(self.endpoint.timeouts.idle, response.chunk()).await {
            Err(_) => Err(faults::idle_timeout(&self.endpoint, self.endpoint.timeouts.idle)),
            Ok(Err(_)) => Err(faults::stream_ended_early(&self.endpoint)),
            Ok(Ok(piece)) => Ok(piece),
        }
    }

    /// What the answer took. Where the endpoint does not say, it is estimated.
    fn record_usage(&self, answer: &mut ModelResponse, asked: usize) {
        let spent = &mut answer.usage;
        if spent.prompt_tokens == 0 && spent.completion_tokens == 0 {
            let said: usize = answer.calls.iter().map(|it| it.name.len() + it.input.len()).sum();
            spent.prompt_tokens = (asked / 4) as u64;
            spent.completion_tokens = ((said + answer.text.len() + answer.reasoning.len()) / 4) as u64;
        }
        if let (true, Some(prices)) = (spent.cost <= 0.0, self.prices()) {
            spent.cost =
                spent.prompt_tokens as f64 * prices.prompt + spent.completion_tokens as f64 * prices.completion;
        }
    }
}

#[async_trait]
impl Model for OpenAi {
    fn name(&self) -> String {
        self.endpoint.model.clone()
    }

    fn context_window(&self) -> Option<u64> {
        Some(self.context_window.load(Ordering::Relaxed)).filter(|it| *it > 0)
    }

    async fn complete(&self, ask: &ModelRequest<'_>, ear: &StreamSink<'_>) -> Result<ModelResponse, ModelError> {
        let said = Mutex::new(String::new());
        let listening = |piece: StreamChunk<'_>| {
            if let StreamChunk::Text(text) = piece {
                said.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
            }
            ear(piece);
        };
        tokio::select! {
            biased;
            () = ask.cancel.cancelled() => {}
            answer = self.complete_with_retries(ask, &listening) => return answer,
        }
        Err(ModelError::Cancelled { said: said.into_inner().unwrap_or_else(PoisonError::into_inner) })
    }
}

/// What went to the ear in one try.
struct RecordingSink<'a> {
    sink: &'a StreamSink<'a>,
    recorded: Mutex<(String, bool)>,
}

impl<'a> RecordingSink<'a> {
    fn new(ear: &'a StreamSink<'a>) -> Self {
        Self { sink: ear, recorded: Mutex::default() }
    }

    fn push(&self, piece: StreamChunk<'_>) {
        {
            let mut said = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            said.1 = true;
            if let StreamChunk::Text(text) = piece {
                said.0.push_str(text);
            }
        }
        (self.sink)(piece);
    }

    fn text(&self) -> String {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn has_output(&self) -> bool {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// What `finish_reason` of the API means to the reader of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finish {
    /// The limit for one answer was reached.
    Length,
    /// The provider withheld the answer.
    ContentFilter,
    /// The provider failed while it answered.
    Error,
    /// The answer is complete: `stop`, `tool_calls`, or the word of another provider.
    Complete,
}

impl Finish {
    fn of(reason: &str) -> Self {
        match reason {
            "length" => Self::Length,
            "content_filter" => Self::ContentFilter,
            "error" => Self::Error,
            _ => Self::Complete,
        }
    }
}

/// An answer in the making.
struct ModelResponseBuilder<'a> {
    sink: &'a RecordingSink<'a>,
    endpoint: &'a Endpoint,
    answer: ModelResponse,
    calls: Accumulator,
    details: ReasoningDetails,
    finish: Option<Finish>,
    done: bool,
}

impl<'a> ModelResponseBuilder<'a> {
    fn new(ask: &ModelRequest<'_>, heard: &'a RecordingSink<'a>, endpoint: &'a Endpoint) -> Self {
        let names = ask.tools.iter().filter_map(|it| it["function"]["name"].as_str());
        Self {
            sink: heard,
            endpoint,
            answer: ModelResponse::default(),
            calls: Accumulator::new(names),
            details: ReasoningDetails::default(),
            finish: None,
            done: false,
        }
    }

    /// Takes one event.
    fn push_event(&mut self, line: &str) -> Result<(), AttemptError> {
        if line == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return Err(faults::invalid_json(self.endpoint, line));
        };
        if let Some(error) = event.get("error").filter(|it| !it.is_null()) {
            return Err(faults::error_object(self.endpoint, error));
        }
        self.usage(&event["usage"]);
        let choice = &event["choices"][0];
        for message in [&choice["delta"], &choice["message"]] {
            self.message(message);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(Finish::of(reason));
        }
        let size = self.answer.text.len() + self.answer.reasoning.len() + self.calls.bytes() + self.details.bytes();
        if size > MAX_RESPONSE_BYTES { Err(faults::response_too_large(self.endpoint)) } else { Ok(()) }
    }

    fn message(&mut self, message: &Value) {
        for field in ["reasoning_content", "reasoning"] {
            if let Some(text) = message[field].as_str().filter(|it| !it.is_empty()) {
                self.push_reasoning(text);
                break;
            }
        }
        self.details.push(&message[REASONING_DETAILS]);
        match &message["content"] {
            Value::String(text) => self.push_text(text),
            Value::Array(parts) => {
                for part in parts {
                    if let Some(text) = part["text"].as_str() {
                        self.push_text(text);
                    } else if let Some(text) = part["thinking"].as_str().or(part["thinking"][0]["text"].as_str()) {
                        self.push_reasoning(text);
                    }
                }
            }
            _ => {}
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.calls.push(call);
        }
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.answer.text.push_str(text);
            self.sink.push(StreamChunk::Text(text));
        }
    }

    fn push_reasoning(&mut self, text: &str) {
        self.answer.reasoning.push_str(text);
        self.sink.push(StreamChunk::Reasoning(text));
    }

    fn usage(&mut self, usage: &Value) {
        let spent = &mut self.answer.usage;
        if let Some(tokens) = usage["prompt_tokens"].as_u64() {
            let (prompt, completion) = (&usage["prompt_tokens_details"], &usage["completion_tokens_details"]);
            let first = |fields: [&Value; 2]| fields.iter().find_map(|it| it.as_u64()).unwrap_or(0);
            *spent = TokenUsage {
                prompt_tokens: tokens,
                completion_tokens: usage["completion_tokens"].as_u64().unwrap_or(0),
                cache_read_tokens: first([&prompt["cached_tokens"], &usage["prompt_cache_hit_tokens"]]),
                cache_write_tokens: first([&prompt["cache_write_tokens"], &usage["cache_creation_input_tokens"]]),
                reasoning_tokens: completion["reasoning_tokens"].as_u64().unwrap_or(0),
                cost: usage["cost"].as_f64().unwrap_or(0.0),
            };
        }
    }

    /// The answer, if it is complete.
    fn finish(self) -> Result<ModelResponse, AttemptError> {
        let Self { endpoint, mut answer, calls, details, finish, done, .. } = self;
        if finish.is_none() && !done {
            return Err(faults::stream_ended_early(endpoint));
        }
        if finish == Some(Finish::Error) {
            return Err(faults::stream_ended_early(endpoint));
        }
        answer.is_truncated = finish == Some(Finish::Length);
        answer.calls = calls.calls();
        answer.opaque.extend(details.finish().map(|it| json!({ REASONING_DETAILS: it })));
        if answer.is_truncated {
            // The last call was being written when the limit came. What is not a whole object does not run.
            let (whole, lost) = answer.calls.into_iter().partition(|it| is_object(&it.input));
            answer.calls = whole;
            answer.incomplete_calls = lost.into_iter().map(|it: super::ToolCall| it.name).collect();
        }
        if finish == Some(Finish::ContentFilter) && answer.calls.is_empty() {
            return Err(faults::content_filtered(endpoint));
        }
        Ok(answer)
    }
}

/// The URL of an API path. A key is not sent without TLS to a public host.
pub(crate) fn endpoint_url(endpoint: &Endpoint, what: &str) -> Result<Url, ModelError> {
    let base = endpoint.base_url.trim().trim_end_matches('/').trim_end_matches("/chat/completions");
    let url = Url::parse(&format!("{base}/{what}"))
        .map_err(|error| ModelError::Refused(format!("`{base}` is no address of a model: {error}")))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if endpoint.key.is_none() || is_private_network(&url) => Ok(url),
        "http" => Err(ModelError::Refused(format!(
            "the key would be sent in the clear to {base}; use https, or an address of this network"
        ))),
        other => Err(ModelError::Refused(format!("`{other}` is no way to reach a model; use https"))),
    }
}

fn url_host(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

fn is_loopback(url: &Url) -> bool {
    url_host(url) == "localhost" || url_host(url).parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// On this machine, or on a network that nobody else sees.
fn is_private_network(url: &Url) -> bool {
    let name = url_host(url);
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(it)) => it.is_loopback() || it.is_private() || it.is_link_local(),
        Ok(IpAddr::V6(it)) => it.is_loopback() || it.is_unique_local() || it.is_unicast_link_local(),
        Err(_) => matches!(name.rsplit_once('.'), None | Some((_, "local" | "internal"))),
    }
}

pub(crate) fn http_client(endpoint: &Endpoint, url: &Url) -> Result<Client, ModelError> {
    // An error means that a provider is already installed, which is sufficient.
    _ = rustls::crypto::ring::default_provider().install_default();
    // A redirect would send the session, and perhaps the key, to another host.
    let mut client = Client::builder().redirect(Policy::none()).connect_timeout(endpoint.timeouts.connect);
    if url.scheme() == "http" {
        client = client.tls_certs_only([]);
    }
    if is_loopback(url) {
        client = client.no_proxy();
    }
    client.build().map_err(|error| ModelError::Refused(format!("no connection can be made here: {error}")))
}

pub(crate) fn headers(endpoint: &Endpoint) -> Result<HeaderMap, ModelError> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut put = |name: HeaderName, value: &str, from: &str| {
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| ModelError::Refused(format!("what {from} holds cannot be sent in a header; check it")))?;
        value.set_sensitive(true);
        map.insert(name, value);
        Ok(())
    };
    if let Some(key) = &endpoint.key {
        put(AUTHORIZATION, &format!("Bearer {}", key.value()), key.source())?;
        if endpoint.base_url.contains("://api.anthropic.com") {
            // Its list of models knows the key by this name only.
            put(HeaderName::from_static("x-api-key"), key.value(), key.source())?;
            put(HeaderName::from_static("anthropic-version"), "2023-06-01", key.source())?;
        }
    }
    for (name, value) in &endpoint.headers {
        let header =
            HeaderName::try_from(name.as_str()).map_err(|_| ModelError::Refused(format!("`{name}` is no header")))?;
        put(header, value, name)?;
    }
    Ok(map)
}
/// A stream of any bytes comes to the same end however it was cut.
#[cfg(any(test, fuzzing))]
pub fn fuzz_stream(data: &[u8]) {
    let endpoint = Endpoint::new("http://127.0.0.1:1/v1", "trial");
    let ask = ModelRequest {
        system_prompt: "",
        messages: &[],
        tools: &[
            serde_json::json!({"function": {"name": "read"}}),
            serde_json::json!({"function": {"name": "read_all"}}),
        ],
        max_tokens: None,
        cancel: helve_contract::CancellationToken::new(),
    };
    let come = |size: usize| {
        let ear = |_: StreamChunk<'_>| {};
        let heard = RecordingSink::new(&ear);
        let mut reader = ModelResponseBuilder::new(&ask, &heard, &endpoint);
        let mut lines = SseLineParser::default();
        for piece in data.chunks(size) {
            for line in lines.push(piece).ok()? {
                reader.push_event(&line).ok()?;
            }
        }
        lines.finish().map_or(Ok(()), |line| reader.push_event(&line)).ok()?;
        let answer = reader.finish().ok()?;
        let calls: Vec<_> = answer.calls.into_iter().map(|it| (it.name, it.input)).collect();
        Some((answer.text, answer.reasoning, calls, answer.is_truncated))
    };
    let whole = come(data.len().max(1));
    assert_eq!(come(1), whole);
    assert_eq!(come(7), whole);
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("stream", super::fuzz_stream);
    }
}
