//! The channels of a session, by name, each with its allowlist of recipients.

use std::path::Path;

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Media, Result, closest_names,
    ports::{Attachment, ChannelAddress, ChannelKind as Kind, Channels, OutgoingFile},
};

use super::{
    Attachments, Settings, StdoutUse, allow::AddressAllowlist, log::LogSender, mail::MailSender, signal::SignalSender,
    webhook::WebhookSender,
};
use crate::{client::GuardedClient, search::wire};

/// The most characters of one message.
const MAX_MESSAGE_CHARS: usize = 100_000;

/// A channel.
#[async_trait]
pub(super) trait Channel: Send + Sync {
    /// Why an address is invalid for this channel, if it is.
    fn invalid_address(&self, _address: &str) -> Option<String> {
        None
    }
    /// Sends words.
    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()>;
    /// Sends a file.
    async fn send_media(&self, call: &Call, to: &str, file: &OutgoingFile) -> Result<()>;
}

/// The channels that the operator configured.
#[derive(Default)]
pub struct ChannelRegistry {
    all: Vec<RegisteredChannel>,
    left_out: Vec<ChannelLeftOut>,
    default_recipient: Option<ChannelAddress>,
    attachments: Option<Attachments>,
}

/// A channel that is configured and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelLeftOut {
    /// Its name.
    pub name: String,
    /// Why it cannot be used.
    pub why: String,
}

struct RegisteredChannel {
    name: String,
    allow: AddressAllowlist,
    outlet: Box<dyn Channel>,
}

impl ChannelRegistry {
    /// Opens the configured channels. Secrets come from the environment through `variable`. Configured addresses may
    /// be private; nothing else is reachable.
    ///
    /// A channel that cannot be used, for example without its secret, is [left out](Self::left_out).
    pub fn open(settings: &[Settings], stdout: StdoutUse, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let (mut usable, mut left_out) = (Vec::new(), Vec::new());
        for channel in settings {
            let leave = |error: Error| ChannelLeftOut { name: channel.name.clone(), why: error.to_string() };
            match wire::client_for(&http_urls([channel])) {
                Ok(_) => usable.push(channel),
                Err(error) => left_out.push(leave(error)),
            }
        }
        let client = wire::client_for(&http_urls(usable.iter().copied()))?;
        let mut all = Vec::new();
        for channel in usable {
            match RegisteredChannel::open(channel, &client, stdout, &variable) {
                Ok(way) => all.push(way),
                Err(error) => left_out.push(ChannelLeftOut { name: channel.name.clone(), why: error.to_string() }),
            }
        }
        Ok(Self { all, left_out, ..Self::default() })
    }

    /// The channels that cannot be used, and why.
    pub fn left_out(&self) -> &[ChannelLeftOut] {
        &self.left_out
    }

    /// The default recipient of files: `signal:+15551234567`. A left-out channel cannot be the default.
    pub fn with_default_recipient(mut self, home: &str) -> Result<Self> {
        let home = ChannelAddress::parse(home)?;
        if self.left_out.iter().any(|it| it.name == home.channel) {
            return Ok(self);
        }
        self.resolve(&home)?;
        self.default_recipient = Some(home);
        Ok(self)
    }

    /// Shares the files that users send along.
    #[must_use]
    pub fn with_attachments(self, attachments: Attachments) -> Self {
        Self { attachments: Some(attachments), ..self }
    }

    /// The channel of an address that may be written to.
    fn resolve(&self, to: &ChannelAddress) -> Result<&RegisteredChannel> {
        let Some(way) = self.all.iter().find(|it| it.name == to.channel) else { return Err(self.unsupported(to)) };
        if let Some(why) = way.outlet.invalid_address(&to.address) {
            return Err(Error::failed(format!("nothing was sent: {why}")));
        }
        if !way.allow.permits(&to.address) {
            return Err(Error::denied(format!(
                "nothing was sent: {} may not be written to over {}. Allowed there: {}. The operator decides who is \
                 (channels.{}.allow)",
                to.address,
                to.channel,
                way.allow.describe(),
                to.channel
            )));
        }
        Ok(way)
    }

    fn unsupported(&self, to: &ChannelAddress) -> Error {
        if let Some(ChannelLeftOut { why, .. }) = self.left_out.iter().find(|it| it.name == to.channel) {
            return Error::failed(format!("nothing was sent: {} cannot be used here: {why}", to.channel));
        }
        let names: Vec<_> = self.all.iter().map(|it| it.name.as_str()).collect();
        let near = closest_names(&to.channel, names.iter().copied());
        let told = match (near.first(), names.as_slice()) {
            (_, []) => "no channels are configured here".to_owned(),
            (Some(near), names) => format!("did you mean {near}? There are: {}", names.join(", ")),
            (None, names) => format!("there are: {}", names.join(", ")),
        };
        Error::failed(format!("unsupported channel: {}; {told}", to.channel))
    }
}

/// The addresses that these channels speak to over HTTP.
fn http_urls<'a>(settings: impl IntoIterator<Item = &'a Settings>) -> Vec<&'a str> {
    let http = settings.into_iter().filter_map(|it| match &it.kind {
        Kind::Webhook(it) => Some(it.url.as_str()),
        Kind::Signal(it) => Some(it.url.as_str()),
        Kind::Log(_) | Kind::Mail(_) => None,
    });
    http.collect()
}

impl RegisteredChannel {
    fn open(
        settings: &Settings,
        client: &GuardedClient,
        stdout: StdoutUse,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let outlet: Box<dyn Channel> = match &settings.kind {
            Kind::Log(it) if it.to == "stdout" && stdout == StdoutUse::Taken => {
                return Err(Error::failed("standard output is taken here; log to stderr or a file"));
            }
            Kind::Log(it) => Box::new(LogSender::to(&settings.name, &it.to)),
            Kind::Webhook(it) => {
                let secret = it.secret_env.as_deref().map(|name| secret_from_env(name, variable)).transpose()?;
                Box::new(WebhookSender::new(&settings.name, &it.url, secret, client.clone())?)
            }
            Kind::Mail(it) => {
                let password = it.password_env.as_deref().map(|name| secret_from_env(name, variable)).transpose()?;
                Box::new(MailSender::new(it, password)?)
            }
            Kind::Signal(it) => Box::new(SignalSender::new(&it.url, it.account.as_deref(), client.clone())?),
        };
        Ok(Self { name: settings.name.clone(), allow: AddressAllowlist::new(settings.allow.clone()), outlet })
    }
}

/// A secret from the environment.
fn secret_from_env(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String> {
    variable(name)
        .filter(|it| !it.is_empty())
        .ok_or_else(|| Error::failed(format!("the variable {name} should hold a secret, and is not set")))
}

#[async_trait]
impl Channels for ChannelRegistry {
    fn names(&self) -> Vec<String> {
        self.all.iter().map(|it| it.name.clone()).collect()
    }

    fn has_home(&self) -> bool {
        self.default_recipient.is_some()
    }

    fn takes_attachments(&self) -> bool {
        self.attachments.is_some()
    }

    async fn send(&self, call: &Call, to: &ChannelAddress, text: &str) -> Result<()> {
        let way = self.resolve(to)?;
        if text.trim().is_empty() {
            return Err(Error::failed("nothing was sent: the message is empty"));
        }
        if text.chars().count() > MAX_MESSAGE_CHARS {
            return Err(Error::failed(format!(
                "nothing was sent: the message is longer than {MAX_MESSAGE_CHARS} characters; send a shorter one, or a file"
            )));
        }
        way.outlet.send(call, &to.address, text).await
    }

    async fn send_media(&self, call: &Call, to: Option<&ChannelAddress>, file: &OutgoingFile) -> Result<()> {
        let Some(to) = to.or(self.default_recipient.as_ref()) else {
            return Err(Error::failed(
                "the file was not sent: this session has no channel to the user that takes files. Tell the user where \
                 the file is instead",
            ));
        };
        let name = Path::new(&file.name).file_name().map(|it| it.to_string_lossy().into_owned());
        let file = OutgoingFile { name: name.unwrap_or_else(|| "file".to_owned()), ..file.clone() };
        self.resolve(to)?.outlet.send_media(call, &to.address, &file).await
    }

    async fn attachment(&self, call: &Call, index: usize) -> Result<Option<Media>> {
        Ok(self.attachments.as_ref().and_then(|it| it.get(&call.session.id, index)))
    }

    fn set_attachments(&self, session: &str, files: Vec<Attachment>) {
        if let Some(attachments) = &self.attachments {
            attachments.set(session, files);
        }
    }
}
