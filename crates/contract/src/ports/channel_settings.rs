//! The settings of channels: one table `[channels.NAME]` each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Error, Result};

/// The settings of one channel: `[channels.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChannelSettings {
    /// What the model calls it: the NAME of the table.
    #[serde(skip)]
    pub name: String,
    /// The addresses that may be written to.
    pub allow: Vec<String>,
    /// Its kind, which is its name unless `kind` says otherwise, and what belongs to the kind.
    #[serde(flatten)]
    pub kind: ChannelKind,
}

/// What kind of channel it is, with the settings of that kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ChannelKind {
    /// Lines in a file or a stream.
    Log(LogChannel),
    /// Signed HTTP requests.
    Webhook(WebhookChannel),
    /// Mail over SMTP.
    Mail(MailChannel),
    /// Signal, through a signal-cli daemon.
    Signal(SignalChannel),
}

/// Lines in a file or a stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogChannel {
    /// `stderr`, `stdout`, or a file.
    #[serde(default = "stderr")]
    pub to: String,
}

/// Signed HTTP requests to one address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookChannel {
    /// Where requests go.
    pub url: String,
    /// The variable with the secret that signs them.
    pub secret_env: Option<String>,
}

/// Mail over SMTP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailChannel {
    /// The mail server.
    pub server: String,
    /// Its port; the usual one of `tls` without it.
    pub port: Option<u16>,
    /// How the connection is encrypted.
    #[serde(default)]
    pub tls: MailTls,
    /// The user to log in as.
    pub user: Option<String>,
    /// The variable with the password.
    pub password_env: Option<String>,
    /// The sender: `NAME <a@b.org>`.
    pub from: String,
    /// The subject of messages.
    pub subject: Option<String>,
    /// A file of certificates to trust instead of the system's.
    pub ca_file: Option<String>,
}

/// How the connection to a mail server is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MailTls {
    /// In the clear first, and then no further without TLS.
    #[default]
    Starttls,
    /// TLS from the first byte.
    Implicit,
    /// In the clear: for a server on this machine.
    None,
}

/// Signal, through a signal-cli daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalChannel {
    /// Where the daemon listens.
    #[serde(default = "signal_cli")]
    pub url: String,
    /// The account to send from, where the daemon has several.
    pub account: Option<String>,
}

fn stderr() -> String {
    "stderr".to_owned()
}

fn signal_cli() -> String {
    "http://127.0.0.1:8080".to_owned()
}

impl ChannelSettings {
    /// Parses one channel. The error says what is wrong.
    pub fn read(name: &str, value: &Value) -> Result<Self> {
        let told = |why: String| Error::failed(format!("the channel `{name}` {why}"));
        if name.is_empty() || !name.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_')) {
            return Err(told("must have a name of letters, digits, `-` and `_`".into()));
        }
        let Value::Object(mut map) = value.clone() else { return Err(told("is not a table".into())) };
        let allow = match map.remove("allow") {
            Some(list) => serde_json::from_value(list).map_err(|_| told("has an `allow` that is no list".into()))?,
            None => {
                return Err(told(
                    "does not say who may be written to; set `allow`, or allow = [\"*\"] for anybody".into(),
                ));
            }
        };
        let kind = map.remove("kind").unwrap_or_else(|| Value::from(name));
        let rest = Value::Object(map);
        let kind = match kind.as_str() {
            Some("log") => ChannelKind::Log(part(rest).map_err(told)?),
            Some("webhook") => ChannelKind::Webhook(part(rest).map_err(told)?),
            Some("mail") => ChannelKind::Mail(part(rest).map_err(told)?),
            Some("signal") => ChannelKind::Signal(part(rest).map_err(told)?),
            _ => return Err(told("needs a `kind`: log, webhook, mail or signal".into())),
        };
        Ok(Self { name: name.to_owned(), allow, kind })
    }

    /// Parses the whole table `channels`.
    pub fn read_all(value: &Value) -> Result<Vec<Self>> {
        match value {
            Value::Object(map) => map.iter().map(|(name, it)| Self::read(name, it)).collect(),
            Value::Null => Ok(Vec::new()),
            _ => Err(Error::failed("`channels` must be a table of channels by their names")),
        }
    }
}

fn part<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("is not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn says_what_is_wrong_with_a_channel() {
        let told = |value: Value| ChannelSettings::read("x", &value).unwrap_err().to_string();
        assert_eq!(
            told(json!({"kind": "log"})),
            "the channel `x` does not say who may be written to; set `allow`, or allow = [\"*\"] for anybody"
        );
        assert_eq!(
            told(json!({"kind": "fax", "allow": []})),
            "the channel `x` needs a `kind`: log, webhook, mail or signal"
        );
        assert_eq!(
            told(json!({"kind": "log", "allow": ["*"], "secret": 1})),
            "the channel `x` is not understood: unknown field `secret`, expected `to`"
        );
        assert!(ChannelSettings::read("log", &json!({"allow": ["*"]})).is_ok());
    }
}
