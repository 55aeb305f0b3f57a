//! Writes outgoing JSON-RPC messages, field by field.

use std::fmt::Display;

use helve_contract::json::ObjectWriter;
use serde::Serialize;
use serde_json::json;

use crate::{
    revision::ProtocolEra,
    wire::{RequestId, RpcError},
};

/// A result in construction.
pub(crate) struct ResponseBuilder {
    fields: ObjectWriter,
    era: ProtocolEra,
    subscription: Option<RequestId>,
}

impl ResponseBuilder {
    /// Begins the result of a request.
    pub(crate) fn new(id: &RequestId, era: ProtocolEra) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        write(&mut bytes, id);
        bytes.extend_from_slice(br#","result":"#);
        Self { fields: ObjectWriter::with_prefix(bytes), era, subscription: None }
    }

    /// Adds a field.
    pub(crate) fn field(mut self, key: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        self.fields = self.fields.value(key, value);
        self
    }

    /// Adds a field whose JSON is there already.
    pub(crate) fn raw(mut self, key: &'static str, json: &str) -> Self {
        self.fields = self.fields.raw(key, json.as_bytes());
        self
    }

    /// Adds a field whose JSON `write` appends to the bytes.
    pub(crate) fn nested(mut self, key: &'static str, write: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        self.fields = self.fields.raw_with(key, write);
        self
    }

    /// Sets how long a client may cache the result, if the revision supports it.
    pub(crate) fn cacheable_for(self, milliseconds: u32) -> Self {
        match self.era {
            ProtocolEra::Legacy => self,
            ProtocolEra::Modern => self.field("ttlMs", &milliseconds).field("cacheScope", "private"),
        }
    }

    /// Names the subscription that the result ends.
    pub(crate) fn for_subscription(mut self, subscription: &RequestId) -> Self {
        self.subscription = Some(subscription.clone());
        self
    }

    /// The whole message.
    pub(crate) fn finish(self) -> Vec<u8> {
        let whole = match self.era {
            ProtocolEra::Legacy => self,
            ProtocolEra::Modern => {
                let mut meta = json!({ "io.modelcontextprotocol/serverInfo": server_info() });
                if let Some(subscription) = &self.subscription {
                    meta["io.modelcontextprotocol/subscriptionId"] = json!(subscription);
                }
                self.field("resultType", "complete").field("_meta", &meta)
            }
        };
        let mut bytes = whole.fields.finish();
        bytes.push(b'}');
        bytes
    }
}

/// The server's name and version.
pub(crate) fn server_info() -> serde_json::Value {
    json!({ "name": "helve", "title": "Helve", "version": env!("CARGO_PKG_VERSION") })
}

/// An error response, also to an invalid message.
pub(crate) fn error(id: Option<&RequestId>, fault: &RpcError) -> Vec<u8> {
    let mut bytes = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    write(&mut bytes, &id);
    bytes.extend_from_slice(br#","error":"#);
    write(&mut bytes, fault);
    bytes.push(b'}');
    bytes
}

/// A notification.
pub(crate) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut bytes = br#"{"jsonrpc":"2.0","method":"#.to_vec();
    write(&mut bytes, method);
    bytes.extend_from_slice(br#","params":"#);
    write(&mut bytes, params);
    bytes.push(b'}');
    bytes
}

/// A request to the client.
pub(crate) fn request(id: impl Display, method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut bytes = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    write(&mut bytes, &id.to_string());
    bytes.extend_from_slice(br#","method":"#);
    write(&mut bytes, method);
    bytes.extend_from_slice(br#","params":"#);
    write(&mut bytes, params);
    bytes.push(b'}');
    bytes
}

/// Several answers as one array.
pub(crate) fn batch(answers: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    (!answers.is_empty()).then(|| [&b"["[..], &answers.join(&b','), b"]"].concat())
}

/// Serialising in memory fails only for a map with non-string keys; then the value is `null` and the message stays
/// valid.
pub(crate) fn write(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = bytes.len();
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(start);
        bytes.extend_from_slice(b"null");
    }
}
