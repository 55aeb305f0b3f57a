//! Vectors of texts from OpenAI's embeddings, which nearly every endpoint speaks.

use std::time::Duration;

use reqwest::{
    Client, Response, Url,
    header::{HeaderMap, RETRY_AFTER},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Endpoint, ModelError,
    faults::{self, AttemptError},
    openai,
};

/// Texts of one request.
const BATCH_SIZE: usize = 64;
/// The longest answer that is taken.
const MAX_RESPONSE_BYTES: usize = 32 << 20;
/// How long one request may take. Whoever asks waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a request is sent at most.
const MAX_ATTEMPTS: u32 = 3;

/// A model that makes vectors of texts.
pub struct EmbeddingsClient {
    client: Client,
    url: Url,
    headers: HeaderMap,
    endpoint: Endpoint,
}

impl EmbeddingsClient {
    /// A client for an endpoint. Nothing is sent yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ModelError> {
        let url = openai::endpoint_url(&endpoint, "embeddings")?;
        Ok(Self { client: openai::http_client(&endpoint, &url)?, headers: openai::headers(&endpoint)?, url, endpoint })
    }

    /// One vector a text, in their order, all of one length.
    pub async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut all: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH_SIZE) {
            all.extend(self.embed_with_retries(batch).await?);
        }
        let dims = all.first().map_or(0, Vec::len);
        if all.iter().any(|it| it.len() != dims || it.iter().any(|number| !number.is_finite())) {
            return Err(ModelError::Unreachable(format!("{} gave vectors of several forms", self.endpoint.base_url)));
        }
        Ok(all)
    }

    async fn embed_with_retries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, ModelError> {
        let times = &self.endpoint.timeouts;
        let mut tried = 0;
        loop {
            let (why, after) = match self.embed_once(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(AttemptError::Fatal(error)) => return Err(error),
                Err(AttemptError::RetryWithout(_)) => ("it wants to be asked otherwise".to_owned(), None),
                Err(AttemptError::Retry { why, after }) => (why, after),
            };
            tried += 1;
            let wait = after.unwrap_or_else(|| times.backoff.saturating_mul(1 << (tried - 1)));
            if tried >= MAX_ATTEMPTS || wait > REQUEST_TIMEOUT {
                return Err(ModelError::Unreachable(format!("{why} (tried {tried} times)")));
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn embed_once(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, AttemptError> {
        // Endpoints refuse a text of nothing.
        let input: Vec<&str> = texts.iter().map(|it| if it.trim().is_empty() { "." } else { *it }).collect();
        let body = json!({ "model": self.endpoint.model, "input": input }).to_string();
        let asked = async {
            let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
            let response = request.send().await.map_err(|error| faults::send_failed(&self.endpoint, &error))?;
            let status = response.status().as_u16();
            let after = faults::parse_retry_after(response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()));
            let text = self.read_body(response).await?;
            if status == 200 { Ok(text) } else { Err(faults::http_status(&self.endpoint, status, &text, after)) }
        };
        let text = timeout(REQUEST_TIMEOUT, asked)
            .await
            .map_err(|_| faults::first_byte_timeout(&self.endpoint, REQUEST_TIMEOUT))??;
        parse_vectors(&text, texts.len()).ok_or_else(|| faults::invalid_json(&self.endpoint, &text))
    }

    async fn read_body(&self, mut response: Response) -> Result<String, AttemptError> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|_| faults::stream_ended_early(&self.endpoint))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_RESPONSE_BYTES {
                return Err(faults::response_too_large(&self.endpoint));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The vectors of an answer, by their numbers; nothing, if one is missing.
fn parse_vectors(text: &str, count: usize) -> Option<Vec<Vec<f32>>> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let mut all = vec![Vec::new(); count];
    for (at, item) in answer["data"].as_array()?.iter().enumerate() {
        let place = item["index"].as_u64().map_or(at, |it| it as usize);
        let numbers: Option<Vec<f32>> =
            item["embedding"].as_array()?.iter().map(|it| Some(it.as_f64()? as f32)).collect();
        *all.get_mut(place)? = numbers?;
    }
    all.iter().all(|it| !it.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_in_the_order_of_their_numbers() {
        let text = r#"{"data":[{"index":1,"embedding":[0,1]},{"index":0,"embedding":[0.5,-1]}]}"#;
        assert_eq!(parse_vectors(text, 2), Some(vec![vec![0.5, -1.0], vec![0.0, 1.0]]));
        assert_eq!(parse_vectors(text, 3), None, "one is missing");
        assert_eq!(parse_vectors(text, 1), None, "one is too many");
        assert_eq!(parse_vectors(r#"{"data":[{"embedding":["x"]}]}"#, 1), None);
        assert_eq!(parse_vectors("<html>", 1), None);
    }
}
