//! `/api/sessions`: stored and running sessions.

use helve_contract::{
    Error, ids,
    ports::{AttachmentLimits, SessionFilter, SessionRecord},
};
use helve_web::channels::EncodedAttachment;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::find_dialect,
    routes::{QueryParams, parse_body, query_number},
    say::ApiError,
    site::AppState,
    talks::Said,
};
use crate::talk::How;

/// How many sessions and messages are told at once.
const MAX_ITEMS: u64 = 500;
/// Bytes of a message.
const MAX_MESSAGE_BYTES: usize = 512 << 10;

/// A session to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateSessionBody {
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
struct SendMessageBody {
    #[serde(default)]
    message: String,
    #[serde(default)]
    attachments: Vec<EncodedAttachment>,
}

impl AppState {
    /// Sessions, the last used first.
    pub(super) async fn sessions(&self, query: &QueryParams) -> Result<Value, ApiError> {
        let which = SessionFilter {
            user: Some(self.user()),
            parent: query.get("parent").cloned(),
            top_level_only: !query.contains_key("parent"),
            offset: query_number(query, "offset", 0)?.min(i64::MAX as u64),
            limit: query_number(query, "most", 50)?.min(MAX_ITEMS),
            ..SessionFilter::default()
        };
        let (sessions, total) = self.runtime.store().list_sessions(&which).await?;
        let sessions: Vec<_> = sessions.iter().map(|it| self.session_json(it)).collect();
        Ok(json!({ "total": total, "sessions": sessions }))
    }

    /// A session with its last messages, or with those before one of them; the agents it started, and what it took.
    pub(super) async fn session(&self, name: &str, query: &QueryParams) -> Result<Value, ApiError> {
        let id = &*self.session_id(name);
        let store = self.runtime.store();
        // Read first: everything of an ended turn is stored.
        let running = self.active_turns.is_working(id);
        let found = self.find_session(id).await?;
        let before = query_number(query, "before", i64::MAX as u64)?.min(i64::MAX as u64);
        let most = query_number(query, "most", 200)?.min(MAX_ITEMS) as usize;
        let messages = store.messages(id, Some(before), most).await?;
        let which = SessionFilter { parent: Some(id.to_owned()), limit: MAX_ITEMS, ..SessionFilter::default() };
        let (children, _) = store.list_sessions(&which).await?;
        let children: Vec<_> = children.iter().map(|it| self.session_json(it)).collect();
        let usage = store.usage(id, MAX_ITEMS as usize).await?;
        let usage: Vec<_> = usage
            .iter()
            .map(|it| {
                json!({
                    "at": it.at, "input": it.spent.prompt_tokens, "output": it.spent.completion_tokens,
                    "cost": known_cost(it.spent.cost),
                })
            })
            .collect();
        let mut session = self.session_json(&found);
        session["running"] = running.into();
        Ok(json!({ "session": session, "messages": messages, "children": children, "usage": usage }))
    }

    /// Creates a session. The response is sent when the message is stored; the model's answer arrives as events.
    pub(super) async fn create_session(&self, body: &[u8]) -> Result<Value, ApiError> {
        let CreateSessionBody { message, attachments, dialect: named, model } = parse_body(body)?;
        let said = said(message, attachments)?;
        if let Some(name) = &named {
            find_dialect(name)?;
        }
        if model.as_ref().is_some_and(|it| it.is_empty() || it.len() > 200) {
            return Err(ApiError::bad_request("model must have a name of 200 bytes at most"));
        }
        let session = self.sessions.create(said, How { dialect: named, model, inbox: None }).await?;
        Ok(json!({ "session": session }))
    }

    /// Says something in a session.
    pub(super) async fn send_message(&self, name: &str, body: &[u8]) -> Result<Value, ApiError> {
        let id = &*self.session_id(name);
        let SendMessageBody { message, attachments } = parse_body(body)?;
        let said = said(message, attachments)?;
        if self.runtime.endpoint().is_none() {
            // An unknown session is reported first.
            self.find_session(id).await?;
            return Err(ApiError::no_model_configured());
        }
        self.sessions.send(id, said).await?;
        Ok(json!({ "session": id }))
    }

    /// Stops the turn that runs.
    pub(super) async fn stop_turn(&self, name: &str) -> Result<Value, ApiError> {
        let id = &*self.session_id(name);
        let record = self.find_session(id).await?;
        let stopped = self.sessions.stop(id) || self.stop_agent(&record).await;
        Ok(json!({ "session": id, "stopped": stopped }))
    }

    /// The id that an address names: an id, or a label in this workspace.
    fn session_id(&self, name: &str) -> String {
        if ids::is_id(name) { name.to_owned() } else { self.runtime.labelled_id(name, Some(&self.user()), None) }
    }

    async fn find_session(&self, id: &str) -> Result<SessionRecord, ApiError> {
        let found = self.runtime.store().get_session(id).await?.filter(|it| it.user == self.user());
        found.ok_or_else(|| ApiError::not_found("there is no such conversation; /api/sessions lists them"))
    }

    /// A session, as it is shown.
    fn session_json(&self, record: &SessionRecord) -> Value {
        json!({
            "id": record.id, "title": record.title, "dialect": record.dialect, "agent": record.agent,
            "model": record.model, "parent": record.parent, "user": record.user, "workspace": record.workspace,
            "created": record.created, "updated": record.updated, "messages": record.messages,
            "running": self.active_turns.is_working(&record.id),
            "tokens": { "input": record.spent.prompt_tokens, "output": record.spent.completion_tokens },
            "cost": known_cost(record.spent.cost),
        })
    }
}

/// US dollars; nothing where no price is known.
fn known_cost(dollars: f64) -> Option<f64> {
    Some(dollars).filter(|it| *it > 0.0)
}

/// A message that says something, or brings files.
fn said(message: String, attachments: Vec<EncodedAttachment>) -> Result<Said, ApiError> {
    if message.trim().is_empty() && attachments.is_empty() {
        return Err(ApiError::bad_request("message must say something"));
    }
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(ApiError::bad_request(format!("message has {MAX_MESSAGE_BYTES} bytes at most")));
    }
    let too_large = |error: Error| ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string());
    EncodedAttachment::check(&attachments, AttachmentLimits::UPLOAD).map_err(too_large)?;
    let files = attachments.into_iter().map(EncodedAttachment::decode).collect::<Result<_, _>>();
    let text = if message.trim().is_empty() { String::new() } else { message };
    Ok(Said { text, files: files.map_err(|error: Error| ApiError::bad_request(error.to_string()))? })
}
