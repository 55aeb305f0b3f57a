//! Parses incoming JSON-RPC: messages, ids, parameters and errors.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value, error::Category, value::RawValue};

/// A message of any kind, not looked into further than needed.
#[derive(Deserialize)]
pub(crate) struct RpcMessage<'a> {
    #[serde(borrow, default)]
    pub jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present_or_null")]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present_or_null")]
    pub result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

/// A field that is there, even as `null`.
fn present_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> RpcMessage<'a> {
    /// Reads a message.
    pub(crate) fn parse(text: &'a str) -> Result<Self, RpcError> {
        let message: Self = serde_json::from_str(text).map_err(|error| match error.classify() {
            Category::Data => RpcError::invalid_request(format!("not a JSON-RPC message: {error}")),
            _ => RpcError::parse_error(format!("not JSON: {error}")),
        })?;
        match message.jsonrpc.as_deref() {
            Some("2.0") => Ok(message),
            _ => Err(RpcError::invalid_request("not a JSON-RPC 2.0 message: \"jsonrpc\" must be \"2.0\"")),
        }
    }

    /// The id, where it is one.
    pub(crate) fn id(&self) -> Result<Option<RequestId>, RpcError> {
        self.id.map(RequestId::read).transpose()
    }
}

/// The id of a request: a string or a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum RequestId {
    /// A number.
    Number(Number),
    /// A string.
    Text(String),
}

impl RequestId {
    fn read(raw: &RawValue) -> Result<Self, RpcError> {
        serde_json::from_str(raw.get()).map_err(|_| RpcError::invalid_request("an id must be a string or a number"))
    }
}

/// Everything that any of our methods looks for in its parameters.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestParams<'a> {
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub level: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub protocol_version: Option<Cow<'a, str>>,
    #[serde(default)]
    pub capabilities: Option<Value>,
    #[serde(default)]
    pub notifications: Option<Value>,
    #[serde(default)]
    pub request_id: Option<RequestId>,
    #[serde(borrow, default, rename = "_meta")]
    pub meta: RequestMeta<'a>,
}

/// What a request says about itself.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestMeta<'a> {
    #[serde(borrow, default)]
    pub progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: Option<Cow<'a, str>>,
    #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Option<Value>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    pub level: Option<Cow<'a, str>>,
}

impl<'a> RequestParams<'a> {
    /// Reads the parameters of a request; none at all are empty ones.
    pub(crate) fn read(raw: Option<&'a RawValue>) -> Result<Self, RpcError> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        if !raw.get().starts_with('{') {
            return Err(RpcError::invalid_params("params must be an object"));
        }
        serde_json::from_str(raw.get()).map_err(|error| RpcError::invalid_params(format!("params do not fit: {error}")))
    }
}

/// An error of the protocol, as JSON-RPC has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RpcError {
    pub code: i32,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// What came is not JSON.
    pub(crate) fn parse_error(message: impl Into<String>) -> Self {
        Self::new(-32700, message)
    }

    /// It is JSON, and no request.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, message)
    }

    /// Nobody answers to this method.
    pub(crate) fn method_not_found(name: &str) -> Self {
        Self::new(-32601, format!("Method not found: {}", truncate_name(name)))
    }

    /// The method is known, what was sent with it does not fit.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// The same with data for programs.
    pub(crate) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }
}

/// Truncates an external name for messages.
pub(crate) fn truncate_name(name: &str) -> String {
    let mut short: String = name.chars().take(100).map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_bad_json_from_bad_requests() {
        let code = |text| RpcMessage::parse(text).err().map(|it| it.code);
        assert_eq!(code("{"), Some(-32700));
        assert_eq!(code("nonsense"), Some(-32700));
        assert_eq!(code("17"), Some(-32600));
        assert_eq!(code(r#"{"id":1,"method":"ping"}"#), Some(-32600));
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#), Some(-32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#), Some(-32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), None);
    }

    #[test]
    fn an_id_is_a_string_or_a_number() {
        let id =
            |text: &str| RpcMessage::parse(&format!(r#"{{"jsonrpc":"2.0","method":"x","id":{text}}}"#)).unwrap().id();
        assert_eq!(id("7").unwrap(), Some(RequestId::Number(7.into())));
        assert_eq!(id(r#""\u0061""#).unwrap(), Some(RequestId::Text("a".into())));
        for wrong in ["null", "true", "[1]", "{}"] {
            assert_eq!(id(wrong).unwrap_err().code, -32600);
        }
    }

    #[test]
    fn a_nesting_bomb_is_only_an_error() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!(r#"{{"jsonrpc":"2.0","method":"x","id":{deep}}}"#);
        assert_eq!(RpcMessage::parse(&text).unwrap().id().unwrap_err().code, -32600);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"x","id":1,"params":{{"capabilities":{deep}}}}}"#);
        assert_eq!(RequestParams::read(RpcMessage::parse(&text).unwrap().params).err().unwrap().code, -32602);
    }
}
