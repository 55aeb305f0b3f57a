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
    faults::{self, Fault},
    openai,
};

/// Texts of one request.
const BATCH: usize = 64;
/// The longest answer that is taken.
const LONGEST: usize = 32 << 20;
/// How long one request may take. Whoever asks waits for it.
const WAIT: Duration = Duration::from_secs(30);
/// How often a request is sent at most.
const TRIES: u32 = 3;

/// A model that makes vectors of texts.
pub struct Embeddings {
    client: Client,
    url: Url,
    headers: HeaderMap,
    endpoint: Endpoint,
}

impl Embeddings {
    /// A client for an endpoint. Nothing is sent yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ModelError> {
        let url = openai::address(&endpoint, "embeddings")?;
        Ok(Self { client: openai::client(&endpoint, &url)?, headers: openai::headers(&endpoint)?, url, endpoint })
    }

    /// One vector a text, in their order, all of one length.
    pub async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut all: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            all.extend(self.tries(batch).await?);
        }
        let dims = all.first().map_or(0, Vec::len);
        if all.iter().any(|it| it.len() != dims || it.iter().any(|number| !number.is_finite())) {
            return Err(ModelError::Unreachable(format!("{} gave vectors of several forms", self.endpoint.base_url)));
        }
        Ok(all)
    }

    async fn tries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, ModelError> {
        let times = &self.endpoint.times;
        let mut tried = 0;
        loop {
            let (why, after) = match self.once(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(Fault::Never(error)) => return Err(error),
                Err(Fault::Otherwise(_)) => ("it wants to be asked otherwise".to_owned(), None),
                Err(Fault::Again { why, after }) => (why, after),
            };
            tried += 1;
            let wait = after.unwrap_or_else(|| times.backoff.saturating_mul(1 << (tried - 1)));
            if tried >= TRIES || wait > WAIT {
                return Err(ModelError::Unreachable(format!("{why} (tried {tried} times)")));
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn once(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Fault> {
        // Endpoints refuse a text of nothing.
        let input: Vec<&str> = texts.iter().map(|it| if it.trim().is_empty() { "." } else { *it }).collect();
        let body = json!({ "model": self.endpoint.model, "input": input }).to_string();
        let asked = async {
            let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
            let response = request.send().await.map_err(|error| faults::unsent(&self.endpoint, &error))?;
            let status = response.status().as_u16();
            let after = faults::after(response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()));
            let text = self.whole(response).await?;
            if status == 200 { Ok(text) } else { Err(faults::status(&self.endpoint, status, &text, after)) }
        };
        let text = timeout(WAIT, asked).await.map_err(|_| faults::slow(&self.endpoint, WAIT))??;
        vectors(&text, texts.len()).ok_or_else(|| faults::garbage(&self.endpoint, &text))
    }

    async fn whole(&self, mut response: Response) -> Result<String, Fault> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|_| faults::broke(&self.endpoint))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LONGEST {
                return Err(faults::too_much(&self.endpoint));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The vectors of an answer, by their numbers; nothing, if one is missing.
fn vectors(text: &str, count: usize) -> Option<Vec<Vec<f32>>> {
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
        assert_eq!(vectors(text, 2), Some(vec![vec![0.5, -1.0], vec![0.0, 1.0]]));
        assert_eq!(vectors(text, 3), None, "one is missing");
        assert_eq!(vectors(text, 1), None, "one is too many");
        assert_eq!(vectors(r#"{"data":[{"embedding":["x"]}]}"#, 1), None);
        assert_eq!(vectors("<html>", 1), None);
    }
}
