//! Signal, through the JSON-RPC of a signal-cli daemon.

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{Call, Error, Result, ports::OutgoingFile};
use serde_json::{Map, Value, json};
use url::Url;

use super::{outlets::Channel, webhook::check_size};
use crate::{
    client::{GuardedClient, HttpRequest},
    search::{single_line, wire},
};

/// The most characters of one message, and bytes of a file.
const MAX_MESSAGE_CHARS: usize = 4_000;
const MAX_ATTACHMENT_BYTES: usize = 8 << 20;
const MAX_RESPONSE_BYTES: usize = 1 << 20;

pub(super) struct SignalSender {
    url: Url,
    account: Option<String>,
    client: GuardedClient,
}

impl SignalSender {
    pub(super) fn new(base: &str, account: Option<&str>, client: GuardedClient) -> Result<Self> {
        let mut url = wire::parse_base_url(base)?;
        let path = format!("{}/api/v1/rpc", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self { url, account: account.map(str::to_owned), client })
    }

    async fn rpc(&self, call: &Call, to: &str, number: usize, more: Map<String, Value>) -> Result<()> {
        let mut params = Map::new();
        if let Some(account) = &self.account {
            params.insert("account".into(), json!(account));
        }
        match recipient(to) {
            SignalRecipient::Person(it) => params.insert("recipient".into(), json!([it])),
            SignalRecipient::Group(it) => params.insert("groupId".into(), json!(it)),
        };
        params.extend(more);
        let body = json!({"jsonrpc": "2.0", "method": "send", "params": params, "id": format!("{}-{number}", call.id)});
        let request = HttpRequest::post_json(self.url.as_str(), &body);
        let answer = wire::send_bounded(&self.client, call, request, MAX_RESPONSE_BYTES).await?;
        let told = |why: String| Err(Error::failed(format!("nothing was delivered: {why}")));
        if !answer.is_success() {
            return told(format!("signal-cli answered HTTP {}; ask the user to look at it", answer.status));
        }
        let Ok(answer) = wire::json(&answer) else { return told("signal-cli did not answer in JSON".into()) };
        if let Some(error) = answer["error"]["message"].as_str() {
            return told(format!("signal-cli says: {}", single_line(error, 300)));
        }
        let failed = answer["result"]["results"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|it| it["type"].as_str().filter(|it| *it != "SUCCESS"));
        match failed {
            Some("UNREGISTERED_FAILURE") => told(format!("{to} is not a user of Signal")),
            Some(other) => told(format!("Signal says {}", single_line(other, 80))),
            None => Ok(()),
        }
    }
}

enum SignalRecipient<'a> {
    Person(&'a str),
    Group(&'a str),
}

/// `group:ID`, `dm:NUMBER`, or a number, name or id by itself.
fn recipient(address: &str) -> SignalRecipient<'_> {
    match address.split_once(':') {
        Some(("group", id)) => SignalRecipient::Group(id),
        Some(("dm", id)) => SignalRecipient::Person(id),
        _ => SignalRecipient::Person(address),
    }
}

/// Splits text into chunks, preferably after a paragraph, a line or a word.
fn split_message(text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text.trim();
    while let Some((end, _)) = rest.char_indices().nth(most) {
        let head = &rest[..end];
        let cut = ["\n\n", "\n", " "].iter().find_map(|it| head.rfind(it).filter(|at| *at >= end / 2)).unwrap_or(end);
        pieces.push(rest[..cut].trim_end());
        rest = rest[cut..].trim_start();
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[async_trait]
impl Channel for SignalSender {
    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()> {
        let pieces = split_message(text, MAX_MESSAGE_CHARS);
        for (number, piece) in pieces.iter().enumerate() {
            let more = Map::from_iter([("message".to_owned(), json!(piece))]);
            self.rpc(call, to, number, more).await.map_err(|error| match number {
                0 => error,
                sent => Error::failed(format!("only {sent} of {} parts were sent; {error}", pieces.len())),
            })?;
        }
        Ok(())
    }

    async fn send_media(&self, call: &Call, to: &str, file: &OutgoingFile) -> Result<()> {
        check_size(file, MAX_ATTACHMENT_BYTES)?;
        let name: String = file.name.chars().map(|it| if is_file_name_char(it) { it } else { '_' }).collect();
        let data = format!("data:{};filename={name};base64,{}", file.media.mime, STANDARD.encode(&file.media.bytes));
        let mut more = Map::from_iter([("attachments".to_owned(), json!([data]))]);
        more.insert("message".into(), json!(file.caption.as_deref().unwrap_or_default()));
        if file.kind == "voice" {
            more.insert("voiceNote".into(), json!(true));
        }
        self.rpc(call, to, 0, more).await
    }
}

/// What may stand in the name of a file inside a data address.
fn is_file_name_char(it: char) -> bool {
    it.is_alphanumeric() || matches!(it, '.' | '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_a_good_place() {
        assert_eq!(split_message("one two three four", 10), ["one two", "three four"]);
        assert_eq!(split_message("aaaa\n\nbbb ccc", 8), ["aaaa", "bbb ccc"]);
        assert_eq!(split_message("äöüäöüäöü", 4), ["äöüä", "öüäö", "ü"]);
        assert_eq!(split_message("short", 10), ["short"]);
    }
}
