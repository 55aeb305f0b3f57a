//! Mail: composes a message and sends it to the operator's server.

mod compose;
mod smtp;
mod tls;

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Result,
    ports::{MailChannel, OutgoingFile},
};

use super::{outlets::Channel, webhook::check_size};
use compose::{MailMessage, Mailbox};

/// The largest file that goes out by mail.
const MAX_ATTACHMENT_BYTES: usize = 20 << 20;

pub(super) struct MailSender {
    server: smtp::SmtpServer,
    from: Mailbox,
    subject: Option<String>,
}

impl MailSender {
    pub(super) fn new(settings: &MailChannel, password: Option<String>) -> Result<Self> {
        let login = match (&settings.user, password) {
            (Some(user), Some(password)) => Some((user.clone(), password)),
            (None, None) => None,
            (Some(_), None) => return Err(Error::failed("a `user` needs a `password_env`")),
            (None, Some(_)) => return Err(Error::failed("a `password_env` needs a `user`")),
        };
        let from = Mailbox::parse(&settings.from)
            .ok_or_else(|| Error::failed(format!("`{}` is not a sender; write NAME <a@b.org>", settings.from)))?;
        let server = smtp::SmtpServer::new(settings, login)?;
        Ok(Self { server, from, subject: settings.subject.clone() })
    }

    async fn deliver(&self, call: &Call, to: &str, text: &str, file: Option<&OutgoingFile>) -> Result<()> {
        let Some(to) = Mailbox::parse_address(to) else {
            return Err(Error::failed(format!("nothing was sent: `{to}` is not a mail address")));
        };
        let letter = MailMessage {
            from: &self.from,
            to: &to,
            subject: self.subject.as_deref(),
            text,
            file,
            now: call.now(),
            id_seed: (&call.session.id, &call.id),
        };
        let text = letter.render();
        tokio::select! {
            done = self.server.deliver(&self.from.address, &to.address, &text) => done,
            () = call.cancel.cancelled() => Err(Error::Cancelled),
        }
    }
}

#[async_trait]
impl Channel for MailSender {
    fn invalid_address(&self, address: &str) -> Option<String> {
        Mailbox::parse_address(address)
            .is_none()
            .then(|| format!("`{address}` is not a mail address; write it as in ann@example.org"))
    }

    async fn send(&self, call: &Call, to: &str, text: &str) -> Result<()> {
        self.deliver(call, to, text, None).await
    }

    async fn send_media(&self, call: &Call, to: &str, file: &OutgoingFile) -> Result<()> {
        check_size(file, MAX_ATTACHMENT_BYTES)?;
        self.deliver(call, to, file.caption.as_deref().unwrap_or(""), Some(file)).await
    }
}
