//! The channels of a session: each by its name, each with its list of who may be written to.

use std::path::Path;

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Media, Result, nearest,
    ports::{Address, Attachment, ChannelKind as Kind, Channels, Outgoing},
};

use super::{Attachments, Settings, Stdout, allow::Allow, log::Log, mail::Mail, signal::Signal, webhook::Webhook};
use crate::{client::Client, search::wire};

/// The most characters of one message.
const LONGEST: usize = 100_000;

/// One way out.
#[async_trait]
pub(super) trait Outlet: Send + Sync {
    /// Why an address is none of this channel's, if it is none.
    fn misfit(&self, _address: &str) -> Option<String> {
        None
    }
    /// Sends words.
    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()>;
    /// Sends a file.
    async fn send_media(&self, call: &Call, to: &str, file: &Outgoing) -> Result<()>;
}

/// The channels that the operator configured.
#[derive(Default)]
pub struct Outlets {
    all: Vec<Way>,
    home: Option<Address>,
    attachments: Option<Attachments>,
}

struct Way {
    name: String,
    allow: Allow,
    outlet: Box<dyn Outlet>,
}

impl Outlets {
    /// The channels by their settings. Secrets come from the environment, through `variable`. What the
    /// operator wrote is reached, even where it is private; nothing else is.
    pub fn open(settings: &[Settings], stdout: Stdout, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let client = wire::client_for(&addresses(settings))?;
        let all = settings.iter().map(|it| Way::open(it, &client, stdout, &variable)).collect::<Result<_>>()?;
        Ok(Self { all, ..Self::default() })
    }

    /// Where files go for which nobody says where to: `signal:+15551234567`.
    pub fn with_home(mut self, home: &str) -> Result<Self> {
        let home = Address::parse(home)?;
        self.way(&home)?;
        self.home = Some(home);
        Ok(self)
    }

    /// Shares the files that users send along.
    #[must_use]
    pub fn with_attachments(self, attachments: Attachments) -> Self {
        Self { attachments: Some(attachments), ..self }
    }

    /// The channel of an address that may be written to.
    fn way(&self, to: &Address) -> Result<&Way> {
        let Some(way) = self.all.iter().find(|it| it.name == to.channel) else { return Err(self.unsupported(to)) };
        if let Some(why) = way.outlet.misfit(&to.address) {
            return Err(Error::failed(format!("nothing was sent: {why}")));
        }
        if !way.allow.permits(&to.address) {
            return Err(Error::denied(format!(
                "nothing was sent: {} may not be written to over {}. Allowed there: {}. The operator decides who is \
                 (channels.{}.allow)",
                to.address,
                to.channel,
                way.allow.told(),
                to.channel
            )));
        }
        Ok(way)
    }

    fn unsupported(&self, to: &Address) -> Error {
        let names: Vec<_> = self.all.iter().map(|it| it.name.as_str()).collect();
        let near = nearest(&to.channel, names.iter().copied());
        let told = match (near.first(), names.as_slice()) {
            (_, []) => "no channels are configured here".to_owned(),
            (Some(near), names) => format!("did you mean {near}? There are: {}", names.join(", ")),
            (None, names) => format!("there are: {}", names.join(", ")),
        };
        Error::failed(format!("unsupported channel: {}; {told}", to.channel))
    }
}

/// The addresses that these channels speak to over HTTP.
fn addresses(settings: &[Settings]) -> Vec<&str> {
    let http = settings.iter().filter_map(|it| match &it.kind {
        Kind::Webhook(it) => Some(it.url.as_str()),
        Kind::Signal(it) => Some(it.url.as_str()),
        Kind::Log(_) | Kind::Mail(_) => None,
    });
    http.collect()
}

impl Way {
    fn open(
        settings: &Settings,
        client: &Client,
        stdout: Stdout,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let named = |error: Error| Error::failed(format!("the channel `{}`: {error}", settings.name));
        let outlet: Box<dyn Outlet> = match &settings.kind {
            Kind::Log(it) if it.to == "stdout" && stdout == Stdout::Taken => {
                return Err(named(Error::failed("standard output is taken here; log to stderr or a file")));
            }
            Kind::Log(it) => Box::new(Log::to(&settings.name, &it.to)),
            Kind::Webhook(it) => {
                let secret = it.secret_env.as_deref().map(|name| held(name, variable)).transpose().map_err(named)?;
                Box::new(Webhook::new(&settings.name, &it.url, secret, client.clone()).map_err(named)?)
            }
            Kind::Mail(it) => {
                let password =
                    it.password_env.as_deref().map(|name| held(name, variable)).transpose().map_err(named)?;
                Box::new(Mail::new(it, password).map_err(named)?)
            }
            Kind::Signal(it) => Box::new(Signal::new(&it.url, it.account.as_deref(), client.clone()).map_err(named)?),
        };
        Ok(Self { name: settings.name.clone(), allow: Allow::new(settings.allow.clone()), outlet })
    }
}

/// A secret from the environment.
fn held(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String> {
    variable(name)
        .filter(|it| !it.is_empty())
        .ok_or_else(|| Error::failed(format!("the variable {name} should hold a secret, and is not set")))
}

#[async_trait]
impl Channels for Outlets {
    fn names(&self) -> Vec<String> {
        self.all.iter().map(|it| it.name.clone()).collect()
    }

    fn has_home(&self) -> bool {
        self.home.is_some()
    }

    fn takes_attachments(&self) -> bool {
        self.attachments.is_some()
    }

    async fn send(&self, call: &Call, to: &Address, text: &str) -> Result<()> {
        let way = self.way(to)?;
        if text.trim().is_empty() {
            return Err(Error::failed("nothing was sent: the message is empty"));
        }
        if text.chars().count() > LONGEST {
            return Err(Error::failed(format!(
                "nothing was sent: the message is longer than {LONGEST} characters; send a shorter one, or a file"
            )));
        }
        way.outlet.send(call, &to.address, text).await
    }

    async fn send_media(&self, call: &Call, to: Option<&Address>, file: &Outgoing) -> Result<()> {
        let Some(to) = to.or(self.home.as_ref()) else {
            return Err(Error::failed(
                "the file was not sent: this session has no channel to the user that takes files. Tell the user where \
                 the file is instead",
            ));
        };
        let name = Path::new(&file.name).file_name().map(|it| it.to_string_lossy().into_owned());
        let file = Outgoing { name: name.unwrap_or_else(|| "file".to_owned()), ..file.clone() };
        self.way(to)?.outlet.send_media(call, &to.address, &file).await
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
