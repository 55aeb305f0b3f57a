//! Outbound webhooks: signed JSON POSTs with retries.

use std::time::Duration;

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{Call, Error, Result, ports::OutgoingFile};
use serde_json::{Value, json};
use url::Url;

use super::{hmac::sign, outlets::Channel};
use crate::{
    client::{GuardedClient, HttpRequest},
    search::{single_line, wire},
};

/// The largest file that goes out in a webhook.
const MAX_ATTACHMENT_BYTES: usize = 8 << 20;
/// How often it is tried, and how long the first pause is.
const MAX_ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// How much of an answer is looked at.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

pub(super) struct WebhookSender {
    name: String,
    url: Url,
    secret: Option<String>,
    client: GuardedClient,
}

impl WebhookSender {
    pub(super) fn new(name: &str, url: &str, secret: Option<String>, client: GuardedClient) -> Result<Self> {
        Ok(Self { name: name.to_owned(), url: wire::parse_base_url(url)?, secret, client })
    }

    async fn post(&self, call: &Call, body: &Value) -> Result<()> {
        // The same id for every attempt, so that the receiver recognises repetitions.
        let id = format!("{}-{}", safe_header_value(&call.session.id), call.uuid);
        let mut request = HttpRequest::post_json(self.url.as_str(), body).header("X-Webhook-Id", id);
        if let Some(secret) = &self.secret {
            let signature = sign(secret.as_bytes(), &request.body);
            request = request.header("X-Webhook-Signature", signature);
        }
        let mut last = String::new();
        for turn in 0..MAX_ATTEMPTS {
            if turn > 0 {
                tokio::select! {
                    () = tokio::time::sleep(RETRY_DELAY * 4_u32.pow(turn - 1)) => {}
                    () = call.cancel.cancelled() => return Err(Error::Cancelled),
                }
            }
            match wire::send_bounded(&self.client, call, request.clone(), MAX_RESPONSE_BYTES).await {
                Ok(answer) if answer.is_success() => return Ok(()),
                Ok(answer) if answer.status == 429 || answer.status >= 500 => last = format!("HTTP {}", answer.status),
                Ok(answer) => {
                    let said = single_line(&String::from_utf8_lossy(&answer.body), 200);
                    let said = if said.is_empty() { said } else { format!(": {said}") };
                    return Err(Error::failed(format!(
                        "nothing was delivered: {} refused it (HTTP {}){said}",
                        self.name, answer.status
                    )));
                }
                Err(Error::Failed(why)) => last = why,
                Err(other) => return Err(other),
            }
        }
        Err(Error::failed(format!(
            "nothing was delivered: {} did not take it in {MAX_ATTEMPTS} tries ({last})",
            self.name
        )))
    }
}

/// What may stand in a header.
fn safe_header_value(text: &str) -> String {
    text.chars().filter(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.')).take(100).collect()
}

#[async_trait]
impl Channel for WebhookSender {
    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()> {
        let body = json!({"channel": self.name, "to": to, "content": text, "session": call.session.id});
        self.post(call, &body).await
    }

    async fn send_media(&self, call: &Call, to: &str, file: &OutgoingFile) -> Result<()> {
        check_size(file, MAX_ATTACHMENT_BYTES)?;
        let body = json!({
            "channel": self.name,
            "to": to,
            "content": file.caption,
            "session": call.session.id,
            "media": {
                "name": file.name,
                "type": file.kind,
                "mime_type": file.media.mime,
                "data": STANDARD.encode(&file.media.bytes),
            },
        });
        self.post(call, &body).await
    }
}

/// Refuses a file that is larger than a channel takes.
pub(super) fn check_size(file: &OutgoingFile, most: usize) -> Result<()> {
    let size = file.media.bytes.len();
    if size <= most {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{} was not sent: it has {size} bytes, and this channel takes at most {most}; send a smaller one",
        file.name
    )))
}
