//! `/api/sessions`: conversations, as they are kept and as they go on.

use helve_contract::{
    Error, ids,
    ports::{AttachmentLimits, SessionRecord, Which},
};
use helve_web::channels::EncodedAttachment;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::dialect,
    routes::{Query, number, parsed},
    say::No,
    site::Site,
    talks::Said,
};
use crate::talk::How;

/// How many conversations and messages are told at once.
const MOST: u64 = 500;
/// Bytes of a message.
const LONGEST: usize = 512 << 10;

/// A conversation to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    #[serde(default)]
    message: String,
    #[serde(default)]
    attachments: Vec<EncodedAttachment>,
    dialect: Option<String>,
    model: Option<String>,
}

/// A message for one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Say {
    #[serde(default)]
    message: String,
    #[serde(default)]
    attachments: Vec<EncodedAttachment>,
}

impl Site {
    /// Conversations, the last used first.
    pub(super) async fn sessions(&self, query: &Query) -> Result<Value, No> {
        let which = Which {
            user: Some(self.user()),
            parent: query.get("parent").cloned(),
            top_only: !query.contains_key("parent"),
            offset: number(query, "offset", 0)?.min(i64::MAX as u64),
            most: number(query, "most", 50)?.min(MOST),
            ..Which::default()
        };
        let (sessions, total) = self.bench.store().conversations(&which).await?;
        let sessions: Vec<_> = sessions.iter().map(|it| self.seen(it)).collect();
        Ok(json!({ "total": total, "sessions": sessions }))
    }

    /// A conversation with its last messages, or with those before one of them; the agents it started, and what it took.
    pub(super) async fn session(&self, name: &str, query: &Query) -> Result<Value, No> {
        let id = &*self.session_id(name);
        let store = self.bench.store();
        // Looked at first: of a turn that is over, everything is kept.
        let running = self.turns.is_working(id);
        let found = self.known(id).await?;
        let before = number(query, "before", i64::MAX as u64)?.min(i64::MAX as u64);
        let most = number(query, "most", 200)?.min(MOST) as usize;
        let messages = store.messages(id, Some(before), most).await?;
        let which = Which { parent: Some(id.to_owned()), most: MOST, ..Which::default() };
        let (children, _) = store.conversations(&which).await?;
        let children: Vec<_> = children.iter().map(|it| self.seen(it)).collect();
        let usage = store.usage(id, MOST as usize).await?;
        let usage: Vec<_> = usage
            .iter()
            .map(|it| {
                json!({
                    "at": it.at, "input": it.spent.prompt_tokens, "output": it.spent.completion_tokens,
                    "cost": cost(it.spent.cost),
                })
            })
            .collect();
        let mut session = self.seen(&found);
        session["running"] = running.into();
        Ok(json!({ "session": session, "messages": messages, "children": children, "usage": usage }))
    }

    /// Begins a conversation. The answer comes when the words are kept; the model's come as events.
    pub(super) async fn begin(&self, body: &[u8]) -> Result<Value, No> {
        let Begin { message, attachments, dialect: named, model } = parsed(body)?;
        let said = said(message, attachments)?;
        if let Some(name) = &named {
            dialect(name)?;
        }
        if model.as_ref().is_some_and(|it| it.is_empty() || it.len() > 200) {
            return Err(No::bad("model must have a name of 200 bytes at most"));
        }
        let session = self.talks.begin(said, How { dialect: named, model, inbox: None }).await?;
        Ok(json!({ "session": session }))
    }

    /// Says something in a conversation.
    pub(super) async fn message(&self, name: &str, body: &[u8]) -> Result<Value, No> {
        let id = &*self.session_id(name);
        let Say { message, attachments } = parsed(body)?;
        let said = said(message, attachments)?;
        if self.bench.endpoint().is_none() {
            // Whoever names nothing that is there hears that first.
            self.known(id).await?;
            return Err(No::no_model());
        }
        self.talks.say(id, said).await?;
        Ok(json!({ "session": id }))
    }

    /// Stops the turn that runs.
    pub(super) async fn stop(&self, name: &str) -> Result<Value, No> {
        let id = &*self.session_id(name);
        let record = self.known(id).await?;
        let stopped = self.talks.stop(id) || self.stop_agent(&record).await;
        Ok(json!({ "session": id, "stopped": stopped }))
    }

    /// The id that an address names: an id, or a label in this workspace.
    fn session_id(&self, name: &str) -> String {
        if ids::is_id(name) { name.to_owned() } else { self.bench.labelled_id(name, Some(&self.user()), None) }
    }

    async fn known(&self, id: &str) -> Result<SessionRecord, No> {
        let found = self.bench.store().conversation(id).await?.filter(|it| it.user == self.user());
        found.ok_or_else(|| No::missing("there is no such conversation; /api/sessions lists them"))
    }

    /// A conversation, as it is shown.
    fn seen(&self, record: &SessionRecord) -> Value {
        json!({
            "id": record.id, "title": record.title, "dialect": record.dialect, "agent": record.agent,
            "model": record.model, "parent": record.parent, "user": record.user, "workspace": record.workspace,
            "created": record.created, "updated": record.updated, "messages": record.messages,
            "running": self.turns.is_working(&record.id),
            "tokens": { "input": record.spent.prompt_tokens, "output": record.spent.completion_tokens },
            "cost": cost(record.spent.cost),
        })
    }
}

/// US dollars; nothing where no price is known.
fn cost(dollars: f64) -> Option<f64> {
    Some(dollars).filter(|it| *it > 0.0)
}

/// A message that says something, or brings files.
fn said(message: String, attachments: Vec<EncodedAttachment>) -> Result<Said, No> {
    if message.trim().is_empty() && attachments.is_empty() {
        return Err(No::bad("message must say something"));
    }
    if message.len() > LONGEST {
        return Err(No::bad(format!("message has {LONGEST} bytes at most")));
    }
    let too_large = |error: Error| No::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string());
    EncodedAttachment::check(&attachments, AttachmentLimits::UPLOAD).map_err(too_large)?;
    let files = attachments.into_iter().map(EncodedAttachment::decode).collect::<Result<_, _>>();
    let text = if message.trim().is_empty() { String::new() } else { message };
    Ok(Said { text, files: files.map_err(|error: Error| No::bad(error.to_string()))? })
}
