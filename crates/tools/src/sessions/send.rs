//! `sessions_send`: sends a message to another session of the same user.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Reply, Result, Tool,
    ids::new_id,
    ports::{Delivery, InboxItem, MessageRole, SESSION_LEASE},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::unknown_session_error;

/// Gives a message to another conversation of the same user.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct SessionsSendTool {
    /// Which conversation.
    pub id: String,
    /// The words.
    pub text: String,
}

/// A message that has been taken.
#[derive(Clone, Debug)]
pub struct SessionsSendOutput {
    /// The session.
    pub id: String,
    /// The delivery; `None` if the session is not open here and reads it later.
    pub delivery: Option<Delivery>,
}

impl Tool for SessionsSendTool {
    const NAME: &'static str = "sessions_send";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Sessions]);
    type Output = SessionsSendOutput;

    async fn run(self, call: &Call) -> Result<SessionsSendOutput> {
        let Self { id, text } = self;
        if text.trim().is_empty() {
            return Err(Error::failed("the message is empty; say what the other session should know or do"));
        }
        if id == call.session.id {
            return Err(Error::failed("this is the session you speak in; say it in your answer instead"));
        }
        let target = call.store().get_session(&id).await?;
        let target = target.filter(|it| it.user == call.session.user).ok_or_else(|| unknown_session_error(&id))?;
        let words = format!("[session:{}] {text}", call.session.id);
        let delivery = call.agents().send_message(call, &id, &words).await?;
        if delivery.is_none() {
            call.store().post(&target.id, &InboxItem::text(MessageRole::User, words)).await?;
            deliver(call, &target.id).await?;
        }
        Ok(SessionsSendOutput { id, delivery })
    }
}

/// Moves pending messages into a session without a holder, so that its history shows them. Otherwise the holder does
/// it.
async fn deliver(call: &Call, session: &str) -> Result<()> {
    let lease = match call.store().claim_session(session, &new_id(), SESSION_LEASE).await {
        Err(Error::SessionHeld(_)) => return Ok(()),
        lease => lease?,
    };
    let moved = call.store().take_inbox(&lease).await;
    call.store().release_session(&lease).await?;
    moved.map(drop)
}

impl From<SessionsSendOutput> for Reply {
    /// The text of 000, with when the message is read.
    fn from(SessionsSendOutput { id, delivery }: SessionsSendOutput) -> Self {
        let (waits, when) = match delivery {
            Some(Delivery::Running) => (false, "; it is working and reads the message next".to_owned()),
            Some(Delivery::Woken) => (false, "; it was idle and works on the message now".to_owned()),
            Some(Delivery::Waiting) => (true, "; it is idle and reads the message at its next turn".to_owned()),
            None => (
                true,
                format!(
                    "; it is not running in this process, so the message waits until it continues, for example \
                     with `helve run --session {id}`"
                ),
            ),
        };
        let text = format!("message sent to session {id}{when}");
        Self { text, data: Some(json!({ "session": id, "waits": waits })), ..Self::default() }
    }
}
