//! `/hooks/NAME`: what a machine posts becomes a message in a conversation of the hook's own.

use std::{collections::HashMap, sync::Arc};

use helve_agent::{Agent, Budget, Handle, Need, Workshop as _, prompt};
use helve_contract::{
    CancellationToken, Error, USER_NAME_FORM, is_user_name,
    ports::{InboxItem, Part, Speaker},
};
use helve_web::channels::{Format, Inbound, Taken};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::talks::{Handed, Talks};
use crate::{config::Settings, fault::Fault, print::harmless, remark, setup, workshop::Bench};

/// How many messages may wait.
const WAITING: usize = 64;

/// The hooks, and where their messages go.
pub(super) struct Hooks {
    all: Vec<Inbound>,
    queue: Sender<Taken>,
}

/// The messages that came in.
pub(super) struct Posts {
    queue: Receiver<Taken>,
    /// The users of hooks that have one of their own.
    users: HashMap<String, String>,
}

/// The hooks by the settings.
pub(super) fn open(settings: &Settings) -> Result<(Hooks, Posts), Fault> {
    let read: Vec<(Inbound, Option<String>)> =
        settings.config.hooks.iter().map(|text| read(text)).collect::<Result<_, _>>()?;
    let users = read.iter().filter_map(|(hook, user)| Some((hook.id.clone(), user.clone()?))).collect();
    let all = read.into_iter().map(|(hook, _)| hook).collect();
    let (queue, posts) = channel(WAITING);
    Ok((Hooks { all, queue }, Posts { queue: posts, users }))
}

/// Reads `NAME=VARIABLE` or `NAME=VARIABLE@USER`: the hook, and the user whose messages it brings.
fn read(text: &str) -> Result<(Inbound, Option<String>), Fault> {
    let told = |why: &str| Fault::usage(format!("hooks: `{text}` {why}"));
    let (name, variable) = text.split_once('=').ok_or_else(|| told("must be NAME=VARIABLE"))?;
    let (variable, user) = match variable.split_once('@') {
        Some((variable, user)) => (variable, Some(user.trim().to_owned())),
        None => (variable, None),
    };
    if let Some(user) = user.as_deref().filter(|it| !is_user_name(it)) {
        return Err(told(&format!("names the user `{}`; write {USER_NAME_FORM}", user.escape_debug())));
    }
    let (name, variable) = (name.trim(), variable.trim());
    let plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(told("must have a name of letters, digits, `-` and `_`"));
    }
    let secret = std::env::var(variable).ok().filter(|it| it.len() >= 16);
    let secret = secret.ok_or_else(|| told("names a variable that must hold a secret of 16 letters or more"))?;
    let path = format!("/hooks/{name}");
    Ok((Inbound { id: name.to_owned(), path, format: Format::Text, secret: Some(secret) }, user))
}

impl Hooks {
    /// The hooks.
    pub(super) fn all(&self) -> &[Inbound] {
        &self.all
    }

    /// Takes a message in; `false`: too many wait.
    pub(super) fn put(&self, taken: Taken) -> bool {
        self.queue.try_send(taken).is_ok()
    }
}

impl Posts {
    /// Hands one message after the other to the model, until the server is to end. What was taken in until then is
    /// kept in the conversation, though nobody answers it.
    pub(super) async fn work(mut self, bench: &Arc<Bench>, talks: &Talks, closing: &CancellationToken) {
        loop {
            let taken = tokio::select! {
                taken = self.queue.recv() => taken,
                () = closing.cancelled() => {
                    self.queue.close();
                    self.queue.recv().await
                }
            };
            let Some(taken) = taken else { return };
            let user = self.users.get(&taken.hook).cloned();
            if let Err(error) = turn(bench, talks, &taken, user, closing).await {
                remark!("helve: the hook {}: {}", harmless(&taken.hook), harmless(&error.to_string()));
            }
        }
    }
}

/// One message, to the end of the model's answer. The conversation keeps both.
async fn turn(
    bench: &Arc<Bench>,
    talks: &Talks,
    taken: &Taken,
    user: Option<String>,
    closing: &CancellationToken,
) -> helve_contract::Result<()> {
    let settings = bench.settings();
    let label = format!("hook:{}", taken.hook);
    let id = bench.labelled_id(&label, user.as_deref(), None);
    // Somebody may be talking in it.
    match talks.hand(&id, &taken.text, &taken.attachments, closing).await {
        Handed::Away => {}
        Handed::Heard(_) => return Ok(()),
        Handed::Unheard => {
            talks.leave_word(&id, &taken.text);
            return Ok(());
        }
    }
    let need = Need { id: label, user, alone: true, ..Need::default() };
    let (engine, session) = bench.equip(&need)?;
    let budget = Budget {
        turns: Some(settings.config.schedule.max_turns),
        cost: Some(settings.config.schedule.max_cost),
        ..Budget::default()
    };
    let system = prompt::system(&engine, &session, "").await;
    let title = Some(format!("webhook: {}", taken.hook));
    // The end of the server stops it; its words are kept first.
    let handle = Handle::under(closing);
    let model = bench.session_model(&session.id, bench.model(None)?);
    let agent = Agent { budget, system, title, handle, ..Agent::new(engine, session.clone(), model) };
    let turn = talks.turns().begin(&session.id, agent.engine.dialect().name, None);
    let words = vec![Part::Text { text: taken.text.clone() }];
    let said = agent.turn_with(words, taken.attachments.clone()).await;
    turn.end(&said);
    setup::end_tasks(session.clone()).await;
    match said {
        // Another process works in it: that one reads the message next.
        Err(Error::SessionHeld(_)) => {
            session.ports.store.post(&session.id, &InboxItem::text(Speaker::User, &taken.text)).await
        }
        said => said.map(drop),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hook_needs_a_name_and_a_secret() {
        let told = |text: &str| super::read(text).err().map(|it| it.to_string()).unwrap_or_default();
        assert_eq!(told("build"), "hooks: `build` must be NAME=VARIABLE");
        assert_eq!(told("a/b=HOME"), "hooks: `a/b=HOME` must have a name of letters, digits, `-` and `_`");
        assert_eq!(
            told("build=HELVE_NO_SUCH"),
            "hooks: `build=HELVE_NO_SUCH` names a variable that must hold a secret of 16 letters or more"
        );
    }
}
