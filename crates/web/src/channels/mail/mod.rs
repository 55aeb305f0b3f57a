//! Mail: a message is composed, and handed to the operator's own server.

mod compose;
mod smtp;
mod tls;

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Result,
    ports::{MailChannel, Outgoing},
};

use super::{outlets::Outlet, webhook::too_large};
use compose::{Letter, Mailbox};

/// The largest file that goes out by mail.
const LARGEST: usize = 20 << 20;

pub(super) struct Mail {
    server: smtp::Server,
    from: Mailbox,
    subject: Option<String>,
}

impl Mail {
    pub(super) fn new(settings: &MailChannel, password: Option<String>) -> Result<Self> {
        let login = match (&settings.user, password) {
            (Some(user), Some(password)) => Some((user.clone(), password)),
            (None, None) => None,
            (Some(_), None) => return Err(Error::failed("a `user` needs a `password_env`")),
            (None, Some(_)) => return Err(Error::failed("a `password_env` needs a `user`")),
        };
        let from = Mailbox::parse(&settings.from)
            .ok_or_else(|| Error::failed(format!("`{}` is not a sender; write NAME <a@b.org>", settings.from)))?;
        let server = smtp::Server::new(settings, login)?;
        Ok(Self { server, from, subject: settings.subject.clone() })
    }

    async fn hand_over(&self, call: &Call, to: &str, text: &str, file: Option<&Outgoing>) -> Result<()> {
        let Some(to) = Mailbox::bare(to) else {
            return Err(Error::failed(format!("nothing was sent: `{to}` is not a mail address")));
        };
        let letter = Letter {
            from: &self.from,
            to: &to,
            subject: self.subject.as_deref(),
            text,
            file,
            now: call.now(),
            mark: (&call.session.id, &call.id),
        };
        let text = letter.text();
        tokio::select! {
            done = self.server.deliver(&self.from.address, &to.address, &text) => done,
            () = call.cancel.cancelled() => Err(Error::Cancelled),
        }
    }
}

#[async_trait]
impl Outlet for Mail {
    fn misfit(&self, address: &str) -> Option<String> {
        Mailbox::bare(address)
            .is_none()
            .then(|| format!("`{address}` is not a mail address; write it as in ann@example.org"))
    }

    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()> {
        self.hand_over(call, to, text, None).await
    }

    async fn send_media(&self, call: &Call, to: &str, file: &Outgoing) -> Result<()> {
        too_large(file, LARGEST)?;
        self.hand_over(call, to, file.caption.as_deref().unwrap_or(""), Some(file)).await
    }
}
