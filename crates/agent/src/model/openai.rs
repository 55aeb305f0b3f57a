//! A model behind OpenAI's chat completions, which nearly everybody speaks.

use std::{
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::ports::Spent;
use reqwest::{
    Client, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
    redirect::Policy,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Answer, Ask, Ear, Endpoint, Model, ModelError, Piece, Prices,
    accumulate::{Accumulator, is_object},
    faults::{self, Fault},
    reasoning_details::ReasoningDetails,
    sse::Lines,
    wire::{self, REASONING_DETAILS, Refuses},
};

/// The longest answer that is taken.
const LONGEST: usize = 32 << 20;
/// How much of an error's body is read.
const WORDS: usize = 64 << 10;

/// A model behind OpenAI's chat completions.
pub struct OpenAi {
    client: Client,
    url: Url,
    headers: HeaderMap,
    endpoint: Endpoint,
    refuses: Mutex<Refuses>,
    /// 0: not known.
    window: AtomicU64,
    prices: Mutex<Option<Prices>>,
}

impl OpenAi {
    /// A client for an endpoint. Nothing is sent yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ModelError> {
        let url = address(&endpoint, "chat/completions")?;
        Ok(Self {
            client: client(&endpoint, &url)?,
            headers: headers(&endpoint)?,
            url,
            refuses: Mutex::default(),
            window: AtomicU64::new(endpoint.window.unwrap_or(0)),
            prices: Mutex::new(endpoint.prices),
            endpoint,
        })
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks the endpoint for the model's window and prices, where they are not configured. Not every endpoint tells.
    pub async fn learn(&self) {
        let known = self.window().is_some() && self.prices().is_some();
        if known {
            return;
        }
        let Ok(listed) = super::list(&self.endpoint).await else { return };
        let Some(own) = listed.into_iter().find(|it| it.id == self.endpoint.model) else { return };
        if let (None, Some(window)) = (self.window(), own.window) {
            self.window.store(window, Ordering::Relaxed);
        }
        let mut prices = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
        *prices = prices.or(own.prices);
    }

    fn prices(&self) -> Option<Prices> {
        *self.prices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until there is an answer, it is clear that there will be none, or something was said.
    async fn tries(&self, ask: &Ask<'_>, ear: &Ear<'_>) -> Result<Answer, ModelError> {
        let mut tried = 0;
        loop {
            let heard = Heard::new(ear);
            let fault = match self.once(ask, &heard).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            tried += 1;
            let said = heard.said();
            let (why, after) = match fault {
                Fault::Never(error) => return Err(error),
                Fault::Otherwise(change) => {
                    self.change(change);
                    continue;
                }
                Fault::Again { why, .. } if heard.spoke() => return Err(ModelError::Broken { why, said }),
                Fault::Again { why, after } => (why, after),
            };
            let wait = self.wait(tried, after);
            if after.is_some_and(|it| it > self.endpoint.times.longest_wait) || tried >= self.endpoint.tries {
                let tries = if tried == 1 { String::new() } else { format!(" (tried {tried} times)") };
                return Err(ModelError::Unreachable(format!("{why}{tries}")));
            }
            ear(Piece::Retry(&why, wait.as_millis() as u64));
            tokio::time::sleep(wait).await;
        }
    }

    fn change(&self, change: fn(&mut Refuses)) {
        change(&mut self.refuses.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// How long to wait: what the endpoint asks for, or twice as long every time, with a share of chance so that many
    /// clients do not come back at once.
    fn wait(&self, tried: u32, after: Option<Duration>) -> Duration {
        let times = &self.endpoint.times;
        let usual = times.backoff.saturating_mul(1 << (tried - 1).min(16));
        let base = after.unwrap_or(usual).min(times.longest_wait);
        let chance = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX);
        base.mul_f64(if after.is_some() { 1.0 + chance * 0.1 } else { 0.75 + chance * 0.5 })
    }

    /// Asks once.
    async fn once(&self, ask: &Ask<'_>, heard: &Heard<'_>) -> Result<Answer, Fault> {
        let refuses = *self.refuses.lock().unwrap_or_else(PoisonError::into_inner);
        let body = wire::body(ask, &self.endpoint.model, refuses).to_string();
        let length = body.len();
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let first = self.endpoint.times.first_byte;
        let response = match timeout(first, request.send()).await {
            Err(_) => return Err(faults::slow(&self.endpoint, first)),
            Ok(Err(error)) => return Err(faults::unsent(&self.endpoint, &error)),
            Ok(Ok(response)) => response,
        };
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        if status != 200 {
            let after = faults::after(response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()));
            let words = self.words(response).await;
            let unknown = faults::unknown_field(&words, refuses, wire::has_pictures(ask));
            return Err(unknown.unwrap_or_else(|| faults::status(&self.endpoint, status, &words, after)));
        }
        if kind.contains("html") {
            return Err(faults::page(&self.endpoint));
        }
        let mut reader = Reader::new(ask, heard, &self.endpoint);
        let whole = if kind.contains("json") {
            self.whole(response, &mut reader).await
        } else {
            self.stream(response, &mut reader).await
        };
        whole?;
        let mut answer = reader.finish()?;
        self.bill(&mut answer, length);
        Ok(answer)
    }

    /// The beginning of a body.
    async fn words(&self, mut response: Response) -> String {
        let mut bytes = Vec::new();
        while let Ok(Ok(Some(piece))) = timeout(self.endpoint.times.idle, response.chunk()).await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > WORDS {
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// An endpoint that does not stream.
    async fn whole(&self, mut response: Response, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(&mut response).await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LONGEST {
                return Err(faults::too_much(&self.endpoint));
            }
        }
        reader.line(&String::from_utf8_lossy(&bytes))?;
        reader.done = true;
        Ok(())
    }

    async fn stream(&self, mut response: Response, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let mut lines = Lines::default();
        while let Some(piece) = self.piece(&mut response).await? {
            let whole = lines.push(&piece).map_err(|_| faults::too_much(&self.endpoint))?;
            for line in whole {
                reader.line(&line)?;
                if reader.done {
                    return Ok(());
                }
            }
        }
        lines.end().map_or(Ok(()), |line| reader.line(&line))
    }

    async fn piece(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, Fault> {
        match timeout(self.endpoint.times.idle, response.chunk()).await {
            Err(_) => Err(faults::silent(&self.endpoint, self.endpoint.times.idle)),
            Ok(Err(_)) => Err(faults::broke(&self.endpoint)),
            Ok(Ok(piece)) => Ok(piece),
        }
    }

    /// What the answer took. Where the endpoint does not say, it is estimated.
    fn bill(&self, answer: &mut Answer, asked: usize) {
        let spent = &mut answer.spent;
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

    fn window(&self) -> Option<u64> {
        Some(self.window.load(Ordering::Relaxed)).filter(|it| *it > 0)
    }

    async fn answer(&self, ask: &Ask<'_>, ear: &Ear<'_>) -> Result<Answer, ModelError> {
        let said = Mutex::new(String::new());
        let listening = |piece: Piece<'_>| {
            if let Piece::Text(text) = piece {
                said.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
            }
            ear(piece);
        };
        tokio::select! {
            biased;
            () = ask.cancel.cancelled() => {}
            answer = self.tries(ask, &listening) => return answer,
        }
        Err(ModelError::Cancelled { said: said.into_inner().unwrap_or_else(PoisonError::into_inner) })
    }
}

/// What went to the ear in one try.
struct Heard<'a> {
    ear: &'a Ear<'a>,
    said: Mutex<(String, bool)>,
}

impl<'a> Heard<'a> {
    fn new(ear: &'a Ear<'a>) -> Self {
        Self { ear, said: Mutex::default() }
    }

    fn hear(&self, piece: Piece<'_>) {
        {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            said.1 = true;
            if let Piece::Text(text) = piece {
                said.0.push_str(text);
            }
        }
        (self.ear)(piece);
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn spoke(&self) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).1
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
struct Reader<'a> {
    heard: &'a Heard<'a>,
    endpoint: &'a Endpoint,
    answer: Answer,
    calls: Accumulator,
    details: ReasoningDetails,
    finish: Option<Finish>,
    done: bool,
}

impl<'a> Reader<'a> {
    fn new(ask: &Ask<'_>, heard: &'a Heard<'a>, endpoint: &'a Endpoint) -> Self {
        let names = ask.tools.iter().filter_map(|it| it["function"]["name"].as_str());
        Self {
            heard,
            endpoint,
            answer: Answer::default(),
            calls: Accumulator::new(names),
            details: ReasoningDetails::default(),
            finish: None,
            done: false,
        }
    }

    /// Takes one event.
    fn line(&mut self, line: &str) -> Result<(), Fault> {
        if line == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return Err(faults::garbage(self.endpoint, line));
        };
        if let Some(error) = event.get("error").filter(|it| !it.is_null()) {
            return Err(faults::said(self.endpoint, error));
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
        if size > LONGEST { Err(faults::too_much(self.endpoint)) } else { Ok(()) }
    }

    fn message(&mut self, message: &Value) {
        for field in ["reasoning_content", "reasoning"] {
            if let Some(text) = message[field].as_str().filter(|it| !it.is_empty()) {
                self.think(text);
                break;
            }
        }
        self.details.push(&message[REASONING_DETAILS]);
        match &message["content"] {
            Value::String(text) => self.say(text),
            Value::Array(parts) => {
                for part in parts {
                    if let Some(text) = part["text"].as_str() {
                        self.say(text);
                    } else if let Some(text) = part["thinking"].as_str().or(part["thinking"][0]["text"].as_str()) {
                        self.think(text);
                    }
                }
            }
            _ => {}
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.calls.push(call);
        }
    }

    fn say(&mut self, text: &str) {
        if !text.is_empty() {
            self.answer.text.push_str(text);
            self.heard.hear(Piece::Text(text));
        }
    }

    fn think(&mut self, text: &str) {
        self.answer.reasoning.push_str(text);
        self.heard.hear(Piece::Reasoning(text));
    }

    fn usage(&mut self, usage: &Value) {
        let spent = &mut self.answer.spent;
        if let Some(tokens) = usage["prompt_tokens"].as_u64() {
            let (prompt, completion) = (&usage["prompt_tokens_details"], &usage["completion_tokens_details"]);
            let first = |fields: [&Value; 2]| fields.iter().find_map(|it| it.as_u64()).unwrap_or(0);
            *spent = Spent {
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
    fn finish(self) -> Result<Answer, Fault> {
        let Self { endpoint, mut answer, calls, details, finish, done, .. } = self;
        if finish.is_none() && !done {
            return Err(faults::broke(endpoint));
        }
        if finish == Some(Finish::Error) {
            return Err(faults::broke(endpoint));
        }
        answer.cut = finish == Some(Finish::Length);
        answer.calls = calls.calls();
        answer.opaque.extend(details.finish().map(|it| json!({ REASONING_DETAILS: it })));
        if answer.cut {
            // The last call was being written when the limit came. What is not a whole object does not run.
            let (whole, lost) = answer.calls.into_iter().partition(|it| is_object(&it.input));
            answer.calls = whole;
            answer.lost = lost.into_iter().map(|it: super::Use| it.name).collect();
        }
        if finish == Some(Finish::ContentFilter) && answer.calls.is_empty() {
            return Err(faults::filtered(endpoint));
        }
        Ok(answer)
    }
}

/// The address of something at an endpoint. A key does not travel in the clear through the world.
pub(crate) fn address(endpoint: &Endpoint, what: &str) -> Result<Url, ModelError> {
    let base = endpoint.base_url.trim().trim_end_matches('/').trim_end_matches("/chat/completions");
    let url = Url::parse(&format!("{base}/{what}"))
        .map_err(|error| ModelError::Refused(format!("`{base}` is no address of a model: {error}")))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if endpoint.key.is_none() || is_near(&url) => Ok(url),
        "http" => Err(ModelError::Refused(format!(
            "the key would be sent in the clear to {base}; use https, or an address of this network"
        ))),
        other => Err(ModelError::Refused(format!("`{other}` is no way to reach a model; use https"))),
    }
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

fn is_loopback(url: &Url) -> bool {
    host(url) == "localhost" || host(url).parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// On this machine, or on a network that nobody else sees.
fn is_near(url: &Url) -> bool {
    let name = host(url);
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(it)) => it.is_loopback() || it.is_private() || it.is_link_local(),
        Ok(IpAddr::V6(it)) => it.is_loopback() || it.is_unique_local() || it.is_unicast_link_local(),
        Err(_) => matches!(name.rsplit_once('.'), None | Some((_, "local" | "internal"))),
    }
}

pub(crate) fn client(endpoint: &Endpoint, url: &Url) -> Result<Client, ModelError> {
    // A second call finds it installed, which is as good.
    _ = rustls::crypto::ring::default_provider().install_default();
    // A redirect would carry the conversation, and perhaps the key, to somebody else.
    let mut client = Client::builder().redirect(Policy::none()).connect_timeout(endpoint.times.connect);
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
pub fn try_stream(data: &[u8]) {
    let endpoint = Endpoint::new("http://127.0.0.1:1/v1", "trial");
    let ask = Ask {
        system: "",
        messages: &[],
        tools: &[
            serde_json::json!({"function": {"name": "read"}}),
            serde_json::json!({"function": {"name": "read_all"}}),
        ],
        max_tokens: None,
        cancel: helve_contract::CancellationToken::new(),
    };
    let come = |size: usize| {
        let ear = |_: Piece<'_>| {};
        let heard = Heard::new(&ear);
        let mut reader = Reader::new(&ask, &heard, &endpoint);
        let mut lines = Lines::default();
        for piece in data.chunks(size) {
            for line in lines.push(piece).ok()? {
                reader.line(&line).ok()?;
            }
        }
        lines.end().map_or(Ok(()), |line| reader.line(&line)).ok()?;
        let answer = reader.finish().ok()?;
        let calls: Vec<_> = answer.calls.into_iter().map(|it| (it.name, it.input)).collect();
        Some((answer.text, answer.reasoning, calls, answer.cut))
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
        replay("stream", super::try_stream);
    }
}
