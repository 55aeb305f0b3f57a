//! `sessions_send`: words to another conversation of the same user.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Reply, Result, Tool,
    ports::{Message, Part, Speaker, Spent},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::unknown;

/// Gives a message to another conversation of the same user.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Send {
    /// Which conversation.
    pub id: String,
    /// The words.
    pub text: String,
}

/// A message that has been taken.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The conversation.
    pub id: String,
    /// Whether nobody works on it now, so that it is read when the conversation goes on.
    pub waits: bool,
}

impl Tool for Send {
    const NAME: &'static str = "sessions_send";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Sessions]);
    type Output = Sent;

    async fn run(self, call: &Call) -> Result<Sent> {
        let Self { id, text } = self;
        if text.trim().is_empty() {
            return Err(Error::failed("the message is empty; say what the other session should know or do"));
        }
        if id == call.session.id {
            return Err(Error::failed("this is the session you speak in; say it in your answer instead"));
        }
        let target = call.store().conversation(&id).await?;
        if target.as_ref().is_some_and(|it| it.user != call.session.user) {
            return Err(unknown(&id));
        }
        match call.agents().tell(call, &id, &text).await {
            Ok(()) => Ok(Sent { id, waits: false }),
            // Nobody is there to take it up, but it can lie ready.
            Err(Error::Failed(_)) if target.is_some() => {
                let text = format!("[session:{}] {text}", call.session.id);
                let parts = vec![Part::Text { text }];
                let message = Message { seq: 0, role: Speaker::User, parts, created: call.now() };
                call.store().append(&id, &[message], Spent::default()).await?;
                Ok(Sent { id, waits: true })
            }
            Err(Error::Failed(_)) => Err(unknown(&id)),
            Err(error) => Err(error),
        }
    }
}

impl From<Sent> for Reply {
    /// 000's words.
    fn from(Sent { id, waits }: Sent) -> Self {
        let mut text = format!("message sent to session {id}");
        if waits {
            text.push_str("; nobody works on it now, so it is read when that session goes on");
        }
        Self { text, data: Some(json!({ "session": id, "waits": waits })), ..Self::default() }
    }
}
