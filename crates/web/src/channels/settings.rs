//! What the operator says about channels.

use helve_contract::{Error, Result};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// A channel as it is configured: `[channels.NAME]`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the model calls it.
    pub name: String,
    /// Who may be written to.
    pub allow: Vec<String>,
    pub(super) kind: Kind,
}

/// Whether standard output is free to be written to. A server that speaks through it has it taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// Nobody else writes to it.
    Free,
    /// Another protocol goes through it.
    Taken,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Log(Log),
    Webhook(Webhook),
    Mail(Mail),
    Signal(Signal),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    /// `stderr`, `stdout`, or a file.
    #[serde(default = "stderr")]
    pub(super) to: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Webhook {
    pub(super) url: String,
    pub(super) secret_env: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mail {
    pub(super) server: String,
    pub(super) port: Option<u16>,
    #[serde(default)]
    pub(super) tls: Tls,
    pub(super) user: Option<String>,
    pub(super) password_env: Option<String>,
    pub(super) from: String,
    pub(super) subject: Option<String>,
    /// A file of certificates to trust instead of the system's.
    pub(super) ca_file: Option<String>,
}

/// How a mail server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tls {
    /// In the clear first, and then no further without TLS.
    #[default]
    Starttls,
    /// TLS from the first byte.
    Implicit,
    /// In the clear: for a server on this machine.
    None,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signal {
    #[serde(default = "signal_cli")]
    pub(super) url: String,
    pub(super) account: Option<String>,
}

fn stderr() -> String {
    "stderr".to_owned()
}

fn signal_cli() -> String {
    "http://127.0.0.1:8080".to_owned()
}

impl Settings {
    /// Reads one channel, or says what is wrong with it.
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
            Some("log") => Kind::Log(part(rest).map_err(told)?),
            Some("webhook") => Kind::Webhook(part(rest).map_err(told)?),
            Some("mail") => Kind::Mail(part(rest).map_err(told)?),
            Some("signal") => Kind::Signal(part(rest).map_err(told)?),
            _ => return Err(told("needs a `kind`: log, webhook, mail or signal".into())),
        };
        Ok(Self { name: name.to_owned(), allow, kind })
    }

    /// Reads the whole table `channels`.
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
        let told = |value: Value| Settings::read("x", &value).unwrap_err().to_string();
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
        assert!(Settings::read("log", &json!({"allow": ["*"]})).is_ok());
    }
}
